"""G13, S4: when a range ends, what is passed over and what is an error, for both ways to fetch; on librdkafka's broker in memory and a script."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from streamgroups import login_outage
from streamgroups.coordination.admin_metadata_store import AdminMetadataStore
from streamgroups.coordination.reset_protocol import gaps_group_of
from streamgroups.errors import (
    BrokerUnreachable,
    DataLoss,
    LoginRejected,
    NotAuthorized,
    ReadTimedOut,
    StreamGroupsError,
    UnknownTopic,
)
from streamgroups.fakes import FakeAdmin, FakeCluster
from streamgroups.groups.gaps import Cause, Gap, Gaps, PartitionGap
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Committed
from streamgroups.query.data_loss import LossPolicies, OnDataLoss
from streamgroups_kafka import native
from streamgroups_kafka.admin import cluster as cluster_of_kafka
from streamgroups_kafka.admin import metadata_store as metadata_store_of_kafka
from streamgroups_kafka.admin.gap_records import GapRecords
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.read import plain_fetcher, range_reader
from streamgroups_kafka.read.arrow_columns import COLUMNS
from streamgroups_kafka.read.fetcher import PartitionError, ReadSettings
from streamgroups_kafka.read.plain_fetcher import PlainFetcher
from streamgroups_kafka.read.range_reader import read_ranges
from unit_tests.scripted_consumer import Message, ScriptedConsumer, end_of, failed_fetch, records

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
SCHEMA = pa.schema(list(COLUMNS.items()))
OFFSETS = pa.schema([("partition", pa.int32()), ("offset", pa.int64())])
HOW = ReadSettings(ClientConfig.from_options({"bootstrap.servers": "broker:9092"}), "readers", timeout_ms=2_000)
TIME_MS = 1_700_000_000_123


# ---- both readers, on a broker in memory -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker() -> Iterator[Producer]:
    """librdkafka's own broker, in this process: it takes records and gives them out, and that is enough."""
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 0, "bootstrap.servers": ""})
    with closing(producer):
        yield producer


@pytest.fixture(params=["native", "plain"])
def how(request: pytest.FixtureRequest, broker: Producer, monkeypatch: pytest.MonkeyPatch) -> ReadSettings:
    if request.param == "native" and not native.status().available:
        pytest.skip(native.status().reason)
    monkeypatch.setenv("STREAMGROUPS_READER", request.param)
    (node,) = broker.list_topics(timeout=10).brokers.values()
    config = ClientConfig.from_options({"bootstrap.servers": f"{node.host}:{node.port}"})
    return ReadSettings(config, "readers", timeout_ms=20_000)


@pytest.fixture
def topic(broker: Producer, request: pytest.FixtureRequest) -> str:
    """A topic with the rows in its first partition."""
    name = re.sub(r"\W", "-", request.node.name)
    produce(broker, name)
    return name


ROWS: list[dict[str, Any]] = [
    {"key": b"a", "value": b"1", "headers": [("one", b"1"), ("two", None)]},
    {"key": b"b", "value": b"2", "headers": None},
    {"key": None, "value": b"3", "headers": [("", b"")]},
    {"key": b"", "value": None, "headers": None},
    {"key": b"e", "value": b"", "headers": [("one", b"1")] * 3},
]


def produce(broker: Producer, topic: str) -> None:
    for i, row in enumerate(ROWS):
        broker.produce(topic, partition=0, timestamp=TIME_MS + i, **row)
    assert broker.flush(10) == 0


def read(ranges: Sequence[OffsetRange], how: ReadSettings, schema: pa.Schema = SCHEMA) -> pa.Table:
    table = pa.Table.from_batches(read_ranges(ranges, schema, how), schema)
    table.validate(full=True)
    return table


def expected(topic: str, offset: int) -> dict[str, Any]:
    row = ROWS[offset]
    return {
        "key": row["key"],
        "value": row["value"],
        "topic": topic,
        "partition": 0,
        "offset": offset,
        "timestampType": 0,
        "headers": [{"key": k, "value": v} for k, v in row["headers"]] if row["headers"] else None,
    }


