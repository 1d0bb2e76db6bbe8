"""The checker reads histories of the real planning of batches and of real ledgers, on the models of Kafka and Spark in memory.

Queries of one group are killed, fenced and restarted at random (``exactly_once_model``). With the real commit no history has an
anomaly. Without a safeguard some history has one, with its name.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from integration_tests.history.anomalies import Report
from integration_tests.history.checker import check
from integration_tests.history.events import (
    Acknowledged,
    Assigned,
    Commit,
    Event,
    HighWater,
    Position,
    Read,
    Workload,
    Written,
    name_of,
)
from integration_tests.history.members import converted
from streamgroups.errors import StreamGroupsError
from streamgroups.partitions import TopicPartition
from streamgroups_spark.sinks.batch_info import BatchInfo
from unit_tests.exactly_once_model import (
    PARTITIONS,
    SHARED,
    ByBatchId,
    Method,
    Output,
    Process,
    Query,
    WithLedger,
    WithoutFencing,
    WithoutLedger,
    World,
)
from unit_tests.examples import sequences

GROUP = "airline"
N_HISTORIES, N_STEPS = sequences(60), 60


class RecordedWorld(World):
    """Records its events in a history. The time of an event is its number.

    Args:
        method: how batches are committed.
    """

    def __init__(self, method: Method) -> None:
        self.events: list[Event] = []
        #: The processes of the group so far, and how many events of each are in the history.
        self.recorded: dict[Process, int] = {}
        super().__init__(method, SHARED)
        names = map(name_of, (Acknowledged, Assigned, Commit, HighWater, Position, Read, Written))
        self.events.append(
            Workload(0, "injector", GROUP, PARTITIONS[0].topic, True, False, None, 100_000, tuple(names))
        )

    @property
    def now_ms(self) -> int:
        """The time of the next event."""
        return len(self.events)

    def produce(self, partition: TopicPartition, count: int, gap: int) -> None:
        super().produce(partition, count, gap)
        offsets = tuple(self.records[partition][-count:])
        self.events.append(Acknowledged(self.now_ms, "producer", partition, offsets, offsets))

    def new_process(self, query: Query, name: str) -> Process:
        process = RecordedProcess(self, query, name)
        self.recorded[process] = 0
        return process

    def flush(self) -> None:
        """Adds the events of the members."""
        for process, n in self.recorded.items():
            new = process.spark.history.events[n:]
            self.recorded[process] += len(new)
            for it in converted(new):
                self.events.append(_at(it, self.now_ms))

    def observe(self) -> None:
        """An observer reads the committed offsets, and then the output."""
        self.flush()
        self.events.append(Position(self.now_ms, "observer", GROUP, self.committed))
        high = {p: max(self.written(p), default=-1) + 1 for p in PARTITIONS}
        self.events.append(HighWater(self.now_ms, "observer", high))

    def report(self) -> Report:
        """All processes continue until the input is read, zombies first. Checks the history."""
        for process in [it for it in self.processes if not it.is_in_group]:
            for _ in range(9):
                if process in self.processes:
                    process.step()
        self.observe()
        for _ in range(200):
            self.step_all()
            self.observe()
            if all(self.committed.get(p, 0) == end for p, end in self.ends.items()):
                break
        for p in PARTITIONS:
            self.events.append(Written(self.now_ms, "reader", "output", p, tuple(self.written(p))))
        return check(self.events)


def _at(event: Event, time_ms: int) -> Event:
    values = {name: getattr(event, name) for name in event.__dataclass_fields__}  # type: ignore[attr-defined]
    return type(event)(**{**values, "time_ms": time_ms})


class RecordedProcess(Process):
    """A process that records its commits."""

    world: RecordedWorld

    def write(self) -> None:
        self.world.flush()
        outer = self.world.method
        self.world.method = RecordedMethod(self.world, self.name, outer)
        try:
            super().write()
        finally:
            self.world.method = outer


class RecordedMethod:
    """Records the commits of another method, for one process."""

    has_ledger = False

    def __init__(self, world: RecordedWorld, process: str, method: Method) -> None:
        self._world, self._process, self._method = world, process, method

    def commit(self, world: World, batch: BatchInfo, output: Output) -> None:
        offsets, n_written = {r.topic_partition: r.end_offset for r in batch.ranges}, len(world.sink.written)
        self._record(offsets, "begun")
        try:
            self._method.commit(world, batch, output)
        except StreamGroupsError:
            self._record(offsets, "rejected")
            raise
        self._record(offsets, "accepted" if len(world.sink.written) > n_written else "unchanged")

    def _record(self, offsets: dict[TopicPartition, int], phase: str) -> None:
        events = self._world.events
        events.append(Commit(self._world.now_ms, self._process, GROUP, None, offsets, phase))


def _report(method: Method, seed: int) -> Report:
    world, choose = RecordedWorld(method), random.Random(seed)
    world.produce(PARTITIONS[0], 4, 0)
    for _ in range(N_STEPS):
        action, process = choose.random(), choose.choice(world.processes) if world.processes else None
        if action < 0.2:
            world.produce(choose.choice(PARTITIONS), choose.randint(1, 6), choose.randint(0, 2))
        elif action < 0.35 and len(world.processes) < 4:
            query = choose.choice(world.queries)
            if choose.random() < 0.3:
                query.forget()
            world.start(query)
        elif process is not None and action < 0.42:
            world.kill(process)
        elif process is not None and action < 0.5:
            world.fence(process)
        elif process is not None and action < 0.85:
            process.step()
        else:
            world.settle()
        world.observe()
    return world.report()


@pytest.mark.parametrize("part", range(4))
def test_the_real_commit_leaves_no_anomaly(part: int) -> None:
    for seed in range(part, N_HISTORIES, 4):
        report = _report(WithLedger(), seed)
        assert report.holds, f"seed {seed}: {report}"
        assert report.undecided.keys() == {"I9", "I10", "S10"}


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (WithoutFencing(), {"duplicate", "split ownership"}),
        (WithoutLedger(), {"duplicate"}),
        (ByBatchId(), {"lost write", "position ahead of output", "duplicate"}),
    ],
)
def test_a_method_without_a_safeguard_leaves_its_anomalies(method: Method, expected: set[str]) -> None:
    found = Counter[str]()
    for seed in range(N_HISTORIES):
        found.update(_report(method, seed).counts.keys())
    assert expected <= found.keys(), found
