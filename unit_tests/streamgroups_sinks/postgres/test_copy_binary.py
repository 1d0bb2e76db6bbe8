"""X2: what is written in binary is what psycopg's own encoders write, for every value that they take."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import adapters
from psycopg.adapt import PyFormat, Transformer
from psycopg.types import numeric

from streamgroups.errors import RecordRejected
from streamgroups_sinks.postgres.column_types import Kind, RecordColumn, record_columns
from streamgroups_sinks.postgres.copy_binary import HEADER, TRAILER, copy_binary, is_binary

_TYPES: list[tuple[pa.DataType, str, st.SearchStrategy[Any], Callable[[Any], Any]]] = [
    (pa.int16(), "int2", st.integers(-(2**15), 2**15 - 1), numeric.Int2),
    (pa.int32(), "int4", st.integers(-(2**31), 2**31 - 1), numeric.Int4),
    (pa.int32(), "int8", st.integers(-(2**31), 2**31 - 1), numeric.Int8),
    (pa.int64(), "int8", st.integers(-(2**63), 2**63 - 1), numeric.Int8),
    (pa.float64(), "float8", st.floats(allow_nan=False), float),
    (pa.bool_(), "bool", st.booleans(), bool),
    (pa.string(), "text", st.text(st.characters(exclude_characters="\0", codec="utf-8")), str),
    (pa.binary(), "bytea", st.binary(), bytes),
    (pa.date32(), "date", st.dates(), lambda value: value),
    (pa.time64("us"), "time", st.times(), lambda value: value),
    (pa.timestamp("us"), "timestamp", st.datetimes(), lambda value: value),
    (
        pa.timestamp("us", "Europe/Vienna"),
        "timestamptz",
        st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(9000, 1, 1), timezones=st.just(dt.timezone.utc)),
        lambda value: value,
    ),
]


def _psycopgs(value: Any) -> bytes:
    """A field as psycopg writes it."""
    if value is None:
        return struct.pack(">i", -1)
    dumped = Transformer().get_dumper(value, PyFormat.BINARY).dump(value)
    assert dumped is not None
    return struct.pack(">i", len(dumped)) + bytes(dumped)


@pytest.mark.parametrize(("arrow_type", "type_name", "values", "as_given"), _TYPES, ids=lambda x: str(x)[:20])
def test_every_value_is_written_as_psycopg_writes_it(
    arrow_type: pa.DataType, type_name: str, values: st.SearchStrategy[Any], as_given: Callable[[Any], Any]
) -> None:
    assert type_name in adapters.types.get(type_name).name

    @given(st.lists(st.none() | values, max_size=5), st.integers(0, 2))
    def holds(given_: list[Any], n_before: int) -> None:
        # A slice, as a task has them.
        batch = pa.record_batch({"a": pa.array([None] * n_before + given_, arrow_type)}).slice(n_before)
        (column,) = record_columns(batch.schema)
        assert is_binary(column, type_name)
        rows = pa.array(range(len(batch)), pa.int64())
        written = copy_binary(batch, [(column, type_name)], before=[7, rows], first_row=0).to_pybytes()
        expected = b"".join(
            struct.pack(">hiqiq", 3, 8, 7, 8, row) + _psycopgs(None if value is None else as_given(value))
            for row, value in enumerate(given_)
        )
        assert written == expected

    holds()


def test_times_of_other_units_dictionaries_and_durations() -> None:
    batch = pa.record_batch(
        {
            "at": pa.array([1, None], pa.timestamp("s")),
            "name": pa.array(["x", None]).dictionary_encode(),
            "took": pa.array([dt.timedelta(days=2, microseconds=3), None], pa.duration("ns")),
        }
    )
    columns = list(zip(record_columns(batch.schema), ("timestamp", "varchar", "interval"), strict=True))
    written = copy_binary(batch, columns, before=[], first_row=0).to_pybytes()
    first = struct.pack(">hiq", 3, 8, (1 - 946_684_800) * 10**6) + struct.pack(">i", 1) + b"x"
    assert written == first + struct.pack(">iqii", 16, 2 * 86_400 * 10**6 + 3, 0, 0) + struct.pack(
        ">hiii", 3, -1, -1, -1
    )


@pytest.mark.parametrize(
    ("values", "type_name", "message"),
    [
        (pa.array(["a", "b\0"]), "text", "column 'a' in row 12 .*NUL"),
        (pa.array([0, -(2**63)], pa.timestamp("us")), "timestamp", "column 'a' in row 12 .*overflow"),
        (pa.array([0, -(2**31)], pa.date32()), "date", "column 'a' in row 12 .*overflow"),
        (pa.array([0, 2**62], pa.timestamp("s")), "timestamp", "column 'a' in row 12 "),
        (pa.array([0, -3 * 10**17], pa.timestamp("us")), "timestamp", "column 'a' in row 12 .*no such timestamp"),
        (pa.array([0, 2**31 - 1], pa.date32()), "date", "column 'a' in row 12 .*no such date"),
        (pa.array([0, -1], pa.time64("us")), "time", "column 'a' in row 12 .*no such time"),
    ],
)
def test_a_value_that_cannot_be_is_named(values: pa.Array, type_name: str, message: str) -> None:
    batch = pa.record_batch({"a": values})
    (column,) = record_columns(batch.schema)
    with pytest.raises(RecordRejected, match=message):
        copy_binary(batch, [(column, type_name)], before=[], first_row=10)


def test_what_the_server_has_to_convert_is_text() -> None:
    for kind, type_, type_name in (
        (Kind.INTEGER, "bigint", "int4"),
        (Kind.INTEGER, "numeric(20,0)", "numeric"),
        (Kind.FLOAT, "real", "float8"),
        (Kind.STRING, "text", "jsonb"),
        (Kind.DATE, "date", "timestamp"),
        (Kind.NESTED, "jsonb", "jsonb"),
        (Kind.DECIMAL, "numeric(5,2)", "numeric"),
    ):
        assert not is_binary(RecordColumn("a", kind, type_), type_name)


def test_a_copy_begins_and_ends() -> None:
    assert (len(HEADER), TRAILER) == (19, b"\xff\xff")
    assert copy_binary(pa.record_batch({"a": pa.array([], pa.int32())}), [], before=[7], first_row=0).size == 0
