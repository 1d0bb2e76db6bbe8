"""X2: record batches made of Arrow: the same bytes natively and by kafka-python, read back as they were, or refused by row."""

from __future__ import annotations

import gzip
import importlib
import logging
import random
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from streamgroups.errors import InvalidOption, RecordRefused
from streamgroups_kafka import native, record_batches
from streamgroups_kafka.compression import Compression
from streamgroups_kafka.encoding import HEADER_BYTES, EncodedBatch, ProducerIdentity
from streamgroups_kafka.native import ENCODER_VARIABLE
from streamgroups_kafka.plain_encoder import PlainEncoder
from streamgroups_kafka.record_batches import BatchSettings, encode, encoder

NOW_MS = 1_700_000_000_000
ENCODERS = ["native", "plain"]
LARGEST_SEQUENCE = 2**31 - 1

Row = dict[str, Any]


@pytest.fixture(scope="module")
def extension() -> Any:
    if not native.encoder_status().available:
        pytest.skip(native.encoder_status().reason)
    return importlib.import_module("streamgroups_kafka._native")


@pytest.fixture(params=ENCODERS)
def using(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which encoder is at work."""
    if request.param == "native" and not native.encoder_status().available:
        pytest.skip(native.encoder_status().reason)
    monkeypatch.setenv(ENCODER_VARIABLE, request.param)
    return str(request.param)


# ---- what is given to both encoders ------------------------------------------------------------------------------------

_BYTES = st.none() | st.binary(max_size=80) | st.binary(min_size=120, max_size=140)
_TEXT = st.none() | st.text(max_size=20)
_NAMES = st.text(max_size=12)
_TIMES_MS = st.none() | st.integers(0, 2**40) | st.integers(NOW_MS, NOW_MS + 100) | st.just(9_000_000_000_000_000)


def _rows(texts: bool) -> st.SearchStrategy[list[Row]]:
    bytes_ = _TEXT if texts else _BYTES
    headers = st.none() | st.lists(st.tuples(_NAMES, bytes_), max_size=4)
    partitions = st.integers(0, 3) | st.sampled_from([255, 256, 70_000, 2**31 - 1])
    one = st.fixed_dictionaries(
        {"partition": partitions, "key": bytes_, "value": bytes_, "headers": headers, "timestamp": _TIMES_MS}
    )
    return st.lists(one, max_size=60)


def _schema(texts: bool, is_large: bool) -> pa.Schema:
    small, large = (pa.string(), pa.large_string()) if texts else (pa.binary(), pa.large_binary())
    bytes_ = large if is_large else small
    names = pa.large_string() if is_large else pa.string()
    entry = pa.struct([("key", names), ("value", bytes_)])
    return pa.schema(
        {
            "partition": pa.int64() if is_large else pa.int32(),
            "key": bytes_,
            "value": bytes_,
            "headers": pa.large_list(entry) if is_large else pa.list_(entry),
            "timestamp": pa.timestamp("ms", "UTC"),
        }
    )


@st.composite
def _batches(draw: st.DrawFn) -> tuple[pa.RecordBatch, list[Row]]:
    """An Arrow batch, often a slice of a larger one, perhaps without some columns, and its rows in Python."""
    texts, is_large = draw(st.booleans()), draw(st.booleans())
    rows = draw(_rows(texts))
    whole = _arrow(rows, _schema(texts, is_large))
    first = draw(st.integers(0, len(rows)))
    n_rows = draw(st.integers(0, len(rows) - first))
    left_out = draw(st.sets(st.sampled_from(["key", "value", "headers", "timestamp"]), max_size=4))
    kept = [name for name in whole.schema.names if name not in left_out]
    rows = [row | dict.fromkeys(left_out) for row in rows[first : first + n_rows]]
    return whole.slice(first, n_rows).select(kept), rows


def _arrow(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    headers = [
        None if row["headers"] is None else [{"key": name, "value": value} for name, value in row["headers"]]
        for row in rows
    ]
    columns = {name: [row[name] for row in rows] for name in schema.names} | {"headers": headers}
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def one_column(values: Sequence[Any], **more: Any) -> pa.RecordBatch:
    """Rows of values for partition 0."""
    return pa.record_batch({"partition": pa.array([0] * len(values), pa.int32()), "value": values} | more)


# ---- what comes out ----------------------------------------------------------------------------------------------------


def _encoded(name: str, *args: Any, **how: Any) -> Sequence[EncodedBatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENCODER_VARIABLE, name)
        return encode(*args, topic="flights", now_ms=NOW_MS, **how)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _decoded(batch: EncodedBatch) -> list[tuple[Any, ...]]:
    """What kafka-python reads: (partition, timestamp, key, value, headers) of each record."""
    (found,) = _kafka_batches(batch.data)
    assert found.validate_crc()
    assert found.base_offset == 0
    return [(batch.partition, r.timestamp, r.key, r.value, r.headers) for r in found]


def _kafka_batches(data: bytes) -> Iterator[Any]:
    records = MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        yield batch


def _expected(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """The rows as records, by partition."""
    return [
        (
            row["partition"],
            NOW_MS if row["timestamp"] is None else row["timestamp"],
            _bytes(row["key"]),
            _bytes(row["value"]),
            [(name, _bytes(value)) for name, value in row["headers"] or ()],
        )
        for row in sorted(rows, key=lambda row: row["partition"])
    ]


_WHO = st.none() | st.builds(
    ProducerIdentity, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), transactional=st.booleans()
)
_SEQUENCES = st.dictionaries(
    st.integers(0, 3), st.integers(0, LARGEST_SEQUENCE) | st.integers(LARGEST_SEQUENCE - 9, LARGEST_SEQUENCE)
)


@settings(deadline=None, max_examples=100)
@given(given_=_batches(), batch_bytes=st.integers(1, 600) | st.just(1 << 20), who=_WHO, sequences=_SEQUENCES)
def test_both_encoders_make_the_same_and_kafka_python_reads_it(
    extension: Any,
    given_: tuple[pa.RecordBatch, list[Row]],
    batch_bytes: int,
    who: ProducerIdentity | None,
    sequences: Mapping[int, int],
) -> None:
    """Byte for byte, any types, nulls, slices, order of partitions, limits and identities."""
    batch, rows = given_
    how = {"producer": who, "next_sequences": sequences}
    made = _encoded("native", batch, BatchSettings(batch_bytes), **how)
    assert made == _encoded("plain", batch, BatchSettings(batch_bytes), **how)
    assert [record for one in made for record in _decoded(one)] == _expected(rows)
    next_sequences: dict[int, int] = {partition: sequences.get(partition, 0) for partition in range(4)}
    for one in made:
        (header,) = _kafka_batches(one.data)
        assert len(one.data) <= batch_bytes or one.n_records == 1
        assert header.last_offset_delta + 1 == one.n_records
        assert rows[one.first_row]["partition"] == one.partition
        if who is None:
            assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
            assert one.base_sequence is one.next_sequence is None
            continue
        expected = next_sequences.get(one.partition, 0)
        assert (header.producer_id, header.producer_epoch) == (who.producer_id, who.epoch)
        assert header.is_transactional == who.transactional
        assert header.base_sequence == one.base_sequence == expected
        next_sequences[one.partition] = (expected + one.n_records) % 2**31


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_any_unit(using: str, unit: str) -> None:
    times = pa.array([3, None], pa.timestamp("s")).cast(pa.timestamp(unit))
    (made,) = encode(one_column(["a", "b"], timestamp=times), BatchSettings(), topic="t", now_ms=7)
    assert [time for _, time, *_ in _decoded(made)] == [3_000, 7]


def test_what_is_finer_than_a_millisecond_is_cut_off(using: str) -> None:
    times = pa.array([1_999], pa.timestamp("us", "UTC"))
    (made,) = encode(one_column(["a"], timestamp=times), BatchSettings(), topic="t", now_ms=0)
    assert _decoded(made)[0][1] == 1


def test_columns_without_a_type_and_other_columns(using: str) -> None:
    rows = one_column(pa.nulls(2), key=pa.nulls(2), headers=pa.nulls(2), timestamp=pa.nulls(2), note=[1, 2])
    (made,) = encode(rows, BatchSettings(), topic="t", now_ms=9)
    assert _decoded(made) == [(0, 9, None, None, [])] * 2


def test_no_rows(using: str) -> None:
    assert not encode(one_column(pa.array([], pa.string())), BatchSettings(), topic="t", now_ms=0)


def test_a_batch_is_filled_to_the_last_byte(using: str) -> None:
    """A limit that fits exactly is kept; one byte less makes another batch."""
    rows = one_column(["x" * 50] * 10)
    (whole,) = encode(rows, BatchSettings(), topic="t", now_ms=0)
    size = len(whole.data)
    assert len(encode(rows, BatchSettings(size), topic="t", now_ms=0)) == 1
    first, second = encode(rows, BatchSettings(size - 1), topic="t", now_ms=0)
    assert (first.n_records, second.n_records) == (9, 1)
    assert second.first_row == 9


def test_a_record_beyond_the_limit_of_a_batch_is_alone(using: str) -> None:
    made = encode(one_column(["a", "x" * 500, "b", "c"]), BatchSettings(100), topic="t", now_ms=0)
    assert [b.n_records for b in made] == [1, 1, 2]


# ---- compression -------------------------------------------------------------------------------------------------------


def _snappy_blocks(data: bytes) -> bytes:
    """Undoes snappy-java's framing; the first varint of a snappy block is its size."""
    assert data[:16] == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
    out, at = b"", 16
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        block = data[at + 4 : at + 4 + size]
        n_bytes = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(_varint(block)))
        out += pa.decompress(block, n_bytes, codec="snappy", asbytes=True)
        at += 4 + size
    return out


