"""X2-X4: whatever happens in whatever order, output and offsets of a Kafka transaction are one, every record is there once and in order.

A group's offsets in a transaction overwrite whatever is there; Kafka compares nothing. What holds zombies off is that each transaction has an epoch of its own,
that offsets are added with the member's generation, that a batch is written only while all it read is still the member's, and that members wait for stable
offsets. The search runs what production runs: ``micro_batches``, ``kafka``, ``transactions`` and ``writer``, against a broker's rules in memory.
A story for each fence shows what happens where that one is taken out of the code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar
from unittest.mock import patch

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import invariant, precondition, rule

from streamgroups.errors import FencedMember, StreamGroupsError
from streamgroups.fakes import FakeCluster
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.transactions.coordinator import Transactions
from streamgroups_kafka.transactions.task_output import Written
from streamgroups_kafka.transactions.transaction_requests import OpenTransaction
from streamgroups_kafka.transactions.writer import TransactionWriter
from streamgroups_spark.messages.batch import BatchWritten
from streamgroups_spark.sinks import group_offsets
from streamgroups_spark.sinks import kafka as kafka_sink
from streamgroups_spark.sinks.base import TaskOutput
from streamgroups_spark.sinks.batch_info import BatchInfo, LoggedBatch
from streamgroups_spark.sinks.kafka import KafkaStreamWriter
from streamgroups_spark.sinks.sink_options import parse_sink
from unit_tests.exactly_once_model import (
    EXCLUSIVE,
    PARTITIONS,
    PICK,
    SHARED,
    Process,
    QueriesOfOneGroup,
    Query,
    World,
)
from unit_tests.examples import sequences
from unit_tests.streamgroups.query.spark_model import Settings
from unit_tests.transaction_broker import FakeTransactionBroker, Row, connected, encoded, lose_the_answer

CONFIG = ClientConfig.from_options({"bootstrap.servers": "nowhere:1"})
OPTIONS = {"kafka.bootstrap.servers": "nowhere:1", "topic": "out", "checkpointLocation": "/tmp/checkpoint"}
#: Of a batch, on the driver: what its fate can hang on.
REQUESTS = ("InitProducerId", "AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")


class _KilledError(Exception):
    """The process ends here."""


class _GroupOffsets:
    """A :class:`~unit_tests.exactly_once_model.Method` that keeps no ledger: the group's offsets are in the transaction."""

    has_ledger: ClassVar[bool] = False

    def commit(self, *_: object) -> None:
        raise AssertionError("the sink commits")


class KafkaWorld(World):
    """The topic, the group and a broker that keeps transactions."""

    def __init__(self, how: Settings) -> None:
        super().__init__(_GroupOffsets(), how)
        self.broker = FakeTransactionBroker(self.kafka.group)
        #: Whether the source does not respond to the report of its sink.
        self.loses_report = False
        #: What tasks have written, and may send again.
        self.sent: list[tuple[OpenTransaction, int, list[Row]]] = []

    def written(self, partition: TopicPartition) -> list[int]:
        return [offset for tp, offset in self.broker.visible if tp == partition]

    def new_process(self, query: Query, name: str) -> Process:
        return KafkaProcess(self, query, name)


