"""``streamgroups processors run``: runs a processor in the foreground, or shows its result for the last records.

It starts a Spark application in this process. A container runs this command. Source: SEMANTICS P1, W17.
"""

from __future__ import annotations

from typing import Annotated

import typer

from streamgroups.processors.preview_ranges import check_previewable
from streamgroups.processors.problems import check
from streamgroups_cli.metrics_address import MetricsAddress, metrics_listener, parse_ports, print_address
from streamgroups_cli.output import print_message
from streamgroups_cli.process_logs import log_to_stderr
from streamgroups_cli.processors.files import LOCAL, Instance, OneFile, read_files
from streamgroups_cli.processors.previewed_rows import print_rows
from streamgroups_cli.spark_settings import Conf, Master, spark_session, spark_settings


def run(
    file: OneFile,
    instance: Instance = LOCAL,
    member: Annotated[
        int, typer.Option("--member", metavar="N", help="The number of this member, from 0, if 'replicas' is above 1.")
    ] = 0,
    preview: Annotated[
        int | None,
        typer.Option(
            "--preview",
            metavar="N",
            min=1,
            max=1_000_000,
            help="Show the rows of about N last records, without group, state and output, and end.",
            show_default=False,
        ),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    metrics: MetricsAddress = None,
) -> None:
    """Run a processor in the foreground until it is stopped.

    A failed query is restarted. SIGTERM and Ctrl-C end it in an orderly way. The next run continues at the positions of the
    group, on this or another machine.

    Exit code: 0 if it was stopped or has ended, 1 if it has failed permanently, 2 for a file with a mistake.
    """
    processors, problems = read_files([file], instance)
    check(problems)
    (declared,) = processors
    declared.check_member(member)
    settings = spark_settings(master, conf)
    address = None if metrics is None else parse_ports(metrics, "--metrics")
    log_to_stderr()
    if preview is not None:
        # Before Spark starts.
        check_previewable(declared)
    with spark_session(declared.group_id(instance), settings) as spark:
        if preview is not None:
            from streamgroups_spark.processors.previewing import last_ranges

            print_rows(declared, spark, last_ranges(declared, preview, instance=instance), instance)
            return
        from streamgroups_spark.processors.running import run_processor

        with metrics_listener(address) as listener:
            if listener is not None:
                spark.streams.addListener(listener)
            print_message(
                f"Processor '{declared.name}' runs as group '{declared.group_id(instance)}', member {member}."
            )
            print_address(listener)
            outcome = run_processor(declared, spark, instance=instance, member=member)
        how = "was stopped" if outcome.stopped_by_signal else "has ended"
        print_message(f"Processor '{declared.name}' {how} after {outcome.restarts} restarts.")