def _varint(data: bytes) -> bytes:
    return data[: next(i for i, byte in enumerate(data) if byte < 0x80) + 1]


_UNDO: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": lambda data, _: gzip.decompress(data),
    "snappy": lambda data, _: _snappy_blocks(data),
    "lz4": lambda data, size: pa.decompress(data, size, codec="lz4", asbytes=True),
    "zstd": lambda data, size: pa.decompress(data, size, codec="zstd", asbytes=True),
}


def _values(n_rows: int, dice: random.Random) -> list[bytes]:
    """Some that shrink a lot and some that do not."""
    return [dice.randbytes(40) + b"flights of the day " * dice.randint(0, 20) for _ in range(n_rows)]


@pytest.mark.parametrize(("codec", "number"), [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
@pytest.mark.parametrize("n_rows", [1, 40, 600])
def test_compressed_records_are_the_same_records(using: str, codec: str, number: int, n_rows: int) -> None:
    rows = one_column([*_values(n_rows, random.Random(n_rows)), b"a" * 1_000])
    who = ProducerIdentity(4, 2, transactional=True)
    plain = encode(rows, BatchSettings(), topic="t", now_ms=0, producer=who)
    made = encode(rows, BatchSettings(compression=Compression(codec)), topic="t", now_ms=0, producer=who)
    assert len(made) == len(plain)
    for of_plain, of_made in zip(plain, made, strict=True):
        assert len(of_made.data) < len(of_plain.data)
        (header,) = _kafka_batches(of_made.data)
        assert header.validate_crc()
        assert header.compression_type == number
        assert header.is_transactional
        assert header.producer_id == 4
        records = of_plain.data[HEADER_BYTES:]
        assert _UNDO[codec](of_made.data[HEADER_BYTES:], len(records)) == records


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd"])
def test_both_encoders_compress_the_same(extension: Any, codec: str) -> None:
    rows = one_column(_values(100, random.Random(codec)))
    how = BatchSettings(compression=Compression(codec))
    assert _encoded("native", rows, how) == _encoded("plain", rows, how)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd"])
def test_what_does_not_shrink_is_left_as_it_is(using: str, codec: str) -> None:
    rows = one_column([random.Random(1).randbytes(100)])
    plain = encode(rows, BatchSettings(), topic="t", now_ms=0)
    assert encode(rows, BatchSettings(compression=Compression(codec)), topic="t", now_ms=0) == plain


def test_levels() -> None:
    data = memoryview(b"".join(_values(1_000, random.Random(3))))
    assert len(Compression("zstd", 19).compress(data)) < len(Compression("zstd", 1).compress(data))
    for name, level in [("zstd", 40), ("gzip", 10), ("gzip", 0), ("snappy", 1), ("none", 1), ("brotli", None)]:
        with pytest.raises(InvalidOption, match=name):
            Compression(name, level)


# ---- what is refused ---------------------------------------------------------------------------------------------------


def test_a_record_over_the_topics_limit_is_refused_by_its_row(using: str) -> None:
    rows = one_column(["a", "b", "x" * 2_000])
    limits = BatchSettings(batch_bytes=500, max_message_bytes=1_000)
    with pytest.raises(RecordRefused, match=r"Row 2, for flights-0, makes a record batch of 2,\d+ bytes; 1,000 are"):
        encode(rows, limits, topic="flights", now_ms=0)
    # What counts is what is sent.
    compressed = BatchSettings(500, 1_000, Compression("zstd"))
    assert len(encode(rows, compressed, topic="flights", now_ms=0)) == 2


def test_the_topics_limit_holds_for_batches_of_many_records_too(using: str) -> None:
    made = encode(one_column(["x" * 100] * 50), BatchSettings(max_message_bytes=1_000), topic="t", now_ms=0)
    assert all(len(batch.data) <= 1_000 for batch in made)
    assert sum(batch.n_records for batch in made) == 50


_NAMELESS = pa.array(
    [[{"key": "a", "value": b""}], [{"key": None, "value": b""}]], _schema(False, False).field("headers").type
)
_NO_ENTRY = pa.array([[], [None]], _schema(False, False).field("headers").type)
_NOT_UTF8 = pa.ListArray.from_arrays(
    pa.array([0, 1, 2], pa.int32()),
    pa.StructArray.from_arrays(
        [pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"]).buffers()), pa.array([b"", b""])],
        ["key", "value"],
    ),
)


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"partition": pa.array([0, None], pa.int32())}, "Row 1 for topic 'flights' has no partition"),
        ({"partition": pa.array([3, -4], pa.int32())}, "Row 1 for topic 'flights' has partition -4"),
        ({"partition": pa.array([2**40, 0])}, "Row 0 for topic 'flights' has partition 1099511627776"),
        ({"timestamp": pa.array([5, -1], pa.timestamp("us"))}, "Row 1, for flights-0, has a timestamp before 1970"),
        ({"headers": _NAMELESS}, "Row 1, for flights-0, has a header without a name"),
        ({"headers": _NO_ENTRY}, "Row 1, for flights-0, has a header without a name"),
        ({"headers": _NOT_UTF8}, "Row 1, for flights-0, has a header whose name is not UTF-8"),
    ],
)
def test_a_record_that_cannot_be_is_refused_by_its_row(using: str, columns: dict[str, Any], match: str) -> None:
    rows = pa.record_batch({"partition": pa.array([0, 0], pa.int32()), "value": ["a", "b"]} | columns)
    with pytest.raises(RecordRefused, match=match):
        encode(rows, BatchSettings(), topic="flights", now_ms=0)


