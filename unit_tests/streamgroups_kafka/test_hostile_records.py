"""What every producer may write: header names that are not UTF-8, absurd timestamps, headers without end. Both readers do the same with it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from streamgroups.errors import StreamGroupsError
from streamgroups.fakes import FakeCluster
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_kafka import native
from streamgroups_kafka.admin.stored_records import stored_records
from streamgroups_kafka.client import messages
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.cursors import reader as cursor_reader
from streamgroups_kafka.cursors.position_checks import TopicIds
from streamgroups_kafka.cursors.reader import RecordReader
from streamgroups_kafka.read.arrow_columns import COLUMNS
from streamgroups_kafka.read.fetcher import BATCH_BYTES, NewFetcher, ReadSettings
from streamgroups_kafka.read.native_fetcher import NativeFetcher
from streamgroups_kafka.read.plain_fetcher import PlainFetcher
from streamgroups_kafka.read.range_reader import _Reading
from unit_tests.raw_broker import RawBroker, batch, header, record

HEADERS = TopicPartition("headers", 0)
TIMES = TopicPartition("times", 0)
NOT_UTF_8 = header(b"\xff\xfe", b"x")
FITS_MS = (2**63 - 1) // 1_000


@pytest.fixture(scope="module")
def broker() -> Iterator[RawBroker]:
    with closing(RawBroker()) as broker:
        broker.create_topic("headers")
        bad = record(1, b"bad", headers=(header(b"good", b"1"), NOT_UTF_8))
        good = record(2, b"good", headers=(header(b"h", b"1"), header(b"h", None), header("ключ".encode())))
        broker.append("headers", batch(record(0), bad, good))
        broker.create_topic("times")
        for timestamp_ms in (1_000, FITS_MS, FITS_MS + 1, 2**63 - 1, -FITS_MS - 1, -(2**62)):
            broker.append("times", batch(record(0), timestamp_ms=timestamp_ms))
        yield broker


@pytest.fixture
def config(broker: RawBroker) -> ClientConfig:
    return ClientConfig.from_options({"bootstrap.servers": broker.bootstrap})


def holding(tp: TopicPartition, end_offset: int) -> FakeCluster:
    """The range of a partition for a reader, with this number of offsets."""
    cluster = FakeCluster(lambda: 0)
    cluster.create_topic(tp.topic)
    cluster.leave_gap(tp, end_offset)
    return cluster


def new_reader(config: ClientConfig, tp: TopicPartition, end_offset: int) -> RecordReader:
    cluster = holding(tp, end_offset)
    return RecordReader(config, group_id="g", client_id=None, offsets=cluster, ids=TopicIds(cluster, lambda: 0))


@pytest.fixture(params=["native", "plain"])
def new_fetcher(request: pytest.FixtureRequest) -> NewFetcher:
    if request.param == "native" and not native.status().available:
        pytest.skip(native.status().reason)
    return NativeFetcher if request.param == "native" else PlainFetcher


@pytest.fixture(autouse=True)
def _not_warned() -> None:
    messages._next_warning_s.clear()


def read(
    new_fetcher: NewFetcher, config: ClientConfig, tp: TopicPartition, n: int, columns: Sequence[str]
) -> list[pa.RecordBatch]:
    schema = pa.schema([(name, COLUMNS[name]) for name in columns])
    settings = ReadSettings(config, "g", timeout_ms=20_000)
    batches = list(_Reading({tp: OffsetRange(tp, 0, n)}, schema, settings, new_fetcher).batches())
    for it in batches:
        it.validate(full=True)
    return batches


def test_a_header_name_that_is_not_utf_8_makes_the_headers_null(
    new_fetcher: NewFetcher, config: ClientConfig, caplog: pytest.LogCaptureFixture
) -> None:
    (found,) = read(new_fetcher, config, HEADERS, 3, ["value", "headers"])
    good = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}, {"key": "ключ", "value": b""}]
    assert found.to_pydict() == {"value": [b"v", b"bad", b"good"], "headers": [None, None, good]}
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        "headers-0@1: a header name is not UTF-8, so its headers are null. Other records of this partition may have the same defect."
    ]


@pytest.mark.parametrize("name", ["many", "length"])
def test_headers_that_librdkafka_cannot_parse_are_null(
    broker: RawBroker, new_fetcher: NewFetcher, config: ClientConfig, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """confluent-kafka hides the error, so the plain reader does not log it."""
    one = header(b"h", b"1")
    bad = (one,) * 100_001 if name == "many" else (one, b"\2g\3")
    tp = TopicPartition(f"unparsed-{name}", 0)
    if tp not in broker.log:
        broker.create_topic(tp.topic)
        broker.append(tp.topic, batch(record(0), record(1, headers=(one,)), record(2, headers=bad)))
    (found,) = read(new_fetcher, config, tp, 3, ["headers"])
    assert found.column("headers").to_pylist() == [None, [{"key": "h", "value": b"1"}], None]
    expected = f"{tp}@2: librdkafka cannot parse its headers, so they are null. Other records of this partition may have the same defect."
    assert [r.getMessage() for r in caplog.records] == ([expected] if new_fetcher is NativeFetcher else [])


def test_a_header_name_ends_at_a_nul_byte(broker: RawBroker, new_fetcher: NewFetcher, config: ClientConfig) -> None:
    """A limit of librdkafka that the documentation states."""
    tp = TopicPartition("nul", 0)
    if tp not in broker.log:
        broker.create_topic("nul")
        broker.append("nul", batch(record(0, headers=(header(b"a\0b", b"1"), header(b"\0\xff", None)))))
    (found,) = read(new_fetcher, config, tp, 1, ["headers"])
    assert found.column("headers").to_pylist() == [[{"key": "a", "value": b"1"}, {"key": "", "value": None}]]


def test_headers_that_are_not_selected_are_not_parsed(
    new_fetcher: NewFetcher, config: ClientConfig, caplog: pytest.LogCaptureFixture
) -> None:
    (found,) = read(new_fetcher, config, HEADERS, 3, ["value"])
    assert found.num_rows == 3
    assert not caplog.records


def test_a_timestamp_that_does_not_fit_is_null(
    new_fetcher: NewFetcher, config: ClientConfig, caplog: pytest.LogCaptureFixture
) -> None:
    (found,) = read(new_fetcher, config, TIMES, 6, ["offset", "timestamp"])
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [1_000_000, FITS_MS * 1_000, *[None] * 4]
    assert [r.getMessage()[:57] for r in caplog.records] == [
        "times-0@2: its timestamp is outside the range of microsec"
    ]
    (without,) = read(new_fetcher, config, TIMES, 6, ["offset"])
    assert without.num_rows == 6


def test_a_group_cursor_continues_behind_such_records(config: ClientConfig, caplog: pytest.LogCaptureFixture) -> None:
    reader = new_reader(config, HEADERS, 3)
    with closing(reader):
        messages = reader.read({HEADERS: 0}, 10).messages
    assert [(m.value, m.headers[:1]) for m in messages] == [(b"v", ()), (b"bad", ()), (b"good", (("h", b"1"),))]
    assert "headers-0@1: a header name" in caplog.text


def test_each_partition_and_defect_has_a_warning(
    broker: RawBroker, new_fetcher: NewFetcher, config: ClientConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """The first 16 defects of a client were those of one partition."""
    topic = "flaws"
    partitions = [TopicPartition(topic, p) for p in range(4)]
    if partitions[0] not in broker.log:
        broker.create_topic(topic)
        bad = batch(*(record(n, headers=(NOT_UTF_8,)) for n in range(20)))
        for tp in partitions[:3]:
            broker.append(topic, bad, tp.partition)
        broker.append(topic, batch(record(0), timestamp_ms=FITS_MS + 1), 2)
        broker.append(topic, batch(record(0, headers=(NOT_UTF_8,)), timestamp_ms=FITS_MS + 1), 3)
    ranges = {tp: OffsetRange(tp, 0, end) for tp, end in zip(partitions, (20, 20, 21, 1), strict=True)}
    schema = pa.schema([(name, COLUMNS[name]) for name in ("headers", "timestamp")])
    list(_Reading(ranges, schema, ReadSettings(config, "g", timeout_ms=20_000), new_fetcher).batches())
    places = sorted(r.getMessage().partition(".")[0].partition(",")[0] for r in caplog.records)
    name, time = "a header name is not UTF-8", "its timestamp is outside the range of microseconds"
    assert places == [
        f"flaws-0@0: {name}",
        f"flaws-1@0: {name}",
        f"flaws-2@0: {name}",
        f"flaws-2@20: {time}",
        f"flaws-3@0: {name}",
        f"flaws-3@0: {time}",
    ]


def test_many_such_records_end_no_process(
    broker: RawBroker, new_fetcher: NewFetcher, config: ClientConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """confluent-kafka returns a list with a hole, and sets an exception that a call in a hot loop does not check: a segmentation fault."""
    topic = f"many-{new_fetcher.__name__}"
    broker.create_topic(topic)
    broker.append(topic, batch(*(record(n, headers=(NOT_UTF_8, header(b"good"), NOT_UTF_8)) for n in range(500))))
    batches = read(new_fetcher, config, TopicPartition(topic, 0), 500, ["headers"])
    assert [it.column("headers").null_count for it in batches] == [500]
    assert len(caplog.records) == 1


def test_topics_tail_shows_such_records(config: ClientConfig, caplog: pytest.LogCaptureFixture) -> None:
    found = list(stored_records(config, {HEADERS: 0}, {HEADERS: 3}))
    assert [(r.value, len(r.headers)) for r in found] == [(b"v", 0), (b"bad", 0), (b"good", 3)]
    assert "headers-0@1: a header name" in caplog.text
    assert [r.timestamp_ms for r in stored_records(config, {TIMES: 0}, {TIMES: 6})][3] == 2**63 - 1


@pytest.mark.parametrize(
    ("topic", "data", "happened", "remedy"),
    [
        (
            "no-gzip",
            batch(record(0), record(1), codec="gzip", body=b"no gzip"),
            "the next record batch cannot be decompressed",
            "Raise 'kafka.receive.message.max.bytes'",
        ),
        ("crc", batch(record(0), record(1))[:-1] + b"\1", "the next record batch is damaged", "groups reset"),
    ],
)
def test_a_batch_that_librdkafka_rejects_is_named(
    broker: RawBroker,
    new_fetcher: NewFetcher,
    config: ClientConfig,
    topic: str,
    data: bytes,
    happened: str,
    remedy: str,
) -> None:
    tp = TopicPartition(topic, 0)
    if tp not in broker.log:
        broker.create_topic(topic)
        broker.append(topic, batch(record(0)))
        broker.append(topic, data)
    with pytest.raises(StreamGroupsError, match=f"Reading {topic}-0 at offset 1: {happened}") as raised:
        read(new_fetcher, config, tp, 3, ["value"])
    assert remedy in raised.value.remedy
    with (
        closing(new_reader(config, tp, 3)) as reader,
        pytest.raises(StreamGroupsError, match=f"Reading {topic}-0 at offset 1: {happened}"),
    ):
        reader.read({tp: 1}, 10)


class TestMemory:
    def test_headers_without_name_and_value_count(
        self, broker: RawBroker, config: ClientConfig, new_fetcher: NewFetcher
    ) -> None:
        """M1: 318 KB on the topic made one batch of 254 MB."""
        broker.create_topic("bomb")
        many = (header(b""),) * 500
        bomb = batch(*(record(n, b"", many) for n in range(4_096)), compressed=True)
        assert len(bomb) < 100_000
        broker.append("bomb", bomb)
        batches = read(new_fetcher, config, TopicPartition("bomb", 0), 4_096, ["headers"])
        assert sum(it.num_rows for it in batches) == 4_096
        assert max(it.nbytes for it in batches) < 2 * BATCH_BYTES

    def test_a_record_that_would_pass_the_limit_waits_for_the_next_batch(
        self, broker: RawBroker, config: ClientConfig, new_fetcher: NewFetcher
    ) -> None:
        broker.create_topic("large")
        for size in (BATCH_BYTES - 1, 2, BATCH_BYTES + 5, 1, 3):
            broker.append("large", batch(record(0, b"x" * size), compressed=True))
        batches = read(new_fetcher, config, TopicPartition("large", 0), 5, ["value", "offset"])
        assert [it.column("offset").to_pylist() for it in batches] == [[0], [1], [2], [3, 4]]

    def test_a_cursors_request_counts_headers(
        self, broker: RawBroker, config: ClientConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broker.create_topic("much")
        broker.append("much", batch(*(record(n, b"", (header(b""),) * 10) for n in range(100))))
        monkeypatch.setattr(cursor_reader, "_FETCH_BYTES", 50_000)
        tp = TopicPartition("much", 0)
        reader = new_reader(config, tp, 100)
        with closing(reader):
            assert len(reader.read({tp: 0}, 100).messages) == 50


@pytest.mark.parametrize("seed", range(20))
def test_no_batch_of_random_bytes_stops_a_process(broker: RawBroker, config: ClientConfig, seed: int) -> None:
    """What librdkafka rejects it rejects as corrupt; what it accepts comes out the same from both readers."""
    if not native.status().available:
        pytest.skip(native.status().reason)
    by = random.Random(seed)
    names = [
        bytes(by.choice((0x61, 0xC3, 0xA9, 0xFF, 0xED, 0xA0, 0x80)) for _ in range(by.randint(0, 4))) for _ in "abcd"
    ]
    headers = tuple(header(by.choice(names), by.choice((None, b"", b"x" * 40))) for _ in range(by.randint(0, 6)))
    topic = f"random-{seed}"
    broker.create_topic(topic)
    made = [record(n, bytes(by.randbytes(by.randint(0, 50))), headers[: by.randint(0, 6)]) for n in range(20)]
    broker.append(
        topic, batch(*made, timestamp_ms=by.choice((0, -1, 10**15, FITS_MS + 1)), compressed=by.random() < 0.5)
    )
    columns: list[Any] = [
        pa.Table.from_batches(read(fetcher, config, TopicPartition(topic, 0), 20, list(COLUMNS)))
        for fetcher in (NativeFetcher, PlainFetcher)
    ]
    assert columns[0].equals(columns[1])
