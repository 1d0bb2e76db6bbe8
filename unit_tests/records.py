"""Records for tests of the Kafka encoders: rows of every kind as Arrow, and batches as kafka-python reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from streamgroups_kafka.native import ENCODER_VARIABLE
from streamgroups_kafka.write.encoder import EncodedBatch, ProducerIdentity
from streamgroups_kafka.write.record_batches import encode

NOW_MS = 1_700_000_000_000
LARGEST_SEQUENCE = 2**31 - 1

Row = dict[str, Any]


# ---- input of both encoders ------------------------------------------------------------------------------------------

_BYTES = st.none() | st.binary(max_size=80) | st.binary(min_size=120, max_size=140)
_TEXT = st.none() | st.text(max_size=20)
_NAMES = st.text(max_size=12)
_TIMES_MS = st.none() | st.integers(0, 2**40) | st.integers(NOW_MS, NOW_MS + 100) | st.just(9_000_000_000_000_000)


def _rows(texts: bool) -> st.SearchStrategy[list[Row]]:
    bytes_ = _TEXT if texts else _BYTES
    headers = st.none() | st.lists(st.tuples(_NAMES, bytes_), max_size=4)
    # Some partitions have another order if sorted by the lowest byte or the lowest two.
    partitions = st.integers(0, 3) | st.sampled_from([255, 256, 65_535, 65_536, 70_000, 2**24, 2**31 - 1])
    one = st.fixed_dictionaries(
        {"partition": partitions, "key": bytes_, "value": bytes_, "headers": headers, "timestamp": _TIMES_MS}
    )
    many = st.lists(one, min_size=65, max_size=80) | st.lists(
        st.fixed_dictionaries(
            {"partition": st.just(1), "key": bytes_, "value": bytes_, "headers": headers, "timestamp": _TIMES_MS}
        ),
        min_size=65,
        max_size=80,
    )
    return st.lists(one, min_size=2, max_size=60) | st.lists(one, max_size=3) | many


def schema_of(texts: bool, is_large: bool) -> pa.Schema:
    """All columns as strings or bytes, small or large."""
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
def batches(draw: st.DrawFn) -> tuple[pa.RecordBatch, list[Row]]:
    """An Arrow batch and its rows in Python. The batch is often a slice of a larger one, and can lack columns."""
    texts, is_large = draw(st.booleans()), draw(st.booleans())
    rows = draw(_rows(texts))
    whole = _arrow(rows, schema_of(texts, is_large))
    first, n_rows = 0, len(rows)
    if draw(st.integers(0, 3)) == 0:
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
    """Rows with these values for partition 0."""
    return pa.record_batch({"partition": pa.array([0] * len(values), pa.int32()), "value": values} | more)


# ---- output ----------------------------------------------------------------------------------------------------------


def encoded(name: str, *args: Any, **how: Any) -> Sequence[EncodedBatch]:
    """The output of the encoder of this name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENCODER_VARIABLE, name)
        return encode(*args, topic="flights", now_ms=NOW_MS, **how)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def decoded(batch: EncodedBatch) -> list[tuple[Any, ...]]:
    """The records as kafka-python reads them: (partition, timestamp, key, value, headers)."""
    (found,) = kafka_batches(batch.data)
    assert found.validate_crc()
    assert found.base_offset == 0
    return [(batch.partition, r.timestamp, r.key, r.value, r.headers) for r in found]


def kafka_batches(data: bytes) -> Iterator[Any]:
    """The batches as kafka-python reads them."""
    records = MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        yield batch


def expected(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """The rows as expected records, by partition."""
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


IDENTITIES = st.none() | st.builds(
    ProducerIdentity, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), transactional=st.booleans()
)
SEQUENCES = st.dictionaries(
    st.integers(0, 3),
    st.integers(0, LARGEST_SEQUENCE) | st.integers(LARGEST_SEQUENCE - 9, LARGEST_SEQUENCE),
    min_size=1,
)


# ---- invalid headers -------------------------------------------------------------------------------------------------

NAMELESS = pa.array(
    [[{"key": "a", "value": b""}], [{"key": None, "value": b""}]], schema_of(False, False).field("headers").type
)
NO_ENTRY = pa.array([[], [None]], schema_of(False, False).field("headers").type)
NOT_UTF8 = pa.ListArray.from_arrays(
    pa.array([0, 1, 2], pa.int32()),
    pa.StructArray.from_arrays(
        [pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"]).buffers()), pa.array([b"", b""])],
        ["key", "value"],
    ),
)
TOO_MANY = pa.array(
    [[{"key": "a", "value": b""}] * 100_000, [{"key": "a", "value": b""}] * 100_001],
    schema_of(False, False).field("headers").type,
)
