"""The loop of a worker: it follows the topic of its instance, renews its lease, and starts and stops replicas.

Called by ``streamgroups worker run`` in the main thread, which receives signals. Source: SEMANTICS P2;
:mod:`streamgroups.instances.worker`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from streamgroups.errors import DataLoss, FencedMember, LoginRejected, StreamGroupsError
from streamgroups.instances.entries import Definition, Entry, Observation, Placement, Progress, Removed, Replica, Worker
from streamgroups.instances.leases import HEARTBEATS_PER_LEASE, Lease
from streamgroups.instances.ports import EntryReader, EntryWriter
from streamgroups.instances.worker import Run, decide
from streamgroups_kafka.client.clock import awake_ms, now_ms
from streamgroups_spark.workers.entry_queue import EntryQueue

logger = logging.getLogger(__name__)

#: The longest delay in the handling of a signal.
_POLL_S = 0.2
#: How often the progress of queries is written.
_PROGRESS_MS = 5_000


class RunningReplica(Protocol):
    """A replica that runs: :class:`~streamgroups_spark.workers.replica_run.ReplicaRun`."""

    @property
    def placement(self) -> Placement: ...
    @property
    def is_stopping(self) -> bool: ...
    @property
    def has_ended(self) -> bool: ...
    @property
    def has_lost_spark(self) -> bool: ...
    def stop(self, reason: str) -> None: ...
    def join(self, timeout_s: float) -> bool: ...
    def observation(self) -> Observation: ...
    def progress(self) -> Progress | None: ...


@dataclass
class WorkerProcess:
    """A worker of an instance.

    Args:
        worker: its lease before the first heartbeat.
        reader: reads the topic. The caller has read it to its end, and closes it.
        writer: writes to the topic.
        start: starts a replica. It does not call the JVM: the replica does, and has its errors.
        must_end: whether a signal has requested the end.
        end_timeout_s: how long the end waits for queries, in seconds.
    """

    worker: Worker
    reader: EntryReader
    writer: EntryWriter
    start: Callable[[Placement, Definition], RunningReplica]
    must_end: Callable[[], bool]
    end_timeout_s: float = 60.0
    clock: Callable[[], int] = awake_ms

    def __post_init__(self) -> None:
        self._runs: dict[Replica, RunningReplica] = {}
        self._written: dict[Replica, Observation] = {}
        self._progress: Mapping[Replica, Progress | None] = {}
        self._finished: set[int] = set()
        self._is_removed = self._is_lost = False
        self._failure: LoginRejected | DataLoss | None = None
        self._next_heartbeat_ms = self.clock()
        self._queue = EntryQueue(self.writer, Lease(self.worker.lease_ms, self.clock()), self.clock)
        self._progress_reader = threading.Thread(target=self._read_progress, name="progress of processors", daemon=True)
        self._has_ended = threading.Event()

    def run(self) -> str:
        """Runs until the worker is requested to end.

        Returns:
            The reason of the end.

        Raises:
            FencedMember: if the manager has declared this worker dead. Its processors run elsewhere.
            LoginRejected: if all brokers reject the login of this worker for longer than its lease.
            DataLoss: if the topic was recreated or truncated.
            StreamGroupsError: if Spark's JVM has ended.
        """
        self._progress_reader.start()
        try:
            while (reason := self._reason_to_end()) is None:
                self._step()
        except Exception as e:
            # Its queries stop, and its lease is removed, so its processors start elsewhere at once.
            try:
                self._end(f"an unknown error, {type(e).__name__}: {e}")
            except Exception as at_end:
                # It is not the cause, or the same error again.
                logger.warning("The end of the worker failed: %s", at_end)
            raise
        finally:
            self._has_ended.set()
        self._end(reason)
        return reason

    def _step(self) -> None:
        is_valid = self._is_lease_valid()
        self._act(None if is_valid else "the lease of the worker has expired")
        try:
            if is_valid:
                self._follow(self.reader.poll(_POLL_S))
            else:
                # The manager may have declared this worker dead, and this is in the topic.
                self._follow(self.reader.read_to_end(self.worker.lease_ms / 1_000))
        except StreamGroupsError as e:
            if isinstance(e, DataLoss) or (isinstance(e, LoginRejected) and not is_valid):
                # After a rejected login its processors have stopped. The next worker has another password.
                self._failure = e
            logger.warning("The topic of the instance cannot be read, and is read again: %s", e)
            time.sleep(_POLL_S)
        else:
            # The process can have been frozen in the poll.
            if not is_valid or self._is_lease_valid():
                self._renew()
        self._observe()

    def _is_lease_valid(self) -> bool:
        return self._queue.lease.is_valid(self.clock())

    @property
    def _has_lost_topic(self) -> bool:
        """Whether the topic is that of another manager, which has neither this worker nor its placements."""
        return isinstance(self._failure, DataLoss)

    def _follow(self, entries: list[Entry]) -> None:
        if Removed("worker", self.worker.id) in entries:
            self._is_removed = True
        for entry in entries:
            if isinstance(entry, Observation) and entry.placement != self._placement(entry.placement.replica):
                # An earlier worker of this replica has replaced its state.
                self._written.pop(entry.placement.replica, None)

    def _placement(self, replica: Replica) -> Placement | None:
        return self._runs[replica].placement if replica in self._runs else None

    def _renew(self) -> None:
        now = self.clock()
        if self._is_removed or self._has_lost_topic or now < self._next_heartbeat_ms:
            return
        self._next_heartbeat_ms = now + self.worker.lease_ms // HEARTBEATS_PER_LEASE
        self.worker = replace(self.worker, heartbeat=self.worker.heartbeat + 1, at_ms=now_ms())
        self._queue.put(self.worker)

    def _observe(self) -> None:
        """Writes the states that have changed, and removes the replicas that have ended."""
        for replica, run in list(self._runs.items()):
            # In this order: a query that ends in between has its last state in the next call.
            has_ended, seen = run.has_ended, run.observation()
            shown = replace(seen, progress=None if seen.state.has_ended else self._progress.get(replica))
            is_outdated = self._has_lost_topic or self.reader.state.is_outdated(run.placement)
            if self._written.get(replica) != shown and not run.has_lost_spark and not is_outdated:
                self._written[replica] = shown
                self._queue.put(shown)
            if has_ended:
                if seen.error is not None:
                    logger.error("Processor %s has failed: %s", replica, seen.error)
                if seen.state.is_final:
                    self._finished.add(run.placement.number)
                self._is_lost |= run.has_lost_spark
                del self._runs[replica]
                self._written.pop(replica, None)

    def _act(self, must_stop: str | None) -> None:
        runs = {replica: Run(run.placement, run.is_stopping) for replica, run in self._runs.items()}
        decided = decide(
            self.reader.state, self.worker.id, self.worker.slots, runs, ended=self._finished, must_stop=must_stop
        )
        for replica, reason in decided.stop.items():
            self._runs[replica].stop(reason)
        for placement in decided.start:
            definition = self.reader.state.definitions[placement.replica.processor]
            logger.info("Processor %s starts with placement %d.", placement.replica, placement.number)
            self._runs[placement.replica] = self.start(placement, definition)

    def _reason_to_end(self) -> str | None:
        if self._is_lost:
            return "Spark's JVM has ended"
        if self._failure is not None:
            return "its topic was recreated or truncated" if self._has_lost_topic else "the brokers reject its login"
        if self.must_end():
            return "it was requested to end"
        if self._is_removed:
            return "the manager has declared it dead"
        release = self.reader.state.releases.get(self.worker.id)
        return None if release is None else release.reason

    def _end(self, reason: str) -> None:
        """Stops all replicas, writes their last states, and removes the lease."""
        logger.info("Worker %s ends: %s.", self.worker.id, reason)
        self._act(f"its worker ends: {reason}")
        if self._is_removed or self._has_lost_topic:
            # A heartbeat can have renewed the lease, in a pause or in the new topic: nothing must be placed here.
            self._queue.put(Removed("worker", self.worker.id))
        until_s = time.monotonic() + self.end_timeout_s
        while self._runs and time.monotonic() < until_s:
            for run in list(self._runs.values()):
                run.join(_POLL_S)
            self._keep_lease()
            self._observe()
        for replica in self._runs:
            logger.error("Processor %s did not stop in %g s.", replica, self.end_timeout_s)
        self._queue.put(Removed("worker", self.worker.id))
        if not self._queue.close(self.worker.lease_ms / 1_000):
            logger.warning("The end of the worker is not written. Its lease expires.")
        if self._failure is not None:
            raise self._failure
        if self._is_lost:
            raise StreamGroupsError("Spark's JVM has ended.", remedy="See its log. The manager starts another worker.")
        if self._is_removed:
            raise FencedMember(
                f"The manager has declared the worker '{self.worker.id}' dead: it had no heartbeat for longer than its lease.",
                remedy="Its processors run on other workers. If the process was overloaded, use fewer slots.",
            )

    def _keep_lease(self) -> None:
        """Renews the lease while queries are being stopped, so that none of them starts elsewhere before."""
        if self._is_lease_valid():
            self._renew()

    def _read_progress(self) -> None:
        while not self._has_ended.wait(_PROGRESS_MS / 1_000):
            found: dict[Replica, Progress | None] = {}
            for replica, run in list(self._runs.items()):
                try:
                    found[replica] = run.progress()
                except Exception as e:
                    # The query has ended meanwhile, or the JVM.
                    logger.debug("The progress of %s cannot be read: %s", replica, e)
            self._progress = found
