"""X2: which type of PostgreSQL a column goes into, and as which text."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.errors import InvalidOption, RecordRejected, SinkRejected
from streamgroups_sinks.postgres.column_types import Kind, fits, record_columns
from streamgroups_sinks.postgres.copy_text import copy_text, json_writer


@pytest.mark.parametrize(
    ("arrow", "postgres"),
    [
        (pa.bool_(), "boolean"),
        (pa.int8(), "smallint"),
        (pa.int16(), "smallint"),
        (pa.int32(), "integer"),
        (pa.int64(), "bigint"),
        (pa.uint8(), "smallint"),
        (pa.uint16(), "integer"),
        (pa.uint32(), "bigint"),
        (pa.uint64(), "numeric(20,0)"),
        (pa.float16(), "real"),
        (pa.float32(), "real"),
        (pa.float64(), "double precision"),
        (pa.decimal128(10, 2), "numeric(10,2)"),
        (pa.decimal256(40, 3), "numeric(40,3)"),
        (pa.string(), "text"),
        (pa.large_string(), "text"),
        (pa.string_view(), "text"),
        (pa.dictionary(pa.int8(), pa.string()), "text"),
        (pa.binary(), "bytea"),
        (pa.binary(4), "bytea"),
        (pa.date32(), "date"),
        (pa.time64("us"), "time"),
        (pa.timestamp("us"), "timestamp"),
        (pa.timestamp("ns", "Europe/Paris"), "timestamptz"),
        (pa.duration("s"), "interval"),
        (pa.list_(pa.int64()), "jsonb"),
        (pa.struct({"a": pa.int64()}), "jsonb"),
        (pa.map_(pa.string(), pa.int64()), "jsonb"),
    ],
    ids=str,
)
def test_a_new_table_gets(arrow: pa.DataType, postgres: str) -> None:
    (column,) = record_columns(pa.schema({"c": arrow}))
    assert column.type == postgres


@pytest.mark.parametrize("arrow", [pa.null(), pa.month_day_nano_interval()], ids=str)
def test_a_type_that_postgres_does_not_have_is_rejected(arrow: pa.DataType) -> None:
    with pytest.raises(SinkRejected, match=f"Column 'c' .* is of type {arrow}.*Cast it"):
        record_columns(pa.schema({"c": arrow}))


def test_columns_without_a_name_of_their_own_are_rejected() -> None:
    with pytest.raises(SinkRejected, match="no columns"):
        record_columns(pa.schema({}))
    with pytest.raises(SinkRejected, match="Two columns of the records are called 'a'"):
        record_columns(pa.schema([("a", pa.int64()), ("a", pa.int64())]))
    with pytest.raises(InvalidOption, match="A column of the records has a name of 64 bytes"):
        record_columns(pa.schema({"c" * 64: pa.int64()}))


@pytest.mark.parametrize(
    ("kind", "type_name", "category", "expected"),
    [
        (Kind.STRING, "int4range", "R", True),
        (Kind.STRING, "_text", "A", True),
        (Kind.STRING, "char", "Z", True),
        (Kind.INTERVAL, "interval", "T", True),
        (Kind.FLOAT, "numeric", "N", True),
        (Kind.INTEGER, "int2", "N", True),
        (Kind.INTEGER, "text", "S", False),
        (Kind.FLOAT, "int8", "N", False),
        (Kind.DECIMAL, "numeric", "N", True),
        (Kind.STRING, "varchar", "S", True),
        (Kind.STRING, "mood", "E", True),
        (Kind.STRING, "uuid", "U", True),
        (Kind.STRING, "jsonb", "U", True),
        (Kind.STRING, "bytea", "U", False),
        (Kind.STRING, "timestamptz", "D", False),
        (Kind.BINARY, "text", "S", False),
        (Kind.TIMESTAMP, "timestamptz", "D", False),
        (Kind.TIMESTAMPTZ, "timestamp", "D", False),
        (Kind.DATE, "timestamp", "D", True),
        (Kind.NESTED, "_int4", "A", False),
    ],
)
def test_what_fits_into_what_is_there(kind: Kind, type_name: str, category: str, expected: bool) -> None:
    assert fits(kind, type_name, category, type_name) is expected


@pytest.mark.parametrize(
    ("kind", "type_name", "category", "base", "expected"),
    [
        (Kind.INTERVAL, "interval", "T", "interval(3)", True),
        (Kind.INTERVAL, "interval", "T", "interval day to second(3)", True),
        (Kind.INTERVAL, "interval", "T", "interval second", True),
        (Kind.INTERVAL, "interval", "T", "interval day", False),
        (Kind.INTERVAL, "interval", "T", "interval day to minute", False),
    ],
)
def test_a_type_that_would_drop_a_part_is_rejected(
    kind: Kind, type_name: str, category: str, base: str, expected: bool
) -> None:
    assert fits(kind, type_name, category, base) is expected


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("numeric", True),
        ("numeric(2,1)", False),
        ("money", False),
        ("timestamp with time zone", True),
        ("timestamp(0) with time zone", False),
        ("time(0) without time zone", False),
        ("interval", True),
        ("interval(3)", False),
        ("interval second", True),
        ("interval second(3)", False),
        ("interval day", False),
        ("interval day to second", True),
        ("character varying", True),
        ("character varying(2)", False),
        ("character(2)", True),
        ("name", False),
        ('"char"', False),
        ("interval_kind", True),
    ],
)
def test_a_type_whose_parts_would_be_rounded_or_truncated_is_rejected(part: str, expected: bool) -> None:
    assert fits(Kind.STRING, "_any", "A", "any[]", ["text", part]) is expected


def text_of(values: pa.Array, *, first_row: int = 0) -> list[str]:
    batch = pa.record_batch({"c": values})
    lines = copy_text(batch, record_columns(batch.schema), before=[], first_row=first_row).to_pybytes().decode()
    assert lines.endswith("\n") or not lines
    return lines.split("\n")[:-1]


UTC_NOON = dt.datetime(2013, 1, 1, 12, tzinfo=dt.timezone.utc)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([True, False, None]), ["true", "false", r"\N"]),
        (pa.array([1.5, float("nan"), float("inf"), -float("inf")]), ["1.5", "nan", "inf", "-inf"]),
        (pa.array([1.5], pa.float16()), ["1.5"]),
        (pa.array(["", None, r"\N", "a\tb\r\nc\\"]), ["", r"\N", r"\\N", r"a\tb\r\nc\\"]),
        (pa.array(["x", None, "x"]).dictionary_encode(), ["x", r"\N", "x"]),
        (pa.array([b"", None, b"\x00\xff"]), [r"\\x", r"\N", r"\\x00ff"]),
        (pa.array([b"ab", None], pa.binary(2)), [r"\\x6162", r"\N"]),
        (pa.array([decimal.Decimal("-1.50"), None]), ["-1.50", r"\N"]),
        (pa.array([UTC_NOON], pa.timestamp("us", "America/New_York")), ["2013-01-01 12:00:00.000000"]),
        (pa.array([1_000], pa.timestamp("ns")), ["1970-01-01 00:00:00.000001"]),
        (pa.array([UTC_NOON.date()], pa.date64()), ["2013-01-01"]),
        (pa.array([dt.time(1, 2, 3)], pa.time32("s")), ["01:02:03.000000"]),
        (pa.array([dt.timedelta(seconds=-1), None], pa.duration("ms")), ["-1000000 microseconds", r"\N"]),
        (pa.array([[1, None], None, []]), ["[1, null]", r"\N", "[]"]),
        (pa.array([{"a": "\n"}]), [r'{"a": "\\n"}']),
    ],
    ids=lambda given: str(given.type) if isinstance(given, pa.Array) else "",
)
def test_the_text_of_values(values: pa.Array, expected: list[str]) -> None:
    assert text_of(values) == expected
    # A slice lies elsewhere in its buffers.
    assert text_of(pa.concat_arrays([values, values]).slice(len(values))) == expected


@given(st.lists(st.none() | st.binary(max_size=5)), st.integers(0, 3))
def test_binary_values(values: list[bytes | None], skipped: int) -> None:
    expected = [r"\N" if value is None else rf"\\x{value.hex()}" for value in values[skipped:]]
    assert text_of(pa.array(values, pa.binary()).slice(skipped)) == expected


_TEXTS = st.text(st.sampled_from("ab\\\t\n\rNü\N{AIRPLANE}"), max_size=5)


@given(st.lists(st.tuples(st.none() | _TEXTS, st.none() | st.integers(-(2**63), 2**63 - 1))))
def test_a_line_is_a_record(rows: list[tuple[str | None, int | None]]) -> None:
    batch = pa.record_batch(
        {"a": pa.array([a for a, _ in rows], pa.string()), "b": pa.array([b for _, b in rows], pa.int64())}
    )
    numbers = pa.array(range(len(rows)), pa.int64())
    lines = copy_text(batch, record_columns(batch.schema), before=[7, numbers], first_row=0).to_pybytes().decode()
    assert [_read(line) for line in lines.split("\n")[:-1]] == [
        ["7", str(i), a, None if b is None else str(b)] for i, (a, b) in enumerate(rows)
    ]


def _read(line: str) -> list[str | None]:
    """A line in the format of COPY's documentation."""
    special = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}

    def field(text: str) -> str | None:
        if text == r"\N":
            return None
        characters = iter(text)
        return "".join(special[next(characters)] if c == "\\" else c for c in characters)

    return [field(text) for text in line.split("\t")]


