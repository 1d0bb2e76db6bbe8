"""The native and the plain reader return the records that were written: every column, every null, every gap."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamgroups.errors import DataLoss, ReadTimedOut, StreamGroupsError
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.data_loss import LossPolicies, OnDataLoss
from streamgroups_kafka import native
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.read import native_fetcher
from streamgroups_kafka.read.arrow_columns import COLUMNS
from streamgroups_kafka.read.fetcher import ReadSettings
from streamgroups_kafka.read.range_reader import read_ranges
from streamgroups_testkit.producing import ordered_producer, produce
from streamgroups_testkit.waits import wait_until
from unit_tests.examples import examples
from unit_tests.raw_broker import batch, record
from unit_tests.raw_broker import produce as append

SCHEMA = pa.schema(list(COLUMNS.items()))


@pytest.fixture(scope="module", autouse=True)
def _native_is_built() -> None:
    """This suite requires a compiler, so a missing native reader is an error."""
    assert native.status().available, native.status().reason


@pytest.fixture(autouse=True, params=["native", "plain"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The reader that the test uses."""
    monkeypatch.setenv("STREAMGROUPS_READER", request.param)
    return str(request.param)


@pytest.fixture
def to_read(bootstrap: str) -> Callable[..., ReadSettings]:
    def make(**options: str) -> ReadSettings:
        return ReadSettings(ClientConfig.from_options({"bootstrap.servers": bootstrap, **options}), "readers")

    return make


def read(ranges: Sequence[OffsetRange], how: ReadSettings, schema: pa.Schema = SCHEMA) -> pa.Table:
    table = pa.Table.from_batches(read_ranges(ranges, schema, how), schema)
    table.validate(full=True)
    return table


def of(topic: str, partition: int, next_offset: int, end_offset: int) -> OffsetRange:
    return OffsetRange(TopicPartition(topic, partition), next_offset, end_offset)


_BYTES = st.none() | st.binary(max_size=40)
_NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
_HEADERS = st.lists(st.tuples(_NAMES, _BYTES), max_size=4)
_RECORDS = st.lists(st.tuples(_BYTES, _BYTES, _HEADERS, st.integers(0, 2)), min_size=1, max_size=60)


@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    records=_RECORDS,
    columns=st.lists(st.sampled_from(list(COLUMNS)), unique=True, min_size=1),
    cuts=st.randoms(use_true_random=False),
)
def test_whatever_was_written_is_read(
    bootstrap: str,
    new_topic: Callable[..., str],
    to_read: Callable[..., ReadSettings],
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]],
    columns: list[str],
    cuts: random.Random,
) -> None:
    """Nulls, empty values and headers, in any range of a partition and any selection of columns."""
    topic = new_topic(3)
    producer = ordered_producer(bootstrap)
    expected: list[list[dict[str, object]]] = [[], [], []]
    for i, (key, value, headers, partition) in enumerate(records):
        producer.produce(topic, value, key, partition, headers=list(headers), timestamp=1_000_000 + i)
        expected[partition].append(
            {
                "key": key,
                "value": value,
                "topic": topic,
                "partition": partition,
                "offset": len(expected[partition]),
                "timestamp": (1_000_000 + i) * 1_000,
                "timestampType": 0,
                "headers": [{"key": name, "value": of_header} for name, of_header in headers] or None,
            }
        )
    assert producer.flush(30) == 0
    ranges = []
    for partition, rows in enumerate(expected):
        first = cuts.randint(0, len(rows))
        ranges.append(of(topic, partition, first, cuts.randint(first, len(rows))))
    schema = pa.schema([(name, COLUMNS[name]) for name in columns])
    whole = read(ranges, to_read())
    for partition, r in enumerate(ranges):
        rows = [row for row in _rows(whole) if row["partition"] == partition]
        assert rows == expected[partition][r.next_offset : r.end_offset]
    chosen = read(ranges, to_read(), schema)
    assert chosen.column_names == columns
    assert chosen.num_rows == whole.num_rows


