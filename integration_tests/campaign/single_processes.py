"""Faults of single processes of a query: freezes with SIGSTOP, and faults at a random time instead of a point.

Used by ``campaign.faults``. A freeze is longer than the session timeout of a group (6 s) and the timeout of a transaction
(20 s). So the broker removes the member, or aborts the transaction, while the other processes of the query still run. The
campaign verifies that the process is in the state T of Linux. Source: SEMANTICS F1-F3, G8, X2-X4; ``proc_pid_stat(5)``.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from integration_tests.campaign.members import CampaignMember
from streamgroups_testkit.waits import wait_until

#: Longer than the timeout of a transaction. A broker aborts expired transactions every second in campaigns.
FREEZE_S = 25.0
#: Longer than ``max.poll.interval.ms``, which is also the lease of a batch.
LONG_FREEZE_S = 70.0
#: A fault at a random time is injected at most this long after the last one.
MAX_DELAY_S = 5.0
#: A process that the query ends earlier was not frozen.
_MIN_FROZEN_S = 1.0
_POLL_S = 0.2
#: The time between two kills of workers that make batches fail. A batch begins within this time.
FAILURE_S = 3.0
#: The words of a command line by the part of the query.
_DRIVER = "org.apache.spark.deploy.SparkSubmit"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_SOURCE = "python_streaming_source_runner"
_WORKERS = "pyspark.daemon"
#: The parts of a query that a freeze can select.
PARTS = ("source", "worker", "executor", "driver")


def runs(process: psutil.Process, program: str) -> bool:
    """Whether a program is a part of the command line of a process."""
    with suppress(psutil.Error):
        return any(program in word for word in process.cmdline())
    return False


def is_stopped(process: psutil.Process) -> bool:
    """Whether a process is in the state T."""
    with suppress(psutil.Error):
        return bool(process.status() == psutil.STATUS_STOPPED)
    return False


def freeze(process: psutil.Process, seconds: float, meanwhile: Callable[[], object]) -> float:
    """Stops a process with SIGSTOP, and continues it.

    Args:
        process: the process.
        seconds: the duration. It is shorter if another process ends this one.
        meanwhile: called several times in a second.

    Returns:
        How long the process was in the state T, in seconds.

    Raises:
        AssertionError: if the process is not in the state T for a second.
    """
    process.suspend()
    try:
        wait_until(
            lambda: is_stopped(process) or not process.is_running(), f"process {process.pid} is stopped", 10, 0.01
        )
        began_s = time.monotonic()
        while is_stopped(process) and time.monotonic() - began_s < seconds:
            meanwhile()
            time.sleep(_POLL_S)
        took_s = time.monotonic() - began_s
        assert took_s >= _MIN_FROZEN_S, f"process {process.pid} was in the state T for {took_s:.1f} s only"
        return took_s
    finally:
        with suppress(psutil.NoSuchProcess):
            process.resume()


class SingleProcesses:
    """Selects and freezes single processes of queries.

    Args:
        see_to_all: starts the members that are not running.
        seed: the seed of random times, members and processes.
    """

    def __init__(self, see_to_all: Callable[[], object], seed: int) -> None:
        self._see_to_all, self._seed = see_to_all, seed
        self._n, self._next_failure_s = 0, 0.0
        #: How long each frozen process was in the state T, in seconds, by the fault.
        self.frozen_s: dict[str, list[float]] = {}

    def choose(self, members: list[CampaignMember], fault: str) -> tuple[CampaignMember, int]:
        """Waits for a random time, and chooses a member and one of its processes.

        The process is a Python worker for faults of workers, and the driver for all other faults.
        """
        self._n += 1
        random_ = random.Random(f"at-random {self._seed} {self._n}")
        until_s = time.monotonic() + random_.uniform(0, MAX_DELAY_S)
        wait_until(lambda: self._see_to_all() and time.monotonic() >= until_s, "a random time")
        member = random_.choice(members)
        if fault in ("source", "executor"):
            self._wait_for(fault, member)
        if fault not in ("worker", "freeze-worker"):
            return member, member.processes()[0].pid
        return member, random_.choice(self._wait_for("worker", member)).pid

    def fail_batches(self, members: Sequence[CampaignMember]) -> None:
        """Kills a Python worker of each member, at most once in :data:`FAILURE_S`, so that its batch fails."""
        if time.monotonic() < self._next_failure_s:
            return
        self._next_failure_s = time.monotonic() + FAILURE_S
        for member in members:
            with suppress(psutil.NoSuchProcess):
                for process in processes_of("worker", member.processes())[:1]:
                    process.kill()

    def freeze(self, part: str, pid: int, member: CampaignMember, release: Callable[[], object]) -> None:
        """Freezes one process of a query.

        Args:
            part: one of :data:`PARTS`; ``poll`` for the JVM of the driver, longer than the time between two polls.
            pid: the process at the point. It is the frozen one if the part is ``worker``.
            member: its member.
            release: lets the process at the point continue, when the other one is frozen.
        """
        if part == "worker":
            process = psutil.Process(pid)
        else:
            process = self._wait_for("driver" if part == "poll" else part, member)[0]

        def meanwhile() -> None:
            release()
            self._see_to_all()

        took_s = freeze(process, LONG_FREEZE_S if part == "poll" else FREEZE_S, meanwhile)
        self.frozen_s.setdefault(f"freeze-{part}", []).append(took_s)

    def _wait_for(self, part: str, member: CampaignMember) -> list[psutil.Process]:
        found: list[psutil.Process] = []

        def exists() -> bool:
            self._see_to_all()
            with suppress(psutil.NoSuchProcess):
                found[:] = processes_of(part, member.processes())
            return bool(found)

        wait_until(exists, f"{member.name} has a process of its {part}")
        return found


def processes_of(part: str, processes: list[psutil.Process]) -> list[psutil.Process]:
    """The processes of a part of a query.

    Args:
        part: one of :data:`PARTS`.
        processes: all processes of the query.
    """
    if part == "worker":
        # The parent of the workers runs the same program.
        workers = [it for it in processes if runs(it, _WORKERS)]
        pids = {it.pid for it in workers}
        return [it for it in workers if _parent_pid(it) in pids]
    program = {"source": _SOURCE, "executor": _EXECUTOR, "driver": _DRIVER}[part]
    # ``spark-submit`` and the worker of an executor can have the program in their own command lines.
    return [it for it in processes if runs(it, program) and not runs(it, "bash")]


def _parent_pid(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.ppid())
    return 0
