"""Maps the types of Arrow columns to PostgreSQL types, and converts and checks their values for COPY.

Used by ``output_table`` (creates and checks tables), ``copy_text`` and ``copy_binary`` (encode values). PostgreSQL parses
text as the type of the table's column. A string therefore fits ``jsonb``, ``uuid`` or an enum, and PostgreSQL rejects
an invalid value in its task. Types that would be misinterpreted without an error are rejected, such as a time with a
zone in a column without one. Source: PostgreSQL's documentation, "Data Types", "System Columns";
``pg_type.typcategory``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.errors import RecordRejected, SinkRejected
from streamgroups_sinks.postgres.table_names import check_length
from streamgroups_sinks.spark_types import check_no_binary_form


class Kind(Enum):
    """The kind of the values of a column."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp without time zone"
    TIMESTAMPTZ = "timestamp with time zone"
    INTERVAL = "duration"
    NESTED = "nested"


#: Each table has these columns, and no other column can have their names.
_SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
_NUMBERS = frozenset({"numeric", "float4", "float8"})
#: The permitted names in ``pg_type`` for each kind. Strings are checked by category.
_FITS: dict[Kind, frozenset[str]] = {
    Kind.BOOLEAN: frozenset({"bool"}),
    Kind.INTEGER: frozenset({"int2", "int4", "int8"}) | _NUMBERS,
    Kind.FLOAT: _NUMBERS,
    Kind.DECIMAL: _NUMBERS,
    Kind.BINARY: frozenset({"bytea"}),
    Kind.DATE: frozenset({"date", "timestamp"}),
    Kind.TIME: frozenset({"time"}),
    Kind.TIMESTAMP: frozenset({"timestamp"}),
    Kind.TIMESTAMPTZ: frozenset({"timestamptz"}),
    Kind.INTERVAL: frozenset({"interval"}),
    Kind.NESTED: frozenset({"jsonb", "json"}),
}
#: Categories of string, enum, network, geometric, bit string, array, range and user-defined types, such as uuid and jsonb.
_STRING_CATEGORIES = frozenset("SEIGVARU")
#: The fields of an interval that keep all others. ``interval day`` has no seconds.
_WHOLE_INTERVAL = re.compile(r"interval( \w+ to second| second)?(\(\d\))?")
#: Types of parts of a value that the server rounds or truncates. Only the server parses the parts.
_LOSSY_PART = re.compile(r'(numeric|time|timestamp|interval( [\w ]+)?|character varying)\(.*|money|name|"char"')


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """A column of the records.

    Args:
        name: the name of the column.
        kind: the kind of its values.
        type: the SQL type of the column in a new table.
    """

    name: str
    kind: Kind
    type: str


def fits(kind: Kind, type_name: str, category: str, base: str, parts: Sequence[str] = ()) -> bool:
    """Returns whether values of a kind fit a type. ``precision`` checks single values.

    Args:
        kind: the kind of the values.
        type_name: the name of the type in ``pg_type``. For a domain, that of its base type.
        category: the ``typcategory`` of the type.
        base: the type as SQL, with length and precision.
        parts: the types of its parts as SQL: of elements of an array, fields of composite elements, bounds of a range.

    >>> fits(Kind.STRING, "jsonb", "U", "jsonb"), fits(Kind.STRING, "int4", "N", "integer")
    (True, False)
    >>> fits(Kind.STRING, "_numeric", "A", "numeric(6,2)[]", ["numeric(6,2)"])
    False
    """
    if kind is Kind.STRING:
        may_parse = category in _STRING_CATEGORIES or type_name == "char"
        return may_parse and type_name != "bytea" and not any(map(_is_lossy, parts))
    if kind is Kind.INTERVAL and not _WHOLE_INTERVAL.fullmatch(base):
        return False
    return type_name in _FITS[kind]


def _is_lossy(part: str) -> bool:
    drops_seconds = part.startswith("interval ") and not _WHOLE_INTERVAL.fullmatch(part)
    return drops_seconds or _LOSSY_PART.fullmatch(part) is not None


def record_columns(schema: pa.Schema) -> tuple[RecordColumn, ...]:
    """Returns the columns of records.

    Raises:
        SinkRejected: if there are no columns, two have the same name, PostgreSQL has no equivalent type, or a column is in a
            binary form of Spark.
        InvalidOption: if a name is too long.

    >>> record_columns(pa.schema({"id": pa.int64(), "tags": pa.list_(pa.string())}))[1].type
    'jsonb'
    """
    if not schema.names:
        raise SinkRejected("The records have no columns.", remedy="Select at least one column.")
    if double := sorted({name for name in schema.names if schema.names.count(name) > 1}):
        raise SinkRejected(f"Two columns of the records are called '{double[0]}'.", remedy="Rename one of them.")
    for name in schema.names:
        check_length(name, "A column of the records")
    check_no_binary_form(schema)
    return tuple(RecordColumn(f.name, *_column_type(f.name, f.type)) for f in schema)


def check_not_system(names: Iterable[str]) -> None:
    """Rejects columns that no table can have beside the system columns of PostgreSQL.

    Args:
        names: the columns of the output table.

    Raises:
        SinkRejected: for the first of them. The error contains its name.

    >>> check_not_system(["id", "xmin"])
    Traceback (most recent call last):
    streamgroups.errors.SinkRejected: Column 'xmin' of the records has the name of a system column of PostgreSQL. Rename it in \
the query; a name in upper case is another one.
    """
    for name in names:
        if name in _SYSTEM_COLUMNS:
            raise SinkRejected(
                f"Column '{name}' of the records has the name of a system column of PostgreSQL.",
                remedy="Rename it in the query; a name in upper case is another one.",
            )