def _rows(table: pa.Table) -> Iterator[dict[str, object]]:
    times = table.column("timestamp").cast(pa.int64()).to_pylist()
    for row, time_us in zip(table.to_pylist(), times, strict=True):
        yield {**row, "timestamp": time_us}


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression_and_large_records(
    bootstrap: str, new_topic: Callable[..., str], to_read: Callable[..., ReadSettings], compression: str
) -> None:
    topic = new_topic(2, max_message_bytes="10485760")
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": compression,
            "message.max.bytes": 10_000_000,
            # So that a retried batch does not follow the next one.
            "enable.idempotence": True,
        }
    )
    sizes = [1, 100, 10_000, 1_000_000, 3_000_000] * 4
    for i, size in enumerate(sizes):
        producer.produce(topic, bytes([i]) * size, partition=i % 2)
    assert producer.flush(60) == 0
    table = read([of(topic, 0, 0, 10), of(topic, 1, 0, 10)], to_read())
    for partition in range(2):
        values = [row["value"] for row in table.to_pylist() if row["partition"] == partition]
        assert values == [bytes([i]) * size for i, size in enumerate(sizes) if i % 2 == partition]


def test_transactions_leave_gaps_but_no_records_behind(
    bootstrap: str, new_topic: Callable[..., str], to_read: Callable[..., ReadSettings]
) -> None:
    """G13: transaction markers and aborted records do not block a reader, also at the end of a range."""
    topic = new_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{topic}"})
    producer.init_transactions(30)
    for n, commit in enumerate([True, False, True, False]):
        producer.begin_transaction()
        for i in range(5):
            producer.produce(topic, b"%d-%d" % (n, i), partition=0)
        # An abort drops unsent records without a gap.
        assert producer.flush(30) == 0
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    end = 4 * 6
    committed = [b"%d-%d" % (n, i) for n in (0, 2) for i in range(5)]
    every = [b"%d-%d" % (n, i) for n in range(4) for i in range(5)]
    assert (
        read([of(topic, 0, 0, end)], to_read(**{"isolation.level": "read_committed"}))["value"].to_pylist() == committed
    )
    assert read([of(topic, 0, 0, end)], to_read())["value"].to_pylist() == every
    # A range that consists of markers, and one that ends with them.
    assert read([of(topic, 0, 5, 6)], to_read()).num_rows == 0
    assert read([of(topic, 0, 6, 12)], to_read(**{"isolation.level": "read_committed"})).num_rows == 0


def test_one_partition_in_several_ranges(
    bootstrap: str, new_topic: Callable[..., str], to_read: Callable[..., ReadSettings]
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, 100, partitions=2)
    ranges = [of(topic, 0, 40, 50), of(topic, 0, 0, 10), of(topic, 1, 7, 9), of(topic, 0, 10, 40), of(topic, 1, 0, 0)]
    table = read(ranges, to_read())
    assert [row["offset"] for row in table.to_pylist() if row["partition"] == 0] == list(range(50))
    assert [row["offset"] for row in table.to_pylist() if row["partition"] == 1] == [7, 8]


def test_batch_after_batch(bootstrap: str, new_topic: Callable[..., str], to_read: Callable[..., ReadSettings]) -> None:
    """The cached state of a reader serves the next range, a later one, an earlier one, and those of other
    partitions.
    """
    topic = new_topic(4)
    produce(bootstrap, topic, 40_000, partitions=4)
    how = to_read()
    dice = random.Random(4)
    positions = [0, 0, 0, 0]
    for turn in range(60):
        chosen = dice.sample(range(4), dice.randint(1, 4))
        for partition in chosen:
            jump = dice.choice([0, 0, 0, 3, 500, -200])
            positions[partition] = max(0, min(9_900, positions[partition] + jump))
        ranges = [of(topic, p, positions[p], positions[p] + dice.randint(1, 90)) for p in chosen]
        table = read(ranges, how)
        for r in ranges:
            got = [row["offset"] for row in table.to_pylist() if row["partition"] == r.topic_partition.partition]
            assert got == list(range(r.next_offset, r.end_offset)), f"turn {turn}: {r}"
            positions[r.topic_partition.partition] = r.end_offset


def test_records_that_come_while_it_waits(
    bootstrap: str, new_topic: Callable[..., str], to_read: Callable[..., ReadSettings]
) -> None:
    """A reader with cached state follows a topic that grows, batch by batch, to its end."""
    topic = new_topic(2)
    how = to_read()
    for turn in range(20):
        produce(bootstrap, topic, 10, partitions=2, first=10 * turn)
        table = read([of(topic, p, 5 * turn, 5 * turn + 5) for p in range(2)], how)
        assert sorted(map(int, (v.rstrip(b".") for v in table["value"].to_pylist()))) == list(
            range(10 * turn, 10 * turn + 10)
        )