class KafkaProcess(Process):
    """One process of a query that writes to Kafka."""

    world: KafkaWorld

    def __init__(self, world: KafkaWorld, query: Query, name: str) -> None:
        super().__init__(world, query, name)
        self._writer: _Writer | None = None
        self._messages: list[TaskOutput] | None = None

    @property
    def has_sent(self) -> bool:
        """Whether its tasks have written, and the driver has still to commit."""
        return self._messages is not None

    def write(self) -> None:
        """The next of: the transaction begins, tasks write, the driver commits."""
        with (
            connected(self.world.broker),
            patch.object(kafka_sink, "request_source", self._request_source),
            _impatient(),
        ):
            if self._writer is None:
                writer = _Writer(self)
                writer.__getstate__()
                self._writer = writer
            elif self._messages is None:
                try:
                    self._messages = [self._task(self._writer, p) for p in range(len(PARTITIONS))]
                except StreamGroupsError:
                    self._writer.abort([], 0)
                    raise
            else:
                writer, messages = self._writer, self._messages
                self._writer = self._messages = None
                writer.commit(messages, len(self.spark.checkpoint.offsets) - 1)
                self.is_written = True

    def _task(self, writer: _Writer, partition: int) -> TaskOutput:
        rows = [row for row in self.rows if row[0].partition == partition]
        batch = LoggedBatch(len(self.spark.checkpoint.offsets) - 1)
        if writer.transaction is None or not rows:
            # Written before a restart, or nothing to write.
            return TaskOutput(writer.transaction, Written(partition, frozenset(), 0), 0, batch=batch)
        task = TransactionWriter(CONFIG, writer.transaction, retry_timeout_s=0)
        self.world.sent.append((writer.transaction, partition, rows))
        task.write("out", [encoded(task.producer, partition, rows)])
        written = Written(partition, frozenset({TopicPartition("out", partition)}), len(rows))
        return TaskOutput(writer.transaction, written, written.records, batch=batch)

    def _request_source(self, session: str, end: object, message: object) -> bool | None:
        assert isinstance(message, BatchWritten)
        if self.world.loses_report:
            return None
        run = self.spark.source.run(message.end)
        assert run is not None
        self.spark.member.written(run.number)
        return True


class _Writer(KafkaStreamWriter):
    """The sink of a process; its requests to the source and the broker are answered in memory."""

    def __init__(self, process: KafkaProcess) -> None:
        super().__init__(parse_sink(OPTIONS), process.name, len(PARTITIONS))
        self._process = process

    @property
    def transaction(self) -> OpenTransaction | None:
        return self._begun

    def _info(self, *, to_commit: bool = False, confirmed: bool = False) -> BatchInfo:
        batch = self._process.seen(to_commit=to_commit)
        if any(source.group_metadata is None for source in batch.sources):
            raise FencedMember("The group has not confirmed the member.", remedy="Restart the query.")
        return batch

    def _transactional_id(self, batch: BatchInfo) -> str:
        return self._process.query.name

    def _transactions(self, transactional_id: str) -> Transactions:
        return Transactions(CONFIG, transactional_id, retry_timeout_s=0)


@contextmanager
def _impatient() -> Iterator[None]:
    with patch.object(group_offsets, "_NEXT_GENERATION_S", 0):
        yield