def test_a_header_without_a_name_outside_the_slice_harms_nobody(using: str) -> None:
    rows = one_column(["a", "b"], headers=_NAMELESS).slice(0, 1)
    (made,) = encode(rows, BatchSettings(), topic="t", now_ms=0)
    assert _decoded(made) == [(0, 0, None, b"a", [("a", b"")])]


@pytest.mark.parametrize(
    "columns",
    [
        {"value": pa.array([1])},
        {"key": pa.array([1.5])},
        {"key": pa.array(["a"]).dictionary_encode()},
        {"value": pa.array(["a"], pa.string_view())},
        {"headers": pa.array([["a"]])},
        {"headers": pa.array([[{"key": b"a", "value": b"b"}]])},
        {"headers": pa.array([[{"key": "a"}]])},
        {"timestamp": pa.array([1])},
        {"partition": pa.array(["0"])},
        {"partition": pa.array([0]).dictionary_encode()},
    ],
)
def test_a_column_of_another_type_is_refused(using: str, columns: dict[str, Any]) -> None:
    rows = pa.record_batch({"partition": pa.array([0])} | columns)
    with pytest.raises(InvalidOption, match=f"Column '{next(iter(columns))}' is "):
        encode(rows, BatchSettings(), topic="t", now_ms=0)