@pytest.mark.parametrize(("first", "end"), [(0, 5), (1, 4), (2, 3)])
def test_every_column_is_what_was_written(topic: str, how: ReadSettings, first: int, end: int) -> None:
    table = read([OffsetRange(TopicPartition(topic, 0), first, end)], how)
    times_us = table.column("timestamp").cast(pa.int64()).to_pylist()
    assert times_us == [(TIME_MS + i) * 1_000 for i in range(first, end)]
    assert table.drop_columns(["timestamp"]).to_pylist() == [expected(topic, i) for i in range(first, end)]
    assert table.column("headers").null_count == sum(ROWS[i]["headers"] is None for i in range(first, end))
    assert table.column("key").null_count == sum(ROWS[i]["key"] is None for i in range(first, end))


def test_ranges_of_one_partition_are_read_one_after_the_other(topic: str, how: ReadSettings) -> None:
    tp = TopicPartition(topic, 0)
    table = read([OffsetRange(tp, 3, 5), OffsetRange(tp, 0, 2), OffsetRange(tp, 2, 2)], how, OFFSETS)
    assert table.column("offset").to_pylist() == [0, 1, 3, 4]


def test_an_offset_that_is_not_there_is_data_loss(topic: str, how: ReadSettings) -> None:
    with pytest.raises(DataLoss, match=r"-0\[7,9\) cannot be read, because .*-0 now contains \[0, 5\)"):
        read([OffsetRange(TopicPartition(topic, 0), 7, 9)], how)


def test_S4_missing_offsets_of_many_partitions_are_passed_over(
    broker: Producer, how: ReadSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """Their bounds are requested together, by another client than that of the reader."""
    topics = [f"many-{native.uses_native('reader')}-{i}" for i in range(3)]
    for topic in topics:
        broker.list_topics(topic, timeout=10)
        produce(broker, topic)
    ranges = [OffsetRange(TopicPartition(topic, p), 7, 9) for topic in topics for p in range(1, 4)]
    skipping = replace(how, on_data_loss=LossPolicies(OnDataLoss.SKIP))
    table = read([*ranges, *(OffsetRange(TopicPartition(topic, 0), 3, 5) for topic in topics)], skipping, OFFSETS)
    assert sorted(table.column("offset").to_pylist()) == [3, 3, 3, 4, 4, 4]
    skipped = [it.getMessage() for it in caplog.records if "The missing records are skipped" in it.getMessage()]
    assert len(skipped) == len(ranges)
    assert all("now contains [0, 0)" in text for text in skipped)


# ---- the plain fetcher, by a script ----------------------------------------------------------------------------------


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> ScriptedConsumer:
    consumer = ScriptedConsumer()
    monkeypatch.setattr(plain_fetcher, "Consumer", consumer)
    monkeypatch.setenv("STREAMGROUPS_READER", "plain")
    return consumer


def offsets(consumer: ScriptedConsumer, *ranges: OffsetRange, how: ReadSettings = HOW) -> list[tuple[int, int]]:
    """What is read, by partition and offset."""
    rows = read(ranges, how, OFFSETS).to_pylist()
    assert consumer.closed
    return [(row["partition"], row["offset"]) for row in rows]


def test_G13_a_record_after_the_range_ends_it_and_is_not_in_it(consumer: ScriptedConsumer) -> None:
    """Offsets 3 and 4 are a transaction's markers, or were compacted."""
    consumer.fetched = deque(records(P0, 0, 1, 2, 5))
    assert offsets(consumer, OffsetRange(P0, 0, 5)) == [(0, 0), (0, 1), (0, 2)]


def test_G13_the_end_of_the_partition_ends_a_range_only_at_its_end(consumer: ScriptedConsumer) -> None:
    consumer.fetched = deque([*records(P0, 0), end_of(P0, 1), *records(P0, 1), end_of(P0, 3)])
    assert offsets(consumer, OffsetRange(P0, 0, 3)) == [(0, 0), (0, 1)]


def test_G13_records_of_a_range_that_has_ended_are_no_longer_taken(consumer: ScriptedConsumer) -> None:
    consumer.fetched = deque([*records(P0, 0, 1, 2), *records(P1, 4), *records(P0, 3)])
    assert offsets(consumer, OffsetRange(P0, 0, 2), OffsetRange(P1, 4, 5)) == [(0, 0), (0, 1), (1, 4)]
    assert consumer.paused == {P0}


def test_what_no_range_is_of_is_passed_over(consumer: ScriptedConsumer) -> None:
    consumer.fetched = deque([*records(TopicPartition("gates", 0), 0), *records(P0, 0)])
    assert offsets(consumer, OffsetRange(P0, 0, 1)) == [(0, 0)]


def test_a_large_batch_is_given_out_in_parts(consumer: ScriptedConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_fetcher, "_BATCH_RECORDS", 2)
    monkeypatch.setattr(plain_fetcher, "_CHUNK", 1)
    consumer.fetched = deque(records(P0, *range(5)))
    sizes = [batch.num_rows for batch in read_ranges([OffsetRange(P0, 0, 5)], OFFSETS, HOW)]
    assert sizes == [2, 2, 1]


# ---- errors and silence, for any fetcher -----------------------------------------------------------------------------


class Fetched:
    """A fetcher that follows a script: each step contains the error, and whether there was progress."""

    def __init__(self, *steps: tuple[bool, Sequence[PartitionError]], bounds: tuple[int, int] = (0, 5)) -> None:
        self.steps, self._bounds = deque(steps), bounds
        self.ranges: dict[TopicPartition, OffsetRange] = {}
        self.continued: list[tuple[TopicPartition, int]] = []
        #: The number of calls that list all ranges.
        self.listed = 0
        self.closed = False
        self.__name__ = "Fetched"

    def __call__(self, ranges: Sequence[OffsetRange], schema: pa.Schema, settings: ReadSettings) -> Fetched:
        self.ranges, self._schema = {r.topic_partition: r for r in ranges}, schema
        return self

    def fill(self) -> tuple[bool, Sequence[PartitionError]]:
        if self.steps:
            return self.steps.popleft()
        self.ranges.clear()
        return True, ()

    def full(self) -> bool:
        return False

    def take(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in self._schema], schema=self._schema)

    def n_open(self) -> int:
        return len(self.ranges)

    def remaining(self) -> Sequence[OffsetRange]:
        self.listed += 1
        return list(self.ranges.values())

    def find(self, topic_partition: TopicPartition) -> OffsetRange | None:
        return self.ranges.get(topic_partition)

    def end(self, topic_partition: TopicPartition) -> None:
        del self.ranges[topic_partition]

    def seek(self, topic_partition: TopicPartition, next_offset: int) -> None:
        self.continued.append((topic_partition, next_offset))

    def bounds(self, topic_partition: TopicPartition) -> tuple[int, int]:
        return self._bounds

    def close(self) -> None:
        self.closed = True


