"""The checker reads histories of the real planning of batches and of real ledgers, on the models of Kafka and Spark in memory.

Queries of one group are killed, fenced and restarted at random (``exactly_once_model``). With the real commit no history has an
anomaly. Without a safeguard some history has one, with its name.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias
from unittest.mock import patch

import pytest

from integration_tests.history import recorder
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
from streamgroups_kafka.transactions.coordinator import Transactions
from streamgroups_spark.sinks.batch_info import BatchInfo
from unit_tests.campaign.test_sabotages import SABOTAGES
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
from unit_tests.streamgroups_kafka.test_transaction_fences import KafkaWorld

Wrapper: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

GROUP = "airline"
N_HISTORIES, N_STEPS = sequences(60), 60


class Recorded(World):
    """Records its events in a history. The time of an event is its number."""

    #: The process that writes now.
    current = ""

    def begin(self, *, is_atomic: bool) -> None:
        """Begins the history."""
        #: The processes of the group so far, and how many events of each are in the history.
        self.recorded: dict[Process, int] = {}
        names = tuple(map(name_of, (Acknowledged, Assigned, Commit, HighWater, Position, Read, Written)))
        topic = PARTITIONS[0].topic
        self.events: list[Event] = [
            Workload(0, "injector", GROUP, topic, True, is_atomic, None, 100_000, names),
        ]

    @property
    def now_ms(self) -> int:
        """The time of the next event."""
        return len(self.events)

    def produce(self, partition: TopicPartition, count: int, gap: int) -> None:
        super().produce(partition, count, gap)
        offsets = tuple(self.records[partition][-count:])
        self.events.append(Acknowledged(self.now_ms, "producer", partition, offsets, offsets))

    def new_process(self, query: Query, name: str) -> Process:
        process = super().new_process(query, name)
        self.recorded[process] = 0
        write = process.write

        def recorded() -> None:
            self.flush()
            self.current = name
            write()

        process.write = recorded  # type: ignore[method-assign]
        return process

    def record(self, event_class: type[Event], *content: object) -> None:
        """Stores an event of the current process, as ``history.recorder`` does."""
        self.events.append(event_class(self.now_ms, self.current, *content))  # type: ignore[call-arg]

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


class LedgerWorld(Recorded):
    """Queries with a ledger."""

    def __init__(self, method: Method) -> None:
        super().__init__(RecordedMethod(self, method), SHARED)
        self.begin(is_atomic=False)


class RecordedMethod:
    """Records the commits of another method."""

    def __init__(self, world: LedgerWorld, method: Method) -> None:
        self._world, self._method = world, method
        self.has_ledger = method.has_ledger  # type: ignore[misc]

    def commit(self, world: World, batch: BatchInfo, output: Output) -> None:
        content = GROUP, None, {r.topic_partition: r.end_offset for r in batch.ranges}
        n_written = len(world.sink.written)
        self._world.record(Commit, *content, "begun")
        try:
            self._method.commit(world, batch, output)
        except StreamGroupsError:
            self._world.record(Commit, *content, "rejected")
            raise
        self._world.record(Commit, *content, "accepted" if len(world.sink.written) > n_written else "unchanged")


class TransactionWorld(Recorded, KafkaWorld):
    """Queries with transactions of Kafka, on a broker in memory."""

    def __init__(self) -> None:
        KafkaWorld.__init__(self, SHARED)
        self.begin(is_atomic=True)


def _report(world: Recorded, seed: int) -> Report:
    choose = random.Random(seed)
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
        report = _report(LedgerWorld(WithLedger()), seed)
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
        found.update(_report(LedgerWorld(method), seed).counts.keys())
    assert expected <= found.keys(), found


def _report_of_transactions(seed: int, without: Wrapper = lambda it: it) -> Report:
    """The report of queries with transactions, whose coordinator is recorded as in a campaign."""
    world = TransactionWorld()
    commit_offsets = recorder.transaction_offsets(without(Transactions.commit_offsets))
    with (
        patch.object(recorder, "record", world.record),
        patch.object(Transactions, "commit_offsets", commit_offsets),
        patch.object(Transactions, "commit", recorder.transaction_end(Transactions.commit)),
    ):
        return _report(world, seed)


@pytest.mark.parametrize("part", range(4))
def test_real_transactions_leave_no_anomaly(part: int) -> None:
    for seed in range(part, N_HISTORIES, 4):
        report = _report_of_transactions(seed)
        assert report.holds, f"seed {seed}: {report}"


def test_transactions_of_any_member_leave_anomalies() -> None:
    found = Counter[str]()
    for seed in range(N_HISTORIES):
        found.update(_report_of_transactions(seed, SABOTAGES._any_member).counts.keys())
    assert {"duplicate", "split ownership"} <= found.keys(), found
