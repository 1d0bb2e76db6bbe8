"""Which column type of PostgreSQL a column of Arrow goes into.

Used by ``target`` (making and checking tables) and ``copy_text`` (writing). Tasks write values as text, which PostgreSQL reads as the type
of the table's own column; so a string may go into ``jsonb``, ``uuid`` or an enum, and a value that does not fit is refused where it is
written. What could be misunderstood silently (a time with a zone in a column without one) is refused by its type. Source:
PostgreSQL's documentation, "Data Types"; ``pg_type.typcategory``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from streamgroups.errors import SinkRejected
from streamgroups_postgres.names import check_length


class Kind(Enum):
    """What the values of a column are."""

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


_NUMBERS = frozenset({"numeric", "float4", "float8"})
#: The names in pg_type that each kind may go into; strings go by category.
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
#: String, enum, network, geometric and bit string types, and user-defined ones, such as uuid and jsonb.
_STRING_CATEGORIES = frozenset("SEIGVU")


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """A column of the records.

    Args:
        name: of the column.
        kind: of its values.
        type: what a new table gets, in SQL.
    """

    name: str
    kind: Kind
    type: str


def fits(kind: Kind, type_name: str, category: str) -> bool:
    """Whether values of a kind may go into a type.

    Args:
        kind: of the values.
        type_name: the type's name in ``pg_type``; a domain's is that of its base type.
        category: the type's ``typcategory``.

    >>> [fits(Kind.STRING, "jsonb", "U"), fits(Kind.STRING, "int4", "N"), fits(Kind.INTEGER, "int2", "N")]
    [True, False, True]
    """
    if kind is Kind.STRING:
        return category in _STRING_CATEGORIES and type_name != "bytea"
    return type_name in _FITS[kind]


def record_columns(schema: pa.Schema) -> tuple[RecordColumn, ...]:
    """The columns of records.

    Raises:
        SinkRejected: if there are none, two have one name, or PostgreSQL has nothing for a type.
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
    return tuple(RecordColumn(f.name, *_column_type(f.name, f.type)) for f in schema)


def value_type(arrow_type: pa.DataType) -> pa.DataType:
    """The type of the values, without dictionaries and extensions around it."""
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
    # PostgreSQL's integers have a sign.
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