def value_type(arrow_type: pa.DataType) -> pa.DataType:
    """Returns the type of the values, without dictionaries and extension types."""
    while True:
        if isinstance(arrow_type, pa.BaseExtensionType):
            arrow_type = arrow_type.storage_type
        elif pa.types.is_dictionary(arrow_type):
            arrow_type = arrow_type.value_type
        else:
            return arrow_type


def _column_type(name: str, arrow_type: pa.DataType) -> tuple[Kind, str]:
    t = value_type(arrow_type)
    if pa.types.is_integer(t):
        return Kind.INTEGER, _integer_type(t)
    if pa.types.is_decimal(t):
        return Kind.DECIMAL, f"numeric({t.precision},{t.scale})"
    if pa.types.is_timestamp(t):
        return (Kind.TIMESTAMPTZ, "timestamptz") if t.tz else (Kind.TIMESTAMP, "timestamp")
    for is_of, kind, postgres_type in (
        (pa.types.is_boolean, Kind.BOOLEAN, "boolean"),
        (pa.types.is_float64, Kind.FLOAT, "double precision"),
        (pa.types.is_floating, Kind.FLOAT, "real"),
        (_is_string, Kind.STRING, "text"),
        (_is_binary, Kind.BINARY, "bytea"),
        (pa.types.is_date, Kind.DATE, "date"),
        (pa.types.is_time, Kind.TIME, "time"),
        (pa.types.is_duration, Kind.INTERVAL, "interval"),
        (pa.types.is_nested, Kind.NESTED, "jsonb"),
    ):
        if is_of(t):
            return kind, postgres_type
    raise SinkRejected(
        f"Column '{name}' of the records is of type {arrow_type}, which has no equivalent in PostgreSQL.",
        remedy="Cast it to another type, or leave it out.",
    )


def _integer_type(t: pa.DataType) -> str:
    if pa.types.is_uint64(t):
        return "numeric(20,0)"
    # PostgreSQL's integers are signed.
    n_bits = t.bit_width * 2 if pa.types.is_unsigned_integer(t) else t.bit_width
    return {8: "smallint", 16: "smallint", 32: "integer", 64: "bigint"}[n_bits]


def _is_string(t: pa.DataType) -> bool:
    return bool(pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t))


def _is_binary(t: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(t)
        or pa.types.is_large_binary(t)
        or pa.types.is_fixed_size_binary(t)
        or pa.types.is_binary_view(t)
    )


def unwrapped(values: pa.Array) -> pa.Array:
    """Returns the values without dictionaries and extension types."""
    while True:
        if isinstance(values, pa.ExtensionArray):
            values = values.storage
        elif pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        else:
            return values


def plain(values: pa.Array) -> pa.Array:
    """Converts values to types whose number or text PostgreSQL accepts.

    Raises:
        pa.ArrowInvalid: if a time has a fraction of a microsecond.
    """
    t = values.type
    if pa.types.is_date64(t):
        return pc.cast(values, pa.date32())
    if pa.types.is_time(t):
        return pc.cast(values, pa.time64("us"))
    if pa.types.is_timestamp(t):
        # A timestamp with a zone is a count in UTC. The session uses UTC, so the zone is not needed.
        naive = pc.cast(pc.cast(values, pa.int64()), pa.timestamp(t.unit))
        return pc.cast(naive, pa.timestamp("us"))
    if pa.types.is_duration(t):
        return pc.cast(values, pa.duration("us"))
    return values


def checked_texts(texts: pa.Array, column: RecordColumn, first_row: int) -> pa.Array:
    """Rejects invalid text. PostgreSQL would reject the line without the name of the column."""
    if b"\0" in memoryview(joined(texts)).tobytes():
        row = first_row + pc.index(pc.match_substring(texts, "\0"), True).as_py()
        raise rejected(column, row, "it contains a NUL character")
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as e:
        raise rejected(
            column, first_row + first_rejected(texts, lambda one: one.validate(full=True)), "it is not UTF-8"
        ) from e
    return texts


def joined(texts: pa.Array) -> pa.Buffer:
    """Returns the concatenated bytes of all values."""
    _, offsets, data = texts.buffers()
    if data is None:
        return pa.py_buffer(b"")
    ends = pa.Array.from_buffers(pa.int64(), texts.offset + len(texts) + 1, [None, offsets])
    begin, end = ends[texts.offset].as_py(), ends[-1].as_py()
    return data.slice(begin, end - begin)


def first_rejected(values: pa.Array, convert: Any) -> int:
    """Returns the first row that cannot be converted."""
    for row in range(len(values)):
        try:
            convert(values.slice(row, 1))
        except (pa.ArrowInvalid, ValueError, OverflowError):
            return row
    return 0


def rejected(column: RecordColumn, row: int, why: str) -> RecordRejected:
    return RecordRejected(
        f"The value of column '{column.name}' in row {row + 1} of a task cannot be written to PostgreSQL: {why}.",
        remedy="Filter out such records, or correct the value in the query.",
    )
