"""Records with a key or value length below -1: brokers store them, and librdkafka delivers neither them nor an error."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from streamgroups.errors import BrokerUnreachable, StreamGroupsError
from streamgroups.fakes import FakeCluster
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_kafka import native
from streamgroups_kafka.admin import batch_fetch
from streamgroups_kafka.admin import stored_records as admin_records
from streamgroups_kafka.admin.batch_fetch import fetched_batches
from streamgroups_kafka.admin.batch_parser import ParsedBatch, parse_batch
from streamgroups_kafka.client import messages
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.cursors import reader as cursor_reader
from streamgroups_kafka.cursors.position_checks import TopicIds
from streamgroups_kafka.cursors.reader import RecordReader
from streamgroups_kafka.read import arrow_columns, range_reader
from streamgroups_kafka.read.arrow_columns import COLUMNS, to_batches
from streamgroups_kafka.read.fetcher import NewFetcher, ReadSettings
from streamgroups_kafka.read.native_fetcher import NativeFetcher
from streamgroups_kafka.read.plain_fetcher import PlainFetcher
from streamgroups_kafka.read.range_reader import _Reading
from unit_tests.raw_broker import RawBroker, RawSession, batch, header, record

P0 = TopicPartition("poison", 0)
CONFIG = ClientConfig.from_options({"bootstrap.servers": "127.0.0.1:1"})
POISON = batch(record(0, b"2"), record(1, key_size=-2, value=b"3"), record(2, value_size=-5))
#: Offsets 0 to 9; the last batch of two ends the partition.
BATCHES = (
    batch(record(0, b"0"), record(1, b"1")),
    POISON,
    batch(record(0, value_size=-2), codec="snappy"),
    batch(record(0, b"6"), record(1, b"7")),
    batch(record(0, b"8"), record(1, value_size=-2)),
)
VALUES = [b"0", b"1", b"2", b"3", None, None, b"6", b"7", b"8", None]
WARNING = (
    "poison-0@3: its key or value has a negative length, so it is null. Other records of this partition may have the same "
    "defect."
)


@pytest.fixture(scope="module")
def broker() -> Iterator[RawBroker]:
    with closing(RawBroker()) as broker:
        broker.create_topic("poison")
        for it in BATCHES:
            broker.append("poison", it)
        yield broker


@pytest.fixture
def config(broker: RawBroker, monkeypatch: pytest.MonkeyPatch) -> ClientConfig:
    session = RawSession(broker.log)
    monkeypatch.setattr(batch_fetch, "AdminSession", lambda *_, **__: session)
    monkeypatch.setattr(range_reader, "_STALLED_S", 0.5)
    monkeypatch.setattr(cursor_reader, "_STALLED_S", 0.5)
    monkeypatch.setattr(admin_records, "_STALLED_S", 0.5)
    messages._next_warning_s.clear()
    return ClientConfig.from_options({"bootstrap.servers": broker.bootstrap})


@pytest.fixture(params=["native", "plain"])
def new_fetcher(request: pytest.FixtureRequest) -> NewFetcher:
    if request.param == "native" and not native.status().available:
        pytest.skip(native.status().reason)
    return NativeFetcher if request.param == "native" else PlainFetcher


@pytest.mark.parametrize(("first", "end"), [(0, 10), (3, 5), (4, 7)])
def test_a_query_reads_them_in_order(
    new_fetcher: NewFetcher, config: ClientConfig, caplog: pytest.LogCaptureFixture, first: int, end: int
) -> None:
    schema = pa.schema([(name, COLUMNS[name]) for name in ("key", "value", "offset")])
    reading = _Reading(
        {P0: OffsetRange(P0, first, end)}, schema, ReadSettings(config, "g", timeout_ms=20_000), new_fetcher
    )
    table = pa.Table.from_batches(reading.batches(), schema)
    assert table.column("offset").to_pylist() == list(range(first, end))
    assert table.column("value").to_pylist() == VALUES[first:end]
    assert table.column("key").null_count == len(table)
    assert WARNING in [r.getMessage() for r in caplog.records]


def test_a_group_cursor_reads_them(config: ClientConfig) -> None:
    cluster = FakeCluster(lambda: 0)
    cluster.create_topic("poison")
    cluster.leave_gap(P0, 10)
    with closing(
        RecordReader(config, group_id="g", client_id=None, offsets=cluster, ids=TopicIds(cluster, lambda: 0))
    ) as reader:
        found: list[Any] = []
        position = 0
        while position < 10:
            one = reader.read({P0: position}, 4)
            found += [(it.offset, it.value) for it in one.messages]
            position = one.reached[P0]
        assert found == list(enumerate(VALUES))
        assert [it.value for it in reader.read({P0: 0}, 20, {P0: 5}).messages] == VALUES[:5]


def test_commands_read_them(config: ClientConfig) -> None:
    found = list(admin_records.stored_records(config, {P0: 0}, {P0: 10}))
    assert [(it.offset, it.value) for it in found] == list(enumerate(VALUES))
    assert [it.offset for it in admin_records.stored_records(config, {P0: 3}, {P0: 5})] == [3, 4]


def test_a_damaged_batch_is_an_error_with_its_offset(config: ClientConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = RawSession({P0: [BATCHES[0], stored(2, POISON[:-1] + b"\x07")]})
    monkeypatch.setattr(batch_fetch, "AdminSession", lambda *_, **__: damaged)
    with pytest.raises(StreamGroupsError, match=r"poison-0@2: the record batch .* its CRC is wrong") as raised:
        next(iter(fetched_batches(config, [OffsetRange(P0, 2, 5)])))
    assert "streamgroups groups reset" in raised.value.remedy
    assert (raised.value.topic, raised.value.partition) == ("poison", 0)
    assert damaged.closed == 1


# ---- the fetch of batches ----------------------------------------------------------------------------------------------


def stored(base: int, data: bytes) -> bytes:
    return struct.pack(">q", base) + data[8:]


def fetched(
    session: RawSession, monkeypatch: pytest.MonkeyPatch, isolation: str = "read_uncommitted"
) -> list[list[int]]:
    """The offsets of each batch."""
    monkeypatch.setattr(batch_fetch, "AdminSession", lambda *_, **__: session)
    config = ClientConfig.from_options({"bootstrap.servers": "127.0.0.1:1", "isolation.level": isolation})
    ranges = [OffsetRange(P0, 0, 100)]
    return [[it.offset() for it in found.records] for _, found in fetched_batches(config, ranges)]


def test_a_batch_that_librdkafka_parses_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    poison, fine = batch(record(0, value_size=-2)), batch(record(0))
    session = RawSession({P0: [stored(0, poison), stored(1, poison), stored(2, fine), stored(3, poison)]})
    assert fetched(session, monkeypatch) == [[0], [1]]
    session = RawSession({P0: [stored(0, fine), stored(1, poison)]})
    assert fetched(session, monkeypatch) == [], "librdkafka delivers the first one"
    assert fetched(RawSession({P0: []}), monkeypatch) == []


@pytest.mark.parametrize(("isolation", "offsets"), [("read_committed", []), ("read_uncommitted", [0])])
def test_aborted_records_are_not_read(monkeypatch: pytest.MonkeyPatch, isolation: str, offsets: list[int]) -> None:
    data = batch(record(0, value_size=-2), attributes=0x10, producer_id=5)
    aborted = [SimpleNamespace(producer_id=5, first_offset=0)]
    assert fetched(RawSession({P0: [data]}, aborted), monkeypatch, isolation) == [offsets]
    later = [SimpleNamespace(producer_id=5, first_offset=1), SimpleNamespace(producer_id=6, first_offset=0)]
    assert fetched(RawSession({P0: [data]}, later), monkeypatch, isolation) == [[0]]


def test_aborted_batches_before_it_are_no_reason_to_seek(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka skips them without a change of the position."""
    aborted = [SimpleNamespace(producer_id=5, first_offset=0)]
    gone = batch(record(0), attributes=0x10, producer_id=5)
    skipped = [stored(n, gone) for n in range(3)]
    session = RawSession({P0: skipped}, aborted)
    assert fetched(session, monkeypatch, "read_committed") == []
    session = RawSession({P0: [*skipped, stored(3, batch(record(0, value_size=-2)))]}, aborted)
    assert fetched(session, monkeypatch, "read_committed") == [[3]]