GONE = (False, [(P0, KafkaError(KafkaError.OFFSET_OUT_OF_RANGE))])


def gone_of(tp: TopicPartition) -> tuple[bool, Sequence[PartitionError]]:
    return False, [(tp, KafkaError(KafkaError.OFFSET_OUT_OF_RANGE))]


@pytest.fixture
def go(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Fetched]:
    def run(
        fetcher: Fetched, *ranges: OffsetRange, fail: bool = True, timeout_ms: int = 2_000, records: bool = False
    ) -> Fetched:
        monkeypatch.setattr(range_reader, "uses_native", lambda _: False)
        monkeypatch.setattr(range_reader, "PlainFetcher", fetcher)
        policies = LossPolicies(OnDataLoss.FAIL if fail else OnDataLoss.SKIP)
        how = ReadSettings(HOW.client, "readers", policies, timeout_ms, records_gaps=records)
        try:
            list(read_ranges(ranges, OFFSETS, how))
        finally:
            assert fetcher.closed
        return fetcher

    return run


@pytest.mark.parametrize(
    ("first", "end", "bounds"),
    [(5, 9, (0, 5)), (7, 9, (0, 5)), (0, 3, (4, 9)), (0, 4, (4, 9)), (0, 9, (4, 9))],
    ids=["at the end", "after the end", "all gone", "all gone to its end", "the first part is gone"],
)
def test_S4_what_is_gone_is_data_loss(
    go: Callable[..., Fetched], first: int, end: int, bounds: tuple[int, int]
) -> None:
    with pytest.raises(DataLoss, match="flights-0 now contains"):
        go(Fetched(GONE, GONE, GONE, bounds=bounds), OffsetRange(P0, first, end))


@pytest.mark.parametrize(
    ("first", "end", "bounds", "continued"),
    [(5, 9, (0, 5), []), (0, 3, (4, 9), []), (0, 4, (4, 9), []), (0, 9, (4, 9), [(P0, 4)])],
    ids=["at the end", "all gone", "all gone to its end", "the first part is gone"],
)
def test_S4_deleted_records_are_skipped_if_the_user_permits_it(
    go: Callable[..., Fetched],
    caplog: pytest.LogCaptureFixture,
    first: int,
    end: int,
    bounds: tuple[int, int],
    continued: list[tuple[TopicPartition, int]],
) -> None:
    assert go(Fetched(GONE, bounds=bounds), OffsetRange(P0, first, end), fail=False).continued == continued
    assert "The missing records are skipped (onDataLoss=skip)" in caplog.text