def test_records_without_partitions_are_refused(using: str) -> None:
    with pytest.raises(InvalidOption, match="no column 'partition'"):
        encode(pa.record_batch({"value": ["a"]}), BatchSettings(), topic="t", now_ms=0)


@pytest.mark.parametrize("wrong", [{"batch_bytes": 0}, {"max_message_bytes": -1}, {"batch_bytes": 2**31}])
def test_sizes_that_cannot_be(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(wrong))):
        BatchSettings(**wrong)


@pytest.mark.parametrize("wrong", [(-1, 0), (0, -1), (0, 2**15), (2**63, 0)])
def test_identities_that_cannot_be(wrong: tuple[int, int]) -> None:
    with pytest.raises(InvalidOption, match="Producer id"):
        ProducerIdentity(*wrong)


# ---- malformed Arrow ---------------------------------------------------------------------------------------------------


class Astray:
    """An array of two rows whose offsets are written once pyarrow has looked at it."""

    def __init__(self, of: pa.DataType, offsets: Sequence[int], *children: pa.Array) -> None:
        is_large = of in (pa.large_binary(), pa.large_string()) or pa.types.is_large_list(of)
        self._format, self._offsets = f"={len(offsets)}{'q' if is_large else 'i'}", offsets
        self._ends = bytearray(struct.calcsize(self._format))
        buffers = [None, pa.py_buffer(self._ends)]
        if not children:
            buffers.append(pa.py_buffer(b"x" * 8))
        self.array = pa.Array.from_buffers(of, len(offsets) - 1, buffers, children=list(children))

    def lead(self) -> None:
        struct.pack_into(self._format, self._ends, 0, *self._offsets)


