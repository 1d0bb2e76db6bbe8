"""P2: the loop of a worker, with a topic in memory and replicas that run no query."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from streamgroups.errors import BrokerUnreachable, DataLoss, FencedMember, LoginRejected
from streamgroups.fakes import FakeClock
from streamgroups.fakes.instance_log import FakeEntryReader, FakeInstanceLog
from streamgroups.instances.entries import (
    Definition,
    Desired,
    Entry,
    Observation,
    Observed,
    Placement,
    Progress,
    Release,
    Removed,
    Replica,
    Worker,
)
from streamgroups.instances.entry_json import read_entry
from streamgroups.instances.leases import Lease
from streamgroups_spark.workers.entry_queue import EntryQueue
from streamgroups_spark.workers.worker_process import WorkerProcess
from streamgroups_testkit.waits import wait_until

LATE = Replica("late", 0)
PLACED = Placement(LATE, "w1", 7, 1)
START: tuple[Entry, ...] = (Definition("late", '{"name":"late"}'), Desired("late", True, 1), PLACED)


@dataclass
class Query:
    """A replica that ends when it is stopped, or when the test ends it."""

    placement: Placement
    definition: Definition
    state: Observed = Observed.RUNNING
    is_stopping: bool = False
    has_lost_spark: bool = False
    stops_at_once: bool = True

    @property
    def has_ended(self) -> bool:
        return self.state.has_ended

    def stop(self, reason: str) -> None:
        assert reason
        self.is_stopping = True
        if self.stops_at_once:
            self.state = Observed.STOPPED

    def join(self, timeout_s: float) -> bool:
        return timeout_s >= 0

    def observation(self) -> Observation:
        error = "Records are gone." if self.state is Observed.FAILED else None
        return Observation(self.placement, self.state, 0, self.definition.revision, error=error)

    def progress(self) -> Progress | None:
        return None


@dataclass
class Writer:
    """A writer whose broker can be unreachable."""

    log: FakeInstanceLog
    is_reachable: bool = True

    def write(self, entries: Sequence[Entry]) -> None:
        if not self.is_reachable:
            raise BrokerUnreachable("No broker responded.")
        self.log.writer().write(entries)

    def close(self) -> None: ...


@dataclass
class Process:
    """A worker that runs in a thread."""

    log: FakeInstanceLog = field(default_factory=FakeInstanceLog)
    clock: FakeClock = field(default_factory=lambda: FakeClock(1_000_000))
    queries: list[Query] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    reason: str = ""
    start_error: Exception | None = None

    def __post_init__(self) -> None:
        self.writer = Writer(self.log)
        self.log.writer().write(START)

    @contextmanager
    def running(self) -> Iterator[None]:
        process = WorkerProcess(
            Worker("w1", 2, 0, 0, 0, 6_000),
            self.log.reader(),
            self.writer,
            self._start,
            self.stop.is_set,
            clock=self.clock,
        )

        def run() -> None:
            try:
                self.reason = process.run()
            except Exception as e:
                self.error = e

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            self.stop.set()
            thread.join(30)
            assert not thread.is_alive()

    def _start(self, placement: Placement, definition: Definition) -> Query:
        if self.start_error is not None:
            raise self.start_error
        self.queries.append(Query(placement, definition))
        return self.queries[-1]

    def entries(self) -> list[Entry]:
        return [read_entry(*it) for it in list(self.log.records)]

    def write(self, *entries: Entry) -> None:
        self.log.writer().write(entries)

    def wait(self, condition: Callable[[], object], what: str) -> None:
        wait_until(condition, what, 30, 0.01)

    def states(self) -> list[Observed]:
        return [it.state for it in self.entries() if isinstance(it, Observation)]


def test_P2_a_worker_runs_its_placements_and_ends_in_an_orderly_way() -> None:
    process = Process()
    with process.running():
        process.wait(lambda: Observed.RUNNING in process.states(), "it runs")
    assert process.reason == "it was requested to end"
    assert process.states() == [Observed.RUNNING, Observed.STOPPED]
    assert process.entries()[-1] == Removed("worker", "w1")
    assert any(isinstance(it, Worker) for it in process.entries())


@pytest.mark.parametrize("entry", [Removed("placement", LATE), Desired("late", False, 1)])
def test_a_removed_placement_stops(entry: Entry) -> None:
    process = Process()
    with process.running():
        process.wait(lambda: process.queries, "it runs")
        process.write(entry)
        process.wait(lambda: Observed.STOPPED in process.states(), "it stops")
    assert len(process.queries) == 1


def test_an_outdated_placement_stops_and_does_not_replace_the_state_of_the_next_one() -> None:
    process = Process()
    elsewhere = replace(PLACED, worker="w2", number=8)
    with process.running():
        process.wait(lambda: Observed.RUNNING in process.states(), "it runs")
        process.log.records += records_of(elsewhere, Observation(elsewhere, Observed.RUNNING, 0))
        process.wait(lambda: process.queries[0].is_stopping, "it stops")
    assert len(process.queries) == 1
    assert Observed.STOPPED not in process.states()


def test_a_state_that_an_earlier_worker_has_replaced_is_written_again() -> None:
    process = Process()
    with process.running():
        process.wait(lambda: Observed.RUNNING in process.states(), "it runs")
        process.write(Observation(replace(PLACED, worker="w0", number=6), Observed.STOPPED, 0))
        process.wait(lambda: process.states()[-1:] == [Observed.RUNNING], "it is written again")


def test_a_worker_without_a_lease_stops_its_queries_and_starts_them_again() -> None:
    process = Process()
    with process.running():
        process.wait(lambda: Observed.RUNNING in process.states(), "it runs")
        process.writer.is_reachable = False
        process.clock.advance(3_000)
        assert not process.queries[0].is_stopping
        process.clock.advance(6_000)
        process.wait(lambda: process.queries[0].is_stopping, "it stops")
        process.writer.is_reachable = True
        process.wait(lambda: len(process.queries) == 2, "it runs again")


def test_a_worker_whose_login_is_rejected_ends_after_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its processors have stopped, and another worker reads the new password."""
    process = Process()
    reader = process.log.reader()
    monkeypatch.setattr(process.log, "reader", lambda: reader)

    def rejected(_: float) -> list[Entry]:
        raise LoginRejected("Topic 'board' could not be read: authentication failed.")

    with process.running():
        process.wait(lambda: Observed.RUNNING in process.states(), "it runs")
        process.writer.is_reachable = False
        monkeypatch.setattr(reader, "poll", rejected)
        monkeypatch.setattr(reader, "read_to_end", rejected)
        process.clock.advance(3_000)
        assert not process.queries[0].is_stopping
        process.clock.advance(6_000)
        process.wait(lambda: process.error, "it ends")
    assert process.queries[0].is_stopping
    assert isinstance(process.error, LoginRejected)