def test_librdkafka_parses_earlier_message_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    old = struct.pack(">qiiBB", 0, 40, 0, 1, 0) + bytes(34)
    assert fetched(RawSession({P0: [old]}), monkeypatch) == []


def test_the_error_of_a_broker_is_left_to_librdkafka(monkeypatch: pytest.MonkeyPatch) -> None:
    session = RawSession({P0: [POISON]}, error_code=6)
    assert fetched(session, monkeypatch) == []
    assert session.closed == 1
    monkeypatch.setattr(batch_fetch, "_LAST_REQUEST_S", 0.0)
    late = RawSession({P0: [POISON]})
    assert fetched(late, monkeypatch) == []
    assert late.requests == []

    def away(*_: object, **__: object) -> None:
        raise BrokerUnreachable("away", remedy="wait")

    monkeypatch.setattr(batch_fetch, "AdminSession", away)
    assert list(fetched_batches(CONFIG, [OffsetRange(P0, 0, 5)])) == []


# ---- the parser --------------------------------------------------------------------------------------------------------


def parsed(data: bytes, max_bytes: int = 1_000_000) -> ParsedBatch:
    return parse_batch(P0, stored(7, data), max_bytes)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_each_codec(codec: str) -> None:
    values = [bytes([n % 251]) * n for n in (0, 1, 40_000, 70_000)]
    records = [record(n, value, (header(b"h", value), header(b"", None))) for n, value in enumerate(values)]
    data = batch(*records, codec=codec)
    found = parsed(data)
    assert [(it.offset(), it.value(), it.key()) for it in found.records] == [
        (7 + n, v, None) for n, v in enumerate(values)
    ]
    assert [it.headers() for it in found.records] == [[("h", v), ("", None)] for v in values]
    assert (found.next_offset, found.bad_length_offset, found.transactional_producer) == (11, None, None)
    if codec != "none":
        with pytest.raises(ValueError, match="larger than 220000 bytes"):
            parsed(data, 220_000)