_OFFSETS = st.lists(st.integers(-3, 12) | st.sampled_from([-(2**31), 2**31 - 1]), min_size=3, max_size=3)


@settings(deadline=None)
@given(
    keys=_OFFSETS,
    lists=_OFFSETS,
    names=_OFFSETS,
    of=st.sampled_from([pa.binary(), pa.large_binary(), pa.string(), pa.large_string()]),
    of_lists=st.sampled_from([pa.list_, pa.large_list]),
)
def test_offsets_that_lead_astray_never_crash(
    extension: Any, keys: list[int], lists: list[int], names: list[int], of: pa.DataType, of_lists: Any
) -> None:
    """What is in order is encoded, the rest is an error; nothing outside of the buffers is read."""
    of_names, of_keys = Astray(pa.string(), names), Astray(of, keys)
    entries = pa.StructArray.from_arrays([of_names.array, pa.array([b"", b""])], ["key", "value"])
    of_headers = Astray(of_lists(entries.type), lists, entries)
    batch = pa.record_batch(
        {"partition": pa.array([0, 0], pa.int32()), "key": of_keys.array, "headers": of_headers.array}
    )
    for astray in (of_names, of_keys, of_headers):
        astray.lead()

    def in_order(offsets: list[int], most: int) -> bool:
        return offsets == sorted(offsets) and offsets[0] >= 0 and offsets[-1] <= most

    good = in_order(keys, 8) and in_order(lists, 2)
    if good and in_order(names, 8):
        assert _encoded("native", batch, BatchSettings()) == _encoded("plain", batch, BatchSettings())
        return
    try:
        made = _encoded("native", batch, BatchSettings())
    except (ValueError, RecordRefused):
        return
    # Names that no list uses do not matter.
    assert good
    assert sum(b.n_records for b in made) == 2


def _capsules(columns: Mapping[str, Any]) -> tuple[object, object]:
    arrays = {name: column.array if isinstance(column, Astray) else column for name, column in columns.items()}
    schema, array = pa.record_batch({"partition": pa.array([0, 1], pa.int32())} | arrays).__arrow_c_array__()
    for column in columns.values():
        if isinstance(column, Astray):
            column.lead()
    return schema, array