class Queries(QueriesOfOneGroup):
    """Two queries of one group, and what is left of their older processes."""

    how = SHARED
    world: KafkaWorld

    def __init__(self) -> None:
        super().__init__()
        self.world = KafkaWorld(self.how)

    # ---- what happens ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.writing())
    @rule(pick=PICK, request=st.sampled_from(REQUESTS), is_received=st.booleans())
    def crash_while_committing(self, pick: int, request: str, is_received: bool) -> None:
        process = self.writing()[pick % len(self.writing())]
        self._when(request, is_received)[request] = _die
        try:
            self._write(process)
        except _KilledError:
            self.world.kill(process)
        self._forget()

    @precondition(lambda self: self.writing())
    @rule(pick=PICK, request=st.sampled_from(REQUESTS))
    def lose_an_answer(self, pick: int, request: str) -> None:
        self.world.broker.after[request] = lose_the_answer
        self._write(self.writing()[pick % len(self.writing())])
        self._forget()

    @precondition(lambda self: self.writing())
    @rule(pick=PICK)
    def lose_the_report_of_the_sink(self, pick: int) -> None:
        self.world.loses_report = True
        self._write(self.writing()[pick % len(self.writing())])
        self.world.loses_report = False

    @precondition(lambda self: len(self.world.processes) > 1 and self.writing())
    @rule(pick=PICK, other=PICK, request=st.sampled_from(REQUESTS), times=st.integers(1, 6))
    def others_advance_while_one_commits(self, pick: int, other: int, request: str, times: int) -> None:
        first = self.writing()[pick % len(self.writing())]
        others = [process for process in self.world.processes if process is not first]
        second = others[other % len(others)]

        def advance() -> None:
            for _ in range(times):
                if second in self.world.processes:
                    second.step()

        self.world.broker.before[request] = advance
        self._write(first)
        self._forget()

    @precondition(lambda self: self.writing())
    @rule(pick=PICK, fence=PICK, request=st.sampled_from(REQUESTS))
    def the_group_changes_while_one_commits(self, pick: int, fence: int, request: str) -> None:
        first = self.writing()[pick % len(self.writing())]
        self.world.broker.before[request] = lambda: self.world.fence(self.picked(fence))
        self._write(first)
        self._forget()

    @precondition(lambda self: self.world.broker.open_transactions)
    @rule(pick=PICK)
    def time_out(self, pick: int) -> None:
        waiting = self.world.broker.open_transactions
        self.world.broker.time_out(waiting[pick % len(waiting)])

    @precondition(lambda self: self.world.sent)
    @rule(pick=st.integers(0, 7))
    def write_late(self, pick: int) -> None:
        """A task that was slow, or whose request was sent again, writes its output of long ago."""
        transaction, partition, rows = self.world.sent[-1 - pick % len(self.world.sent)]
        with connected(self.world.broker):
            task = TransactionWriter(CONFIG, transaction, retry_timeout_s=0)
            # It has added its partitions already.
            task._added.add(TopicPartition("out", partition))
            try:
                task.write("out", [encoded(task.producer, partition, rows)])
            except StreamGroupsError:
                return

    # ---- assertions -----------------------------------------------------------------------------------------------

    def _when(self, request: str, is_received: bool) -> dict[str, Callable[[], None]]:
        return self.world.broker.after if is_received else self.world.broker.before

    def _write(self, process: Process) -> None:
        """All that it does for its batch."""
        for _ in range(3):
            if process in self.world.processes and process.is_to_write:
                process.step()

    def _forget(self) -> None:
        self.world.broker.before.clear()
        self.world.broker.after.clear()

    # ---- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def offsets_and_output_are_one(self) -> None:
        for p in PARTITIONS:
            committed = self.world.committed.get(p, 0)
            assert self.world.written(p) == [o for o in self.world.records[p] if o < committed], f"{p} at {committed}"

    def teardown(self) -> None:
        for transactional_id in self.world.broker.open_transactions:
            self.world.broker.time_out(transactional_id)
        super().teardown()
        self.offsets_and_output_are_one()


class _ExclusiveQueries(Queries):
    how = EXCLUSIVE


TestFences = Queries.TestCase
TestFences.settings = settings(max_examples=sequences(40), stateful_step_count=40)
TestExclusiveQueries = _ExclusiveQueries.TestCase
TestExclusiveQueries.settings = settings(max_examples=sequences(25), stateful_step_count=40)


def _die() -> None:
    raise _KilledError


# ---- and without -----------------------------------------------------------------------------------------------------


def _without_epochs() -> Any:
    """All transactions of a transactional id have the first one's epoch."""
    begin, first = Transactions.begin, dict[str, OpenTransaction]()

    def begin_once(self: Transactions) -> OpenTransaction:
        return first.setdefault(self._transactional_id, begin(self) if self._transactional_id not in first else None)  # type: ignore[arg-type]

    return patch.object(Transactions, "begin", begin_once)


def _without_generation() -> Any:
    """Offsets are added without group metadata."""
    commit_offsets = Transactions.commit_offsets

    def without_group(self: Transactions, transaction: Any, offsets: Any, group_metadata: Any) -> None:
        commit_offsets(self, transaction, offsets, replace(group_metadata, generation=None, member_id=""))

    return patch.object(Transactions, "commit_offsets", without_group)


def _without_a_check_of_the_ownership() -> Any:
    """Positions that the group has changed meanwhile are written anyway."""
    return patch("streamgroups_spark.sinks.batch_info.check_source", lambda *_, **__: None)


def _without_stable_offsets() -> Any:
    """A member that gets a partition does not wait for the transaction that moves it."""
    return patch.object(FakeCluster, "unstable_offsets", lambda *_: frozenset())


def _without_offsets() -> Any:
    """The transaction has the output only."""
    return patch.object(Transactions, "commit_offsets", lambda *_: None)


def _without_hearing_of_a_restart() -> Any:
    """The sink does not receive that the batch of a restarted query is written."""
    return patch.object(BatchInfo, "is_written", False)


