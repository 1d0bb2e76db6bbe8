"""X1-X3: what the Kafka sink does with a batch on the driver and in tasks, without a broker and without Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from streamgroups.coordination.reset_protocol import no_data_group_of
from streamgroups.errors import (
    BrokerUnreachable,
    FencedBatch,
    FencedMember,
    InvalidOption,
    PositionsDiffer,
    RecordRejected,
    TransactionFailed,
)
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.ledgers.no_data_batch import NoDataBatch
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Committed
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.transactions import task_output
from streamgroups_kafka.transactions import transaction_requests as transaction_session
from streamgroups_kafka.transactions.task_output import RejectedRecord
from streamgroups_spark.messages.batch import BatchFacts, BatchWritten
from streamgroups_spark.sinks import base, group_offsets, kafka_tasks, no_data_entries
from streamgroups_spark.sinks import kafka as kafka_sink
from streamgroups_spark.sinks.base import TaskOutput
from streamgroups_spark.sinks.batch_info import BatchInfo, LoggedBatch
from streamgroups_spark.sinks.kafka import KafkaStreamWriter
from streamgroups_spark.sinks.letters.good_rows import FAILURE_TYPE
from streamgroups_spark.sinks.no_data_entries import NoDataEntry, reject_repeated_output
from streamgroups_spark.sinks.sink_options import parse_sink
from unit_tests.scripted_brokers import ScriptedBrokers

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
RANGES = (OffsetRange(P0, 5, 9), OffsetRange(P1, 7, 8))
GROUP_METADATA = ConsumerGroupMetadata("airline", 7, "member-1")
FACTS = BatchFacts(
    end={"version": 2, "n": 1, "ranges": {}, "resting": {}},
    group_id="airline",
    member="one",
    ranges=RANGES,
    held=RANGES,
    written=(),
    group_metadata=GROUP_METADATA,
    mode=MembershipMode.SHARED,
    joins=True,
)
READS = BatchInfo((FACTS,), 1, None, (P0, P1))
NO_DATA_BATCH = NoDataBatch("5f2c", 4, 99)
NO_DATA = BatchInfo((), 4, NO_DATA_BATCH, (P0, P1))
ROWS = pa.record_batch({"value": pa.array([b"a", b"b"], pa.binary())})


class Entries:
    """The offsets of the group with the entries about no-data batches."""

    def __init__(self) -> None:
        self.found: dict[TopicPartition, Committed] = {}
        self.of_group = {P0: Committed(5)}
        self.reads: list[str] = []
        self.errors: list[BrokerUnreachable] = []

    def __call__(self, *_: object, **__: object) -> Entries:
        return self

    def read(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        self.reads.append(group_id)
        if self.errors:
            raise self.errors.pop()
        if group_id == "airline":
            return self.of_group
        return {tp: c for tp, c in self.found.items() if tp in partitions}

    def close(self) -> None: ...


class World:
    """A query whose sink is run by hand, with its source, brokers and tasks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.brokers, self.entries = ScriptedBrokers(board=2), Entries()
        self.seen = READS
        self.written: list[BatchWritten] = []
        self.task, self.attempt = 0, 0
        monkeypatch.setattr(transaction_session, "AdminSession", self.brokers)
        monkeypatch.setattr(transaction_session, "_MAX_WAIT_S", 0.0)
        monkeypatch.setattr(no_data_entries, "KafkaMetadataStore", self.entries)
        monkeypatch.setattr(base, "logged_batch", lambda _: LoggedBatch(self.seen.batch_id))
        monkeypatch.setattr(base, "batch_info", lambda *_, **__: self.seen)
        monkeypatch.setattr(base, "query_id_of", lambda _: "5f2c")
        monkeypatch.setattr(kafka_sink, "request_source", lambda _, end, question: self.written.append(question))
        monkeypatch.setattr(base, "prepare_python_worker", lambda: None)
        monkeypatch.setattr(base, "TaskContext", SimpleNamespace(get=self._task))

    def _task(self) -> object:
        return SimpleNamespace(partitionId=lambda: self.task, attemptNumber=lambda: self.attempt)

    def writer(self, **options: str) -> KafkaStreamWriter:
        given = {"kafka.bootstrap.servers": "broker:9092", "topic": "board", "checkpointLocation": "checkpoint"}
        return KafkaStreamWriter(parse_sink({**given, "group.id": "airline", **options}), "session", 1)

    def sent(self, **options: str) -> KafkaStreamWriter:
        """A writer as a task gets it."""
        sent: KafkaStreamWriter = cloudpickle.loads(cloudpickle.dumps(self.writer(**options)))
        return sent

    def add_entry(self, tp: TopicPartition, batch: NoDataBatch) -> None:
        self.entries.found[tp] = Committed(batch.batch_id, batch.encode())

    @property
    def is_open(self) -> bool:
        return any(known.is_open for known in self.brokers.ids.values())

    @property
    def output(self) -> dict[TopicPartition, list[bytes]]:
        return dict(self.brokers.log)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def rows() -> Iterator[pa.RecordBatch]:
    return iter([ROWS])