_DESCENDING = [5, 3, 7]


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"partition": pa.array([0, -1], pa.int32())}, "row 1: a negative partition"),
        ({"partition": pa.array([0, 1])}, "partitions must be int32"),
        ({"partition": pa.array([0, None], pa.int32())}, "none of them null"),
        ({"partition": pa.array([0, 1], pa.int32()).dictionary_encode()}, "partitions must be int32"),
        ({"timestamp": pa.array([0, -5])}, "row 1: a negative timestamp"),
        ({"timestamp": pa.array([0, 1], pa.timestamp("ms"))}, "timestamps int64"),
        ({"key": pa.array([0, 1])}, "must be binary or string"),
        ({"key": pa.array(["a", "a"]).dictionary_encode()}, "must be binary or string"),
        ({"value": pa.nulls(2)}, "must be binary or string"),
        ({"value": pa.array(["a", "b"], pa.string_view())}, "must be binary or string"),
        ({"value": Astray(pa.binary(), _DESCENDING)}, "offsets that are not in order"),
        ({"value": Astray(pa.large_binary(), _DESCENDING)}, "offsets that are not in order"),
        ({"value": Astray(pa.binary(), [-1, 0, 0])}, "offsets that are not in order"),
        ({"headers": pa.array(["a", "b"])}, "headers must be a list"),
        ({"headers": pa.array([[1], [2]])}, "a list of structs"),
        ({"headers": pa.array([[{"key": "a"}], []])}, "malformed array of headers"),
        ({"headers": pa.array([[{"key": 1, "value": b""}], []])}, "must be binary or string"),
        ({"headers": _NAMELESS}, "row 1: a header without a name"),
        ({"headers": _NO_ENTRY}, "row 1: a header without a name"),
        ({"headers": Astray(_NAMELESS.type, [0, 1, 9], _NAMELESS.values)}, "malformed array of headers"),
        ({"note": pa.array([0, 1])}, "a column of another name"),
    ],
)
def test_the_extension_itself_refuses_what_it_cannot_read(
    extension: Any, columns: Mapping[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        extension.encode(*_capsules(columns), 1_000, 0, -1, -1, False, {})


def test_the_extension_itself_refuses_other_arguments(extension: Any) -> None:
    def good() -> list[Any]:
        return [*_capsules({}), 1_000, 0, 5, 0, False, {}]

    assert len(extension.encode(*good())) == 2
    wrong: list[tuple[int, Any, type[Exception]]] = [
        (0, good()[1], ValueError),
        (1, "array", ValueError),
        (2, -1, ValueError),
        (2, 2**31, ValueError),
        (3, -1, ValueError),
        (3, 2**63, OverflowError),
        (4, "5", TypeError),
        (5, -1, ValueError),
        (5, 2**15, OverflowError),
        (7, [], TypeError),
        (7, {0: "1"}, TypeError),
        (7, {0: -1}, ValueError),
        (7, {1: 2**31}, ValueError),
        (7, {1: 2**70}, OverflowError),
    ]
    for place, value, error in wrong:
        arguments = good()
        arguments[place] = value
        with pytest.raises(error):
            extension.encode(*arguments)
    with pytest.raises(ValueError, match="a transaction without a producer id"):
        extension.encode(*_capsules({}), 1_000, 0, -1, -1, True, {})
    with pytest.raises(ValueError, match="no column 'partition'"):
        extension.encode(*pa.record_batch({"value": ["a"]}).__arrow_c_array__(), 1_000, 0, -1, -1, False, {})
    given_away = _capsules({})
    pa.RecordBatch._import_from_c_capsule(*given_away)
    with pytest.raises(ValueError, match="given away"):
        extension.encode(*given_away, 1_000, 0, -1, -1, False, {})
    for batch, codec in [(b"", 1), (bytes(HEADER_BYTES), 8), (bytes(HEADER_BYTES), -1)]:
        with pytest.raises(ValueError, match="not a record batch"):
            extension.with_compressed(batch, codec, b"")


# ---- checksums, and the extension that is not there --------------------------------------------------------------------


def test_the_checksum_is_that_of_its_standard(extension: Any) -> None:
    """RFC 3720, B.4, and the check value of the CRC catalogues."""
    for crc in (extension.crc32c, extension.crc32c_by_table):
        assert crc(b"123456789") == 0xE3069283
        assert crc(bytes(32)) == 0x8A9136AA
        assert crc(b"\xff" * 32) == 0x62A8AB43
        assert crc(bytes(range(32))) == 0x46DD794E
        assert crc(b"") == 0


@given(st.binary(max_size=300))
def test_the_checksum_is_the_same_with_and_without_the_processors_instruction(extension: Any, data: bytes) -> None:
    assert extension.crc32c(data) == extension.crc32c_by_table(data)
    if extension.crc32c_in_hardware():
        assert extension.crc32c(data[1:]) == extension.crc32c_by_table(data[1:])


def test_a_missing_extension_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "streamgroups_kafka._native", None)
    native.encoder_status.cache_clear()
    encoder.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            assert isinstance(encoder(""), PlainEncoder)
            assert isinstance(encoder(""), PlainEncoder)
        assert len(caplog.records) == 1
        assert "a C compiler" in caplog.text
        with pytest.raises(InvalidOption, match="STREAMGROUPS_ENCODER demands the native encoder"):
            encoder("native")
    finally:
        native.encoder_status.cache_clear()
        encoder.cache_clear()


def test_an_extension_of_an_older_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "streamgroups_kafka._native", object())
    native.encoder_status.cache_clear()
    try:
        assert "older version" in native.encoder_status().reason
    finally:
        native.encoder_status.cache_clear()


def test_another_encoder_is_refused() -> None:
    with pytest.raises(InvalidOption, match="STREAMGROUPS_ENCODER is 'fast'"):
        record_batches.encoder("fast")