def test_P2_a_worker_whose_topic_was_recreated_ends_and_writes_only_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new topic is that of another manager, which has neither the worker nor its placements."""
    process = Process()
    reader = process.log.reader()
    monkeypatch.setattr(process.log, "reader", lambda: reader)

    def lost(_: float) -> list[Entry]:
        raise DataLoss("The entries are not in topic 'board' any more.")

    with process.running():
        process.wait(lambda: Observed.RUNNING in process.states(), "it runs")
        process.queries[0].stops_at_once = False
        process.log.records.clear()
        monkeypatch.setattr(reader, "poll", lost)
        process.wait(lambda: process.queries[0].is_stopping, "it stops")
        process.clock.advance(3_000)
        process.queries[0].state = Observed.STOPPED
    assert isinstance(process.error, DataLoss)
    assert set(process.entries()) <= {Removed("worker", "w1")}
    assert process.entries()


def test_a_worker_that_was_declared_dead_in_a_pause_writes_no_heartbeat() -> None:
    process = Process()
    with process.running():
        process.wait(lambda: Observed.RUNNING in process.states(), "it runs")
        # The manager writes while the process is frozen. The clock is that of the end of the pause.
        process.log.records += records_of(Removed("worker", "w1"), replace(PLACED, worker="w2", number=8))
        process.clock.advance(60_000)
        process.wait(lambda: process.error, "it ends")
    assert isinstance(process.error, FencedMember)
    assert process.queries[0].is_stopping
    later = process.entries()[process.entries().index(Removed("worker", "w1")) :]
    assert not any(isinstance(it, Worker) for it in later)


def test_a_worker_that_was_declared_dead_is_no_place_for_a_processor_while_its_queries_stop() -> None:
    process = Process()
    with process.running():
        process.wait(lambda: Observed.RUNNING in process.states(), "it runs")
        process.queries[0].stops_at_once = False
        # A heartbeat that was on its way reaches the topic after the decision of the manager.
        process.log.records += records_of(Removed("worker", "w1"), Worker("w1", 2, 0, 7, 0, 6_000))
        process.clock.advance(60_000)
        process.wait(lambda: process.queries[0].is_stopping, "it stops")
        process.wait(lambda: process.entries().count(Removed("worker", "w1")) == 2, "its lease is removed")
        process.queries[0].state = Observed.STOPPED


def records_of(*entries: Entry) -> list[tuple[bytes | None, bytes | None]]:
    log = FakeInstanceLog()
    log.writer().write(entries)
    return log.records


def test_a_failed_processor_is_reported_once_and_not_started_again() -> None:
    process = Process()
    with process.running():
        process.wait(lambda: Observed.RUNNING in process.states(), "it runs")
        process.queries[0].state = Observed.FAILED
        process.wait(lambda: Observed.FAILED in process.states(), "it has failed")
        process.write(Desired("late", True, 2), replace(PLACED, number=9, request=2))
        process.wait(lambda: len(process.queries) == 2, "the next request starts it")
    assert process.states().count(Observed.FAILED) == 1


def test_the_end_of_spark_is_no_failure_of_a_processor() -> None:
    process = Process()
    with process.running():
        process.wait(lambda: Observed.RUNNING in process.states(), "it runs")
        process.queries[0].has_lost_spark, process.queries[0].state = True, Observed.FAILED
        process.wait(lambda: process.error, "it ends")
    assert "JVM" in str(process.error)
    assert Observed.FAILED not in process.states()
    assert process.entries()[-1] == Removed("worker", "w1")


def test_P2_an_unknown_error_ends_a_worker_in_an_orderly_way() -> None:
    """Its other replicas stop, and the manager need not wait for the end of its lease."""
    process = Process()
    with process.running():
        process.wait(lambda: Observed.RUNNING in process.states(), "it runs")
        process.start_error = RuntimeError("can't start new thread")
        process.write(
            Definition("early", '{"name":"early"}'),
            Desired("early", True, 1),
            replace(PLACED, replica=Replica("early", 0), number=8),
        )
        process.wait(lambda: process.error, "it ends")
    assert process.error is process.start_error
    assert process.states() == [Observed.RUNNING, Observed.STOPPED]
    assert process.entries()[-1] == Removed("worker", "w1")


def test_a_released_worker_ends() -> None:
    process = Process()
    with process.running():
        process.write(Release("w1", "it has had no processor for 60 s"))
        process.wait(lambda: process.reason, "it ends")
    assert process.reason == "it has had no processor for 60 s"


def test_only_heartbeats_renew_a_lease() -> None:
    log, clock = FakeInstanceLog(), FakeClock(1_000)
    queue = EntryQueue(log.writer(), Lease(6_000, 1_000), clock)
    clock.advance(1_000)
    queue.put(Desired("late", True, 1))
    wait_until(lambda: log.records, "it is written", 30, 0.01)
    queue.put(Worker("w1", 2, 0, 1, 0, 6_000))
    wait_until(lambda: queue.lease.renewed_ms == 2_000, "it is renewed", 30, 0.01)
    assert queue.close(10)


def test_the_last_state_of_each_replica_survives_an_outage() -> None:
    log = FakeInstanceLog()
    writer = Writer(log, is_reachable=False)
    queue = EntryQueue(writer, Lease(6_000, 0), FakeClock(0))
    for number in range(1, 4):
        queue.put(Desired("late", True, number))
    writer.is_reachable = True
    assert queue.close(30)
    reader = log.reader()
    reader.read_to_end(1)
    assert reader.state.desired["late"].request == 3


@dataclass
class _FailingWriter(Writer):
    """A writer whose first write fails after further entries were queued."""

    began: threading.Event = field(default_factory=threading.Event)
    may_fail: threading.Event = field(default_factory=threading.Event)

    def write(self, entries: Sequence[Entry]) -> None:
        if not self.began.is_set():
            self.began.set()
            assert self.may_fail.wait(30)
            raise BrokerUnreachable("No broker responded.")
        super().write(entries)


def test_P2_after_an_outage_the_last_entry_is_written_last() -> None:
    """The removal of a worker replaces its heartbeat. A state after it would be one of a worker that does not exist."""
    writer = _FailingWriter(FakeInstanceLog())
    queue = EntryQueue(writer, Lease(6_000, 0), FakeClock(0))
    queue.put(Worker("w1", 2, 0, 1, 0, 6_000), Desired("late", True, 1), Observation(PLACED, Observed.STOPPING, 0))
    assert writer.began.wait(30)
    queue.put(Observation(PLACED, Observed.COMPLETED, 0), Removed("worker", "w1"))
    writer.may_fail.set()
    wait_until(lambda: writer.log.records, "the entries are written", 30, 0.01)
    assert queue.close(30)
    assert [read_entry(*it) for it in writer.log.records] == [
        Desired("late", True, 1),
        Observation(PLACED, Observed.COMPLETED, 0),
        Removed("worker", "w1"),
    ]


@dataclass
class _BrokenWriter(Writer):
    """A writer whose first write raises an error of the client that has no meaning in this library."""

    has_failed: bool = False

    def write(self, entries: Sequence[Entry]) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise RuntimeError("unexpected")
        super().write(entries)


def test_P2_an_unknown_error_does_not_end_the_heartbeats(caplog: pytest.LogCaptureFixture) -> None:
    writer = _BrokenWriter(FakeInstanceLog())
    queue = EntryQueue(writer, Lease(6_000, 0), FakeClock(1_000))
    queue.put(Worker("w1", 2, 0, 1, 0, 6_000))
    wait_until(lambda: queue.lease.renewed_ms == 1_000, "it is renewed", 10, 0.01)
    assert queue.close(30)
    (failure,) = [it for it in caplog.records if it.exc_info is not None]
    assert "cannot renew its lease, and tries again: unexpected" in failure.getMessage()


@dataclass
class _SlowWriter(Writer):
    """A writer whose broker takes 5 s."""

    clock: FakeClock = field(default_factory=lambda: FakeClock(1_000))

    def write(self, entries: Sequence[Entry]) -> None:
        super().write(entries)
        self.clock.advance(5_000)


def test_a_lease_counts_from_the_moment_before_its_heartbeat() -> None:
    writer = _SlowWriter(FakeInstanceLog())
    queue = EntryQueue(writer, Lease(6_000, 0), writer.clock)
    queue.put(Worker("w1", 2, 0, 1, 0, 6_000))
    assert queue.close(30)
    assert queue.lease == Lease(6_000, 1_000)


class _FrozenReader(FakeEntryReader):
    """The process is frozen at the end of a poll, after its first heartbeat. Meanwhile the manager declares it dead."""

    clock: FakeClock
    is_over = False

    def poll(self, timeout_s: float) -> list[Entry]:
        found = super().poll(timeout_s)
        if "w1" in self.state.workers and not self.is_over:
            self.is_over = True
            self.clock.advance(60_000)
            self.log.writer().write([Removed("worker", "w1")])
        return found


def test_a_worker_that_was_frozen_in_a_poll_reads_the_topic_before_its_next_heartbeat() -> None:
    log, clock = FakeInstanceLog(), FakeClock(1_000_000)
    reader = _FrozenReader(log)
    reader.clock = clock
    worker = Worker("w1", 2, 0, 0, 0, 6_000)
    process = WorkerProcess(worker, reader, Writer(log), Query, lambda: False, clock=clock)
    with pytest.raises(FencedMember):
        process.run()
    assert process.worker.heartbeat == 1
