"""A worker without Spark: its replicas only change their states. The test starts several of them in a second.

All other parts are those of ``streamgroups worker run``: the command line, the lease, the topic and the decisions.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field

from streamgroups.instances.entries import Definition, Observation, Observed, Placement, Progress, Worker
from streamgroups_cli import main
from streamgroups_cli.instance_log import OpenInstance
from streamgroups_cli.process_signals import Termination
from streamgroups_cli.workers import running
from streamgroups_spark.ops.metrics_listener import MetricsListener
from streamgroups_spark.workers.worker_process import WorkerProcess


@dataclass
class LightReplica:
    """A replica that runs, or fails at once if its definition requests it."""

    placement: Placement
    definition: Definition
    is_stopping: bool = False
    has_lost_spark: bool = False
    since_ms: int = 0
    fails: bool = field(init=False)

    def __post_init__(self) -> None:
        self.fails = bool(self.definition.content.get("fails"))

    @property
    def has_ended(self) -> bool:
        return self.is_stopping or self.fails

    def stop(self, reason: str) -> None:
        self.is_stopping = bool(reason)

    def join(self, timeout_s: float) -> bool:
        return timeout_s >= 0

    def observation(self) -> Observation:
        revision = self.definition.revision
        if self.fails:
            return Observation(self.placement, Observed.FAILED, 0, revision, "data_loss", "Records are gone.")
        return Observation(self.placement, Observed.STOPPED if self.is_stopping else Observed.RUNNING, 0, revision)

    def progress(self) -> Progress | None:
        return Progress(7, 100, 3, None)


def _run(
    instance: OpenInstance,
    worker: Worker,
    settings: dict[str, str],
    termination: Termination,
    listener: MetricsListener | None,
) -> str:
    del settings, listener
    with closing(instance.log.reader()) as reader:
        reader.read_to_end(10)
        return WorkerProcess(worker, reader, instance.log.writer(), LightReplica, termination.is_requested).run()


if __name__ == "__main__":
    running._run = _run
    main()