@pytest.mark.parametrize(
    ("first", "end", "bounds", "gap"),
    [
        (5, 9, (0, 5), (5, 9, Cause.TRUNCATED)),
        (0, 3, (4, 9), (0, 3, Cause.EXPIRED)),
        (0, 9, (4, 9), (0, 4, Cause.EXPIRED)),
    ],
    ids=["at the end", "all gone", "the first part is gone"],
)
def test_S7_a_task_records_the_gap_that_it_finds(
    go: Callable[..., Fetched],
    monkeypatch: pytest.MonkeyPatch,
    first: int,
    end: int,
    bounds: tuple[int, int],
    gap: tuple[int, int, Cause],
) -> None:
    """Two tasks can read parts of one partition: each checks again whether its gap still exists."""
    cluster, slept = FakeCluster(lambda: 0), []
    cluster.create_topic("flights")
    metadata_store = AdminMetadataStore(FakeAdmin(cluster))

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 1:
            # Another task has read the entry before this one wrote it, and writes its own.
            other = Gaps().plus(Gap(90, 95, Cause.EXPIRED, 1))
            metadata_store.write(gaps_group_of("readers"), {P0: Committed(95, other.encode())})

    monkeypatch.setattr(metadata_store_of_kafka, "KafkaMetadataStore", lambda _client, **_: metadata_store)
    monkeypatch.setattr(GapRecords.__init__, "__defaults__", (sleep,))
    go(Fetched(GONE, bounds=bounds), OffsetRange(P0, first, end), fail=False, records=True)
    recorded = Gaps.decode(cluster.all_committed(gaps_group_of("readers"))[P0].metadata).newest
    assert [(g.from_offset, g.to_offset, g.cause) for g in recorded] == [(90, 95, Cause.EXPIRED), gap]
    assert len(slept) == 2


def test_S7_gaps_of_several_partitions_are_recorded_together(
    go: Callable[..., Fetched], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The retention of a topic applies to all its partitions at the same time, and each record waits for its check."""
    cluster, slept = FakeCluster(lambda: 0), list[float]()
    cluster.create_topic("flights", 2)
    metadata_store = AdminMetadataStore(FakeAdmin(cluster))
    monkeypatch.setattr(metadata_store_of_kafka, "KafkaMetadataStore", lambda _client, **_: metadata_store)
    monkeypatch.setattr(GapRecords.__init__, "__defaults__", (slept.append,))
    gone = (False, [(tp, KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)) for tp in (P0, P1)])
    go(Fetched(gone, bounds=(4, 9)), OffsetRange(P0, 0, 9), OffsetRange(P1, 0, 9), fail=False, records=True)
    stored = cluster.all_committed(gaps_group_of("readers"))
    found = {tp: [(g.from_offset, g.to_offset) for g in Gaps.decode(it.metadata).newest] for tp, it in stored.items()}
    assert found == {P0: [(0, 4)], P1: [(0, 4)]}
    assert len(slept) == 1


def test_S7_gaps_that_are_found_one_after_the_other_are_recorded_together(
    go: Callable[..., Fetched], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record is a connection, and waits half a second for its check: hundreds of partitions would wait for minutes."""
    cluster, slept = FakeCluster(lambda: 0), list[float]()
    cluster.create_topic("flights", 2)
    metadata_store = AdminMetadataStore(FakeAdmin(cluster))
    monkeypatch.setattr(metadata_store_of_kafka, "KafkaMetadataStore", lambda _client, **_: metadata_store)
    monkeypatch.setattr(GapRecords.__init__, "__defaults__", (slept.append,))
    steps = [gone_of(P0), (True, ()), gone_of(P1), (False, [(P1, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))])]
    with pytest.raises(NotAuthorized):
        # The gaps of a read that fails are recorded too.
        go(Fetched(*steps, bounds=(4, 9)), OffsetRange(P0, 0, 9), OffsetRange(P1, 0, 9), fail=False, records=True)
    assert set(cluster.all_committed(gaps_group_of("readers"))) == {P0, P1}
    assert len(slept) == 1


