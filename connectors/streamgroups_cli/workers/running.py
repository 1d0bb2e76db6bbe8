"""``streamgroups worker run``: one Spark driver that runs up to ``--slots`` processors of an instance. Source: SEMANTICS P2."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import FencedMember, InvalidOption
from streamgroups.instances.entries import MAX_SLOTS, Worker, is_name
from streamgroups.instances.instance_state import InstanceState
from streamgroups_cli.instance_log import InstanceOptions, OpenInstance, open_instance
from streamgroups_cli.metrics_address import MetricsAddress, metrics_listener, parse_ports, print_address
from streamgroups_cli.options import with_options
from streamgroups_cli.output import print_message
from streamgroups_cli.process_logs import log_to_stderr
from streamgroups_cli.process_signals import Termination
from streamgroups_cli.spark_settings import Conf, Master, spark_session, spark_settings

if TYPE_CHECKING:
    from streamgroups_spark.ops.metrics_listener import MetricsListener

#: The defaults of a worker that no manager has started.
_SLOTS, _LEASE = 4, "6s"


@with_options
def run(
    options: InstanceOptions,
    slots: Annotated[
        int | None,
        typer.Option(
            "--slots",
            min=1,
            max=MAX_SLOTS,
            help=f"Maximum number of running processors. Default: {_SLOTS}.",
            show_default=False,
        ),
    ] = None,
    lease: Annotated[
        str | None,
        typer.Option(
            "--lease",
            metavar="DURATION",
            help=f"Without a heartbeat for this time, the worker stops its queries. Default: {_LEASE}.",
            show_default=False,
        ),
    ] = None,
    worker_id: Annotated[
        str | None,
        typer.Option(
            "--worker-id",
            metavar="ID",
            help="The id that the manager has given to this worker, with its slots and its lease.",
            show_default=False,
        ),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    metrics: MetricsAddress = None,
) -> None:
    """Run a worker until the manager releases it, or it is stopped.

    Each processor has its own session, thread and pool of Spark's fair scheduler. SIGTERM stops all of them in an orderly way,
    and they start on other workers.

    Exit code: 0 if it was stopped or released, 3 if its lease had expired, 1 for another error.
    """
    log_to_stderr()
    settings = spark_settings(master, conf)
    if worker_id is not None:
        _reject_values_of_manager({"--slots": slots, "--lease": lease})
    lease_ms = parse_duration_ms(_LEASE if lease is None else lease, option="--lease")
    address = None if metrics is None else parse_ports(metrics, "--metrics")
    termination = Termination()
    termination.record_signals()
    with open_instance(options, options.name) as instance:
        worker = _worker(instance.state(), worker_id, slots or _SLOTS, lease_ms, instance.cluster.now_ms())
        with metrics_listener(address) as listener:
            reason = _run(instance, worker, settings, termination, listener)
    print_message(f"Worker {worker.id} has ended: {reason}.")


def _reject_values_of_manager(given: Mapping[str, object]) -> None:
    for option, value in given.items():
        if value is not None:
            raise InvalidOption(
                f"{option} has no effect with --worker-id: the manager has chosen the slots and the lease of this worker.",
                remedy=f"Remove it from --worker-command, and set {option} of 'streamgroups instance run'.",
            )


def _run(
    instance: OpenInstance,
    worker: Worker,
    settings: dict[str, str],
    termination: Termination,
    listener: MetricsListener | None,
) -> str:
    from streamgroups_spark.workers.replica_run import ReplicaRun, declared_replica
    from streamgroups_spark.workers.shared_states import announce
    from streamgroups_spark.workers.worker_process import WorkerProcess
    from streamgroups_spark.workers.worker_session import check_scheduler, share_of_tasks, worker_settings

    # Spark starts before the first heartbeat: the worker then starts its processors at once.
    with (
        spark_session(f"streamgroups-{instance.name}-{worker.id}", worker_settings(worker.slots, settings)) as spark,
        closing(instance.log.reader()) as reader,
    ):
        check_scheduler(spark)
        # PySpark has replaced the handler of SIGINT.
        termination.record_signals()
        run_replica = declared_replica(instance.name, worker.host, lambda: reader.state)
        reader.read_to_end(instance.timeout_s)
        announce(worker.host)
        process = WorkerProcess(
            worker,
            reader,
            instance.log.writer(),
            lambda placement, definition: ReplicaRun(
                spark, placement, definition, run_replica, listener, partial(share_of_tasks, spark, worker.slots)
            ),
            termination.is_requested,
        )
        print_message(f"Worker {worker.id} of instance '{instance.name}' runs up to {worker.slots} processors.")
        print_address(listener)
        return process.run()


def _worker(state: InstanceState, worker_id: str | None, slots: int, lease_ms: int, now_ms: int) -> Worker:
    """Returns the lease of this process: that of the manager, or a new one."""
    host = socket.gethostname()[:255]
    if worker_id is None:
        own_id = f"{''.join(c for c in host if is_name(f'a{c}'))[:40]}-{uuid.uuid4().hex[:8]}".lstrip("-_")
        return Worker(own_id, slots, now_ms, 0, now_ms, lease_ms, host, os.getpid())
    given = state.workers.get(worker_id)
    if given is None or given.heartbeat:
        raise FencedMember(
            f"The manager does not expect a worker '{worker_id}' to start.",
            remedy="Omit --worker-id to add a worker. The manager starts its own workers.",
        )
    return Worker(given.id, given.slots, given.since_ms, 0, now_ms, given.lease_ms, host, os.getpid(), given.is_managed)