def test_gone_is_an_error_or_passed_over(
    bootstrap: str, admin: AdminClient, new_topic: Callable[..., str], to_read: Callable[..., ReadSettings]
) -> None:
    """S7, also if the records are deleted after the reader has started."""
    topic = new_topic(1)
    produce(bootstrap, topic, 100, partitions=1)
    assert read([of(topic, 0, 0, 10)], to_read()).num_rows == 10
    for future in admin.delete_records([confluent_kafka.TopicPartition(topic, 0, 60)]).values():
        future.result(30)
    with pytest.raises(
        DataLoss, match=rf"{topic}-0\[5,80\) cannot be read, because {topic}-0 now contains \[60, 100\)"
    ):
        read([of(topic, 0, 5, 80)], to_read())
    lenient = ReadSettings(to_read().client, "readers", on_data_loss=LossPolicies(OnDataLoss.EARLIEST))
    assert read([of(topic, 0, 5, 80)], lenient)["offset"].to_pylist() == list(range(60, 80))
    assert read([of(topic, 0, 5, 50)], lenient).num_rows == 0


def test_silence_is_an_error_that_names_the_partition(
    new_topic: Callable[..., str], to_read: Callable[..., ReadSettings]
) -> None:
    topic = new_topic(1)
    impatient = ReadSettings(to_read().client, "readers", timeout_ms=1_000)
    with pytest.raises(ReadTimedOut, match=rf"within 1 s from {topic}-0 \(to 5\)"):
        read([of(topic, 0, 0, 5)], impatient)


def _is_appended(broker: tuple[str, int], topic: str, data: bytes) -> bool:
    code = append(broker, topic, data)
    assert code in (0, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)
    return code == 0


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_negative_lengths_are_null(
    bootstrap: str, new_topic: Callable[..., str], to_read: Callable[..., ReadSettings], codec: str
) -> None:
    """librdkafka delivers neither these records nor an error. A broker stores them, and returns them without librdkafka."""
    # The records are older than the default retention, which a broker checks every five minutes.
    topic = new_topic(1, retention_ms="-1")
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    poison = batch(record(0, key_size=-2), record(1, value_size=-5), codec=codec)
    for data in (batch(record(0)), poison, poison, batch(record(0))):
        # A new partition has no leader for a moment.
        wait_until(partial(_is_appended, (host, int(port)), topic, data), "the batch is appended")
    for isolation in ("read_uncommitted", "read_committed"):
        how = to_read(**{"isolation.level": isolation})
        settings = ReadSettings(how.client, "readers", timeout_ms=4_000)
        table = read([of(topic, 0, 0, 6)], settings)
        assert table["offset"].to_pylist() == list(range(6))
        assert table["value"].to_pylist() == [b"v", b"v", None, b"v", None, b"v"]


def test_an_unknown_topic_or_partition_is_an_error(
    new_topic: Callable[..., str], to_read: Callable[..., ReadSettings]
) -> None:
    topic = new_topic(1)
    for place in (of("no-such-topic", 0, 0, 5), of(topic, 7, 0, 5)):
        with pytest.raises(StreamGroupsError, match=place.topic_partition.topic):
            read([place], ReadSettings(to_read().client, "readers", timeout_ms=1_000))


def test_a_reading_that_is_ended_leaves_nothing_behind(
    bootstrap: str, new_topic: Callable[..., str], to_read: Callable[..., ReadSettings]
) -> None:
    """Spark closes the iterator of a task if no operator needs further rows (``limit``)."""
    topic = new_topic(1)
    produce(bootstrap, topic, 20_000, partitions=1, size_bytes=1_000)
    kept = len(native_fetcher.WARM)
    batches = read_ranges([of(topic, 0, 0, 20_000)], SCHEMA, to_read(**{"client.id": topic}))
    assert next(iter(batches)).num_rows > 0
    batches.close()  # type: ignore[attr-defined]
    assert len(native_fetcher.WARM) == kept
