"""``streamgroups instance run``: the manager of an instance. It places processors, and starts and releases workers.

Source: SEMANTICS P2.
"""

from __future__ import annotations

from typing import Annotated

import typer

from streamgroups.durations import parse_duration_ms
from streamgroups.instances.entries import MAX_SLOTS, check_name
from streamgroups.instances.manager import ManagerSettings
from streamgroups_cli.connection import ClusterOptions, Connect
from streamgroups_cli.instance_log import InstanceArgument, instance_log
from streamgroups_cli.instances.launching import DEFAULT, ProcessLauncher, command_of
from streamgroups_cli.options import with_options
from streamgroups_cli.output import print_message
from streamgroups_cli.process_logs import log_to_stderr
from streamgroups_cli.process_signals import Termination


@with_options
def run(
    connect: Connect,
    name: InstanceArgument,
    slots: Annotated[
        int, typer.Option("--slots", min=1, max=MAX_SLOTS, help="Slots of each worker that it starts.")
    ] = 4,
    max_workers: Annotated[
        int,
        typer.Option(
            "--max-workers", min=0, help="It starts no worker beyond this number; with 0 workers are started elsewhere."
        ),
    ] = 100,
    worker_command: Annotated[
        str,
        typer.Option(
            "--worker-command",
            metavar="TEMPLATE",
            help="The command of a worker, such as: spark-submit --master URL {program} {arguments}",
        ),
    ] = DEFAULT,
    idle: Annotated[
        str, typer.Option("--idle", metavar="DURATION", help="A worker without a processor ends after this time.")
    ] = "1m",
    lease: Annotated[
        str,
        typer.Option("--lease", metavar="DURATION", help="A worker without a heartbeat for this time counts as dead."),
    ] = "6s",
    start_timeout: Annotated[
        str,
        typer.Option("--start-timeout", metavar="DURATION", help="How long a new worker can take to start."),
    ] = "2m",
) -> None:
    """Run the manager of an instance until it is stopped. The first run creates the topic of the instance.

    A second manager of an instance replaces the first one. If no manager runs, workers and processors continue to run.

    Exit code: 0 if it was stopped, 3 if another manager has replaced it, 1 for another error.
    """
    check_name(name, "an instance")
    log_to_stderr()
    settings = ManagerSettings(
        slots,
        max_workers,
        parse_duration_ms(lease, option="--lease"),
        parse_duration_ms(idle, option="--idle"),
        parse_duration_ms(start_timeout, option="--start-timeout"),
    )
    arguments = ["--instance", name, *_cluster_arguments(connect)]
    command_of(worker_command, arguments)
    termination = Termination()
    termination.record_signals()
    with connect() as cluster:
        from streamgroups_kafka.instances.manager_process import ManagerProcess

        log = instance_log(cluster, name)
        created = log.create()
        print_message(f"The manager of {'the new ' if created else ''}instance '{name}' runs.")
        ManagerProcess(log, settings, ProcessLauncher(worker_command, arguments), termination.is_requested).run()
    print_message(f"The manager of instance '{name}' has ended. Its workers continue to run.")


def _cluster_arguments(options: ClusterOptions) -> list[str]:
    """The cluster options of this command, for its workers."""
    found = []
    if options.context is not None:
        found += ["--context", str(options.context)]
    if options.bootstrap_server is not None:
        found += ["--bootstrap-server", str(options.bootstrap_server)]
    if options.command_config is not None:
        found += ["--command-config", str(options.command_config.absolute())]
    for setting in options.kafka or ():
        found += ["--kafka", setting]
    return found