def test_snappy_without_the_format_of_java() -> None:
    records = record(0, b"x" * 300)
    data = batch(records, codec="snappy", body=pa.compress(records, codec="snappy", asbytes=True))
    assert parsed(data).records[0].value() == b"x" * 300
    with pytest.raises(ValueError, match="larger than 300 bytes"):
        parsed(data, 300)


@pytest.mark.parametrize(("attributes", "expected"), [(0, (1, -(2**62))), (0x08, (2, -(2**62)))])
def test_the_type_of_a_timestamp(attributes: int, expected: tuple[int, int]) -> None:
    (found,) = parsed(batch(record(0), timestamp_ms=-(2**62), attributes=attributes)).records
    assert found.timestamp() == expected


def test_markers_of_transactions_are_no_records() -> None:
    found = parsed(batch(record(0), attributes=0x30, producer_id=5))
    assert (found.records, found.next_offset, found.transactional_producer) == ((), 8, 5)


def test_header_names_that_are_not_utf_8(caplog: pytest.LogCaptureFixture) -> None:
    messages._next_warning_s.clear()
    found = parsed(batch(record(0, headers=(header(b"\xff", b"x"),)), record(1, headers=(header(b"a\0b", b"1"),))))
    (columns,) = to_batches(found.records, pa.schema([("headers", COLUMNS["headers"])]))
    assert columns.column("headers").to_pylist() == [None, [{"key": "a\0b", "value": b"1"}]]
    assert "poison-0@7: a header name" in caplog.text


DAMAGED = {
    "empty": b"",
    "header": POISON[:60],
    "end": POISON[:-1],
    "size": batch(record(0), body=record(0)[:-1]),
    "count": batch(record(0), record(1), body=record(0)),
    "more": batch(record(0), body=record(0) * 2),
    "number": batch(record(0), body=b"\x80" * 1_000_000),
    "too long": batch(record(0), body=b"\x20" + record(0)[1:]),
    "value": batch(record(0, value_size=9)),
    "headers": batch(record(0), body=b"\x0c\0\0\0\x01\x01\x01"),
    "header name": batch(record(0, headers=(b"\x01\x01",))),
    "header value": batch(record(0, headers=(b"\0\x08",))),
    "gzip": batch(record(0), codec="gzip", body=b"no gzip"),
    "snappy": batch(record(0), codec="snappy", body=b"\x08no snappy"),
    "blocks": batch(record(0), codec="snappy", body=b"\x82SNAPPY\0" + bytes(11)),
    "codec": batch(record(0), attributes=7),
    "format": POISON[:16] + b"\x01" + POISON[17:],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_batches(name: str) -> None:
    with pytest.raises(ValueError, match=r"\bit is|\bit has|\bits|a record|a number"):
        parse_batch(P0, DAMAGED[name], 1_000_000)


def test_batches_of_limited_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_columns, "BATCH_BYTES", 10)
    found = parsed(batch(*(record(n, b"x" * size) for n, size in enumerate((4, 6, 1, 20, 3)))))
    schema = pa.schema([("value", pa.binary())])

    def sizes(records: Sequence[Any]) -> list[list[int]]:
        return [[len(v) for v in it.column("value").to_pylist()] for it in to_batches(records, schema)]

    assert sizes(found.records) == [[4, 6], [1], [20], [3]]
    assert sizes(()) == []