# ---- what each of them is for ----------------------------------------------------------------------------------------


def _until(process: Process, condition: Callable[[], bool]) -> None:
    """A process continues until a condition is true; another one may prevent it."""
    for _ in range(20):
        if condition() or process not in process.world.processes:
            return
        process.step()


def _has_sent(process: Process) -> bool:
    return isinstance(process, KafkaProcess) and process.has_sent


def _reads(world: KafkaWorld, name: int) -> Process:
    world.start(world.queries[name])
    return world.processes[-1]


def _a_second_batch(machine: Queries) -> None:
    """Its tasks number what they send from 0 again."""
    world = machine.world
    world.produce(PARTITIONS[0], 4, 0)
    alice = _reads(world, 0)
    _until(alice, lambda: alice.is_written)
    world.produce(PARTITIONS[0], 4, 0)
    _until(alice, lambda: alice.is_to_write)
    _until(alice, lambda: alice.is_written)


def _a_fenced_member(machine: Queries) -> None:
    world = machine.world
    world.produce(PARTITIONS[0], 4, 0)
    alice = _reads(world, 0)
    _until(alice, lambda: _has_sent(alice))
    world.fence(alice)
    bob = _reads(world, 1)
    _until(bob, lambda: bob.is_written)
    alice.step()


def _a_partition_that_has_moved(machine: Queries) -> None:
    world = machine.world
    for p in PARTITIONS:
        world.produce(p, 3, 0)
    alice = _reads(world, 0)
    _until(alice, lambda: _has_sent(alice))
    bob = _reads(world, 1)
    _until(bob, lambda: bob.is_in_group)
    alice.spark.member.time_out()
    _until(bob, lambda: bob.is_written)
    alice.step()


def _a_commit_that_is_under_way(machine: Queries) -> None:
    world = machine.world
    world.produce(PARTITIONS[0], 4, 0)
    alice = _reads(world, 0)
    _until(alice, lambda: _has_sent(alice))

    def bob_takes_over() -> None:
        world.fence(alice)
        bob = _reads(world, 1)
        _until(bob, lambda: bob.spark.running is not None)

    world.broker.before["EndTxn"] = bob_takes_over
    alice.step()
    bob = world.newest(world.queries[1])
    assert bob is not None
    _until(bob, lambda: bob.is_written)


def _a_batch(machine: Queries) -> None:
    world = machine.world
    world.produce(PARTITIONS[0], 4, 0)
    alice = _reads(world, 0)
    _until(alice, lambda: alice.is_written)


def _a_restart_before_spark_has_recorded_it(machine: Queries) -> None:
    _a_batch(machine)
    world = machine.world
    world.kill(world.processes[-1])
    again = _reads(world, 0)
    _until(again, lambda: again.is_written)


@pytest.mark.parametrize(
    ("without", "story", "how"),
    [
        (_without_epochs, _a_second_batch, SHARED),
        (_without_generation, _a_fenced_member, SHARED),
        (_without_a_check_of_the_ownership, _a_partition_that_has_moved, SHARED),
        (_without_stable_offsets, _a_commit_that_is_under_way, SHARED),
        (_without_offsets, _a_batch, SHARED),
        (_without_hearing_of_a_restart, _a_restart_before_spark_has_recorded_it, EXCLUSIVE),
    ],
)
def test_no_fence_is_too_many(without: Callable[[], Any], story: Callable[[Queries], None], how: Settings) -> None:
    fenced = _machine(how)
    story(fenced)
    _check(fenced)
    # One of them has made progress.
    assert fenced.world.broker.visible
    fenced.teardown()
    with without():
        open_to_it = _machine(how)
        story(open_to_it)
        with pytest.raises(AssertionError, match=r"twice|lost|out of order|flights-\d at"):
            _check(open_to_it)


def _machine(settings: Settings) -> Queries:
    class Machine(Queries):
        how = settings

    return Machine()


def _check(machine: Queries) -> None:
    machine.nothing_is_lost_repeated_or_out_of_order()
    machine.what_the_group_has_committed_is_written()
    machine.offsets_and_output_are_one()