def _maps(*maps: list[tuple[str, int]] | None) -> pa.Array:
    return pa.array(maps, pa.map_(pa.string(), pa.int64()))


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (pa.array(["a", None, "b\0"]), "NUL"),
        (pa.Array.from_buffers(pa.string(), 3, pa.array([b"a", b"b", b"\xff"]).buffers()), "not UTF-8"),
        (pa.array([0, None, 2**62], pa.timestamp("s")), "out of bounds"),
        (pa.array([0, None, 2**62], pa.duration("s")), "out of bounds"),
        (pa.array([[0], None, [2**62]], pa.list_(pa.timestamp("us"))), "c"),
        (_maps([], None, [("a", 1), ("b", 2), ("a", 1)]), "a map has a key twice"),
        (pa.StructArray.from_arrays([_maps([], None, [("a", 1), ("a", 2)])], ["m"]), "a map has a key twice"),
    ],
)
def test_the_error_names_column_and_row_of_a_value_without_text(values: pa.Array, why: str) -> None:
    with pytest.raises(RecordRejected, match=f"column 'c' in row 103 of a task.*{why}"):
        text_of(values, first_row=100)


@pytest.mark.parametrize(
    ("arrow", "value", "expected"),
    [
        (pa.int64(), None, "null"),
        (pa.bool_(), True, "true"),
        (pa.decimal128(38, 20), decimal.Decimal("1E-19"), "0.0000000000000000001"),
        (pa.float64(), float("nan"), '"NaN"'),
        (pa.float64(), -float("inf"), '"-Infinity"'),
        (pa.float64(), 0.1, "0.1"),
        (pa.binary(), b"\x00\xff", '"AP8="'),
        (pa.string(), 'a"\nü', '"a\\"\\nü"'),
        (pa.date32(), dt.date(2013, 1, 1), '"2013-01-01"'),
        (pa.timestamp("us", "UTC"), UTC_NOON, '"2013-01-01T12:00:00+00:00"'),
        (pa.map_(pa.int64(), pa.string()), [(1, "a"), (2, None)], '{"1": "a", "2": null}'),
        (pa.list_(pa.struct({'a"': pa.int64()})), [{'a"': 1}, None], '[{"a\\"": 1}, null]'),
        (pa.dictionary(pa.int8(), pa.string()), "a", '"a"'),
    ],
)
def test_nested_values_are_json(arrow: pa.DataType, value: Any, expected: str) -> None:
    written = json_writer(arrow)(value)
    assert written == expected
    json.loads(written)