def test_S4_a_range_that_passes_missing_offsets_makes_progress(go: Callable[..., Fetched]) -> None:
    """Hundreds of expired ranges take longer than the timeout of one range."""
    go(Fetched(gone_of(P0), bounds=(4, 9)), OffsetRange(P0, 0, 9), OffsetRange(P1, 0, 9), fail=False, timeout_ms=-1)
    go(Fetched(gone_of(P0), bounds=(4, 9)), OffsetRange(P0, 0, 3), OffsetRange(P1, 0, 9), fail=False, timeout_ms=-1)


def test_S4_a_leader_that_repeats_the_error_of_an_existing_offset_makes_no_progress(
    go: Callable[..., Fetched],
) -> None:
    with pytest.raises(ReadTimedOut, match=r"flights-0 \(to 9\)"):
        go(Fetched(*[gone_of(P0)] * 3, bounds=(0, 9)), OffsetRange(P0, 5, 9), fail=False, timeout_ms=-1)


def test_S4_the_bounds_of_many_partitions_are_requested_together(
    go: Callable[..., Fetched], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The native fetcher returns one error per call. A request for each partition takes minutes for thousands."""
    requested: list[tuple[str, int]] = []

    class Offsets:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            requested.append(("beginning", len(partitions)))
            return dict.fromkeys(partitions, 4)

        def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            requested.append(("end", len(partitions)))
            return dict.fromkeys(partitions, 9)

    monkeypatch.setattr(cluster_of_kafka, "KafkaCluster", Offsets)
    monkeypatch.setattr(Fetched, "bounds", None)
    many = [TopicPartition("flights", i) for i in range(300)]
    fetcher = go(Fetched(*map(gone_of, many)), *(OffsetRange(tp, 0, 3 + tp.partition % 3) for tp in many), fail=False)
    assert requested == [("beginning", 300), ("end", 300)]
    assert fetcher.continued == [(tp, 4) for tp in many if tp.partition % 3 == 2]
    assert fetcher.listed == 0


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("entry", ["by hand", Gaps().encode().replace('"v":1', '"v":2')])
def test_G17_an_unreadable_entry_is_not_overwritten(entry: str, alone: bool, caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(lambda: 0)
    cluster.create_topic("flights", 2)
    group = gaps_group_of("readers")
    cluster.commit(group, {P0: 9}, entry)
    records = GapRecords(lambda: AdminMetadataStore(FakeAdmin(cluster)), "readers", lambda: 0, lambda _: None)
    found = [PartitionGap(tp, Gap(4, 9, Cause.EXPIRED, 1)) for tp in (P0, P1)]
    records.record(found, alone=alone)
    stored = cluster.all_committed(group)
    assert (stored[P0].metadata, Gaps.decode(stored[P1].metadata).newest) == (entry, (found[1].gap,))
    [warning] = [it.getMessage() for it in caplog.records]
    assert (
        f"the gaps {P0}: expired, from 4 to 9 are not recorded. The entries of the metadata group '{group}'" in warning
    )


def test_S4_records_that_a_former_leader_does_not_have_are_requested_again(go: Callable[..., Fetched]) -> None:
    assert go(Fetched(GONE, bounds=(0, 9)), OffsetRange(P0, 5, 9)).continued == [(P0, 5)]


def test_G17_bounds_that_a_former_leader_does_not_return_are_requested_again(
    go: Callable[..., Fetched], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = deque([KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, None])

    def bounds(_: Fetched, __: TopicPartition) -> tuple[int, int]:
        if (code := answers.popleft()) is not None:
            raise KafkaException(KafkaError(code))
        return 0, 9

    monkeypatch.setattr(Fetched, "bounds", bounds)
    assert go(Fetched(GONE), OffsetRange(P0, 5, 9)).continued == [(P0, 5)]
    answers.append(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(NotAuthorized, match="Grant Read on Topic 'flights'"):
        go(Fetched(GONE), OffsetRange(P0, 5, 9))


def test_reports_on_a_range_that_has_ended_do_not_matter(go: Callable[..., Fetched]) -> None:
    go(Fetched((True, [(P1, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))])), OffsetRange(P0, 0, 5))


@pytest.mark.parametrize(
    ("code", "error"),
    [(KafkaError.TOPIC_AUTHORIZATION_FAILED, NotAuthorized), (KafkaError.UNKNOWN_TOPIC_OR_PART, UnknownTopic)],
)
def test_what_will_not_pass_is_an_error_at_once(
    go: Callable[..., Fetched], code: int, error: type[StreamGroupsError]
) -> None:
    with pytest.raises(error, match="flights"):
        go(Fetched((False, [(P0, KafkaError(code))])), OffsetRange(P0, 0, 5))


def test_a_login_that_is_rejected_for_too_long_ends_the_reading(
    go: Callable[..., Fetched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_outage, "PERMANENT_AFTER_MS", 0)
    rejected = (False, [(None, KafkaError(KafkaError._AUTHENTICATION))])
    with pytest.raises(LoginRejected):
        go(Fetched(rejected, (False, ())), OffsetRange(P0, 0, 5))


@pytest.mark.parametrize("permanent_after_ms", [0, 15_000])
def test_a_login_that_one_broker_rejects_does_not_end_the_reading(
    go: Callable[..., Fetched], monkeypatch: pytest.MonkeyPatch, permanent_after_ms: int
) -> None:
    """Another broker accepts it, or the same one a moment later: records arrive."""
    monkeypatch.setattr(login_outage, "PERMANENT_AFTER_MS", permanent_after_ms)
    rejected = [(None, KafkaError(KafkaError._AUTHENTICATION))]
    steps = [(True, rejected), (True, ()), (False, ()), (True, ())]
    if permanent_after_ms:
        steps = [(False, rejected), (False, ()), (True, ())]
    go(Fetched(*steps), OffsetRange(P0, 0, 5))


def test_a_broker_that_repeats_one_error_makes_no_progress(go: Callable[..., Fetched]) -> None:
    away = (False, [(None, KafkaError(KafkaError._TRANSPORT, "connection refused"))])
    with pytest.raises(ReadTimedOut, match=r"flights-0 \(to 5\).*connection refused"):
        go(Fetched(*[away] * 3), OffsetRange(P0, 0, 5), timeout_ms=-1)


def test_the_error_of_a_timeout_lists_some_partitions(go: Callable[..., Fetched]) -> None:
    many = [OffsetRange(TopicPartition("flights", i), 0, 5) for i in range(300)]
    with pytest.raises(ReadTimedOut, match=r"flights-9 \(to 5\) and 290 more\."):
        go(Fetched((False, ())), *many, timeout_ms=-1)


def test_a_client_that_cannot_be_created_is_an_error_of_this_library(go: Callable[..., Fetched]) -> None:
    def cannot(*_: object) -> Fetched:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "no such setting"))

    fetcher = Fetched()
    fetcher.closed = True
    fetcher.__class__ = type("Cannot", (Fetched,), {"__call__": cannot})
    with pytest.raises(StreamGroupsError, match="no such setting"):
        go(fetcher, OffsetRange(P0, 0, 5))


def test_an_error_of_the_client_reaches_the_reading(consumer: ScriptedConsumer) -> None:
    fetcher = PlainFetcher([OffsetRange(P0, 0, 5)], OFFSETS, HOW)
    consumer.settings["error_cb"](KafkaError(KafkaError._ALL_BROKERS_DOWN))
    consumer.fetched = deque([failed_fetch(P0, KafkaError.NOT_LEADER_FOR_PARTITION), Message(P1, 3)])
    _, errors = fetcher.fill()
    assert [(tp, error.code()) for tp, error in errors] == [
        (None, KafkaError._ALL_BROKERS_DOWN),
        (P0, KafkaError.NOT_LEADER_FOR_PARTITION),
    ]
    consumer.bounds[P0] = (2, 9)
    assert fetcher.bounds(P0) == (2, 9)
    fetcher.seek(P0, 2)
    assert fetcher.remaining() == [OffsetRange(P0, 2, 5)]
    assert consumer.assigned == {P0: 2}


def test_G17_gaps_of_many_partitions_are_one_short_warning(caplog: pytest.LogCaptureFixture) -> None:
    def unreachable() -> AdminMetadataStore:
        raise BrokerUnreachable("The broker does not respond.", remedy="Try again.")

    records = GapRecords(unreachable, "readers", lambda: 0)
    records.record([PartitionGap(TopicPartition("flights", n), Gap(4, 9, Cause.EXPIRED, 1)) for n in range(10_000)])
    [warning] = [it.getMessage() for it in caplog.records]
    assert "flights-0: expired, from 4 to 9" in warning
    assert len(warning) < 5_000