def test_X1_output_and_offsets_become_visible_together(world: World) -> None:
    reported = world.sent().write(rows())
    assert (reported.records, world.brokers.committed) == (2, {})
    world.writer().commit([reported, None], 1)
    assert world.brokers.committed == {P0: 9, P1: 8}
    assert world.written == [BatchWritten(FACTS.end)]
    assert not world.is_open


@pytest.mark.parametrize(("of_source", "expected"), [("77aa", "77aa"), (None, "5f2c")])
def test_X2_the_id_of_the_query_is_that_of_the_source_or_of_the_checkpoint(
    world: World, of_source: str | None, expected: str
) -> None:
    """Both are the id in the checkpoint: the source needs no read for it."""
    world.seen = replace(READS, sources=(replace(FACTS, query_id=of_source),))
    reported = world.sent().write(rows())
    assert reported.begun.transactional_id == f"streamgroups-airline-{expected}"
    world.writer().commit([reported], 1)
    assert world.brokers.committed == {P0: 9, P1: 8}


def test_X2_only_the_first_task_returns_the_batch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can contain the offsets of thousands of partitions."""
    writer = world.sent()
    first = writer.write(rows())
    monkeypatch.setattr(world, "task", 1)
    second = writer.write(iter([ROWS.slice(0, 0)]))
    assert (first.batch, second.batch) == (LoggedBatch(1), None)
    world.writer().commit([first, second], 1)
    assert world.brokers.committed == {P0: 9, P1: 8}


def test_X2_a_batch_that_is_written_is_neither_written_again_nor_begun(world: World) -> None:
    world.seen = replace(READS, sources=(replace(FACTS, written=RANGES),))
    reported = world.sent().write(rows())
    assert reported == TaskOutput(None, None, 0)
    world.writer().commit([reported], 1)
    assert (world.output, world.brokers.names) == ({}, [])


def test_X1_a_second_attempt_of_a_task_does_not_write_into_the_same_transaction(world: World) -> None:
    writer = world.sent()
    writer.write(rows())
    world.attempt = 1
    with pytest.raises(TransactionFailed, match="Spark retried task 0"):
        writer.write(rows())
    assert len(world.output) == 1


def test_without_transactions_a_task_may_be_tried_again(world: World) -> None:
    writer = world.sent(delivery="at-least-once")
    world.attempt = 1
    reported = writer.write(rows())
    world.writer(delivery="at-least-once").commit([reported], 1)
    assert reported.begun is None
    assert world.output
    assert "InitProducerId" in world.brokers.names, "a writer has a producer id of its own"
    assert "EndTxn" not in world.brokers.names


def test_X1_tasks_that_share_a_partition_are_rejected_whatever_they_wrote(world: World) -> None:
    reported = world.sent().write(rows())
    one_record = replace(reported, written=replace(reported.written, task=1, records=1), records=1)
    with pytest.raises(InvalidOption, match="Several tasks have written to board-"):
        world.writer().commit([reported, one_record], 1)
    assert (world.brokers.committed, world.is_open) == ({}, False)


def test_tasks_of_two_transactions_are_rejected(world: World) -> None:
    parts = [world.sent().write(rows()) for _ in range(2)]
    with pytest.raises(TransactionFailed, match="in 2 transactions"):
        world.writer().commit(parts, 1)


def test_a_batch_without_tasks_does_not_exist(world: World) -> None:
    world.writer().commit([None], 1)
    assert world.brokers.names == []


def test_a_batch_that_failed_is_aborted(world: World) -> None:
    reported = world.sent().write(rows())
    assert world.is_open
    world.writer().abort([None, reported], 1)
    assert not world.is_open


def test_X3_offsets_that_a_rebalance_has_made_stale_are_committed_by_the_newer_generation(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = world.sent().write(rows())
    world.brokers.generation = 8
    polls = iter([GROUP_METADATA, GROUP_METADATA, replace(GROUP_METADATA, generation=8)])
    monkeypatch.setattr(group_offsets, "_AGAIN_S", 0.0)
    monkeypatch.setattr(
        base,
        "batch_info",
        lambda *_, **__: replace(READS, sources=(replace(FACTS, group_metadata=next(polls)),)),
    )
    world.writer().commit([reported], 1)
    assert world.brokers.committed == {P0: 9, P1: 8}


def test_X3_without_a_newer_generation_nothing_is_committed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "_NEXT_GENERATION_S", 0.0)
    reported = world.sent().write(rows())
    world.brokers.generation = 8
    with pytest.raises(FencedMember):
        world.writer().commit([reported], 1)
    assert (world.brokers.committed, world.is_open) == ({}, False)


# ---- batches that read nothing ---------------------------------------------------------------------------------------


def test_X2_a_no_data_batch_is_recorded_in_its_own_transaction(world: World) -> None:
    world.seen = NO_DATA
    reported = world.sent().write(rows())
    world.writer().commit([reported], 4)
    ((place, number),) = world.brokers.committed.items()
    assert (place in (P0, P1), number) == (True, 4)
    commit = next(r for r in world.brokers.requests if type(r).__name__ == "TxnOffsetCommitRequest")
    assert commit.group_id == no_data_group_of("airline")
    assert NoDataBatch.parse(commit.topics[0].partitions[0].committed_metadata) == NO_DATA_BATCH


def test_X2_a_recorded_no_data_batch_is_not_begun(world: World) -> None:
    world.seen = NO_DATA
    world.add_entry(P1, NO_DATA_BATCH)
    reported = world.sent().write(rows())
    assert (reported.begun, world.brokers.names) == (None, [])


def test_X2_a_no_data_batch_that_is_recorded_while_it_begins_is_not_written(world: World) -> None:
    """A run that was killed may have committed it a moment ago: the begin fences that run, and then the entry counts."""
    world.seen = NO_DATA
    world.brokers.script["InitProducerId"].append(lambda _: world.add_entry(P0, NO_DATA_BATCH))
    reported = world.sent().write(rows())
    assert reported.begun is None
    assert (world.output, world.is_open) == ({}, False)


def test_X2_a_no_data_batch_that_is_recorded_while_it_is_written_is_aborted(world: World) -> None:
    world.seen = NO_DATA
    reported = world.sent().write(rows())
    world.add_entry(P0, NO_DATA_BATCH)
    world.writer().commit([reported], 4)
    assert (world.brokers.committed, world.is_open) == ({}, False)


def test_X3_a_no_data_batch_of_a_checkpoint_that_was_set_back_is_fenced(world: World) -> None:
    world.seen = NO_DATA
    reported = world.sent().write(rows())
    world.add_entry(P0, replace(NO_DATA_BATCH, batch_id=5))
    with pytest.raises(FencedBatch, match="batch 5"):
        world.writer().commit([reported], 4)
    assert (world.brokers.committed, world.is_open) == ({}, False)


def test_X4_a_batch_with_records_does_not_repeat_a_no_data_batch(world: World) -> None:
    """The checkpoint is set back to batch 3. After the restart batch 4 has records, and emits the windows of the no-data batch."""
    world.seen = BatchInfo((replace(FACTS, query_id="5f2c", may_repeat_no_data=True),), 4, None, (P0, P1))
    world.add_entry(P1, NO_DATA_BATCH)
    with pytest.raises(FencedBatch, match=r"Batch 4 of group 'airline' was rejected.*no-data batch 4"):
        world.sent()
    assert (world.brokers.committed, world.is_open) == ({}, False)
    world.seen = replace(world.seen, batch_id=5)
    assert world.sent().write(rows()).begun is not None


def test_a_query_without_state_does_not_read_the_entries_of_no_data_batches(world: World) -> None:
    world.seen = BatchInfo((replace(FACTS, query_id="5f2c"),), 4, None, (P0, P1))
    world.add_entry(P1, NO_DATA_BATCH)
    assert world.sent().write(rows()).begun is not None
    assert world.entries.reads == []


def test_X2_a_no_data_batch_without_output_leaves_nothing(world: World) -> None:
    world.seen = NO_DATA
    reported = world.sent().write(iter([ROWS.slice(0, 0)]))
    world.writer().commit([reported], 4)
    assert (world.brokers.committed, world.is_open) == ({}, False)


def test_X2_a_no_data_batch_with_output_needs_a_place_for_its_entry(world: World) -> None:
    world.seen = replace(NO_DATA, partitions=())
    reported = world.sent().write(rows())
    with pytest.raises(FencedBatch, match="2 records of output and has read no records"):
        world.writer().commit([reported], 4)


def test_a_first_request_without_a_response_does_not_keep_a_batch_from_beginning(world: World) -> None:
    world.seen = NO_DATA
    world.entries.errors.append(BrokerUnreachable("an open transaction"))
    assert world.sent().write(rows()).begun is not None


def test_F5_a_no_data_batch_without_any_offset_of_the_group_may_be_written(world: World) -> None:
    world.seen, world.entries.of_group = NO_DATA, {}
    with pytest.raises(PositionsDiffer, match="Batch 4 of the checkpoint is not finished") as raised:
        world.sent()
    assert "copy the file commits/3 of the checkpoint to commits/4" in (raised.value.remedy or "")
    assert world.brokers.names == []
    world.add_entry(P0, replace(NO_DATA_BATCH, query_id="another", batch_id=9))
    assert world.sent().write(rows()).begun is not None, "the entries of the group have not expired"


def test_X2_of_several_entries_of_a_query_the_newest_counts(world: World) -> None:
    """The partition of the entry changes when partitions are added."""
    entry = NoDataEntry(world.writer()._options.client, "airline", (P0, P1), NO_DATA_BATCH)
    world.add_entry(P0, replace(NO_DATA_BATCH, batch_id=2, fingerprint=1))
    assert not entry.is_there()
    world.add_entry(P1, NO_DATA_BATCH)
    assert entry.is_there()
    world.add_entry(P0, replace(NO_DATA_BATCH, query_id="another", batch_id=9))
    assert entry.is_there(), "each checkpoint has entries of its own"
    world.add_entry(P0, replace(NO_DATA_BATCH, batch_id=9))
    with pytest.raises(FencedBatch):
        entry.is_there()


def test_G17_an_unreadable_entry_is_not_an_absent_one(world: World) -> None:
    entry = NoDataEntry(world.writer()._options.client, "airline", (P0, P1), NO_DATA_BATCH)
    (place,) = entry.offsets
    (other,) = {P0, P1} - {place}
    newer = Committed(4, NO_DATA_BATCH.encode().replace('"v":1', '"v":2'))
    world.entries.found[other] = newer
    assert not entry.is_there(), "it is the entry of another query"
    world.entries.found[place] = newer
    with pytest.raises(
        PositionsDiffer, match=rf"at {place} cannot be read: .* whether batch 4 of the checkpoint is written"
    ):
        entry.is_there()
    with pytest.raises(PositionsDiffer):
        reject_repeated_output(entry.client, "airline", entry.partitions, NO_DATA_BATCH.number)
    del world.entries.found[place]
    assert not entry.is_there()


def test_what_two_tasks_wrote_to_is_found_however_little_it_is() -> None:
    parts = [
        task_output.Written(task, frozenset({TopicPartition("board", 0)}), records)
        for task, records in ((0, 5), (1, 1))
    ]
    assert task_output.written_twice(parts) == {TopicPartition("board", 0)}
    assert task_output.written_twice(reversed(parts)) == {TopicPartition("board", 0)}


@pytest.mark.parametrize("is_too_large", [False, True])
def test_P4_a_rejected_record_whose_text_is_not_utf8_is_a_letter(is_too_large: bool) -> None:
    """Spark passes the bytes of a string unchanged."""
    text = pa.array([b"UA\xff"], pa.binary()).view(pa.string())
    headers = pa.array([[("trace", None)]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])))
    row = pa.record_batch({"key": text, "value": text, "headers": headers, "topic": ["board"]})
    error = RecordRejected("Too late.", remedy="Set a time.")
    found = kafka_tasks._failure(RejectedRecord("board", row, error, is_too_large))
    assert (found["key"], found.get("value")) == (b"UA\xff", None if is_too_large else b"UA\xff")
    details = [("value_bytes", "3"), ("output_topic", "board")]
    assert (found["headers"], found["details"]) == ([{"key": "trace", "value": None}], details)
    pa.array([found], FAILURE_TYPE)


def test_P4_a_letter_of_a_rejected_record_has_the_place_of_the_output() -> None:
    times = pa.array([1_500_999, None], pa.timestamp("us", "America/New_York"))
    rows = pa.record_batch({"value": ["a", "b"], "partition": pa.array([7, None], pa.int32()), "timestamp": times})
    error = RecordRejected("Too late.", remedy="Set a time.")
    first, second = (
        dict(kafka_tasks._failure(RejectedRecord("board", rows.slice(i, 1), error, False))["details"]) for i in range(2)
    )
    place = {"output_topic": "board", "output_partition": "7", "output_timestamp_ms": "1500"}
    assert first == {"value_bytes": "1", **place}
    assert second == {"value_bytes": "1", "output_topic": "board"}


@pytest.mark.parametrize(
    ("options", "of_source", "tasks"), [({}, 48, 48), ({}, None, 1), ({"Streamgroups.Tasks": "2"}, 48, 2)]
)
def test_X1_tasks_share_no_partition_if_executors_have_registered_since_the_registration(
    world: World, options: dict[str, str], of_source: int | None, tasks: int
) -> None:
    """The number of tasks is that of ``sg.exactly_once``, or that of the source of a plain ``writeStream``."""
    world.seen = replace(READS, sources=(FACTS, replace(FACTS, tasks=of_source)))
    assert world.sent(**options)._settings.tasks == tasks
