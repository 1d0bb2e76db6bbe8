"""X2: a value of a record comes back from PostgreSQL as it was, or it is rejected. All pairs of types, with their limits.

The oracle is the server: each accepted value is read again, and compared as an exact number or as its text.
"""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from component_tests.postgres_process import execute, sink, token
from streamgroups.errors import RecordRejected, SinkRejected
from streamgroups_sinks.postgres.connection import connected
from streamgroups_sinks.postgres.copy_to_stage import copy_into
from streamgroups_sinks.postgres.stages import PostgresStaged
from unit_tests.examples import TIMES

_INTEGERS = [0, 1, -1, 10, 1234, 2**24, 2**24 + 1, 2**31 - 1, 2**53, 2**53 + 1, 10**18, 2**63 - 1, -(2**63), 2**64 - 1]
_FLOATS = [
    0.0,
    0.1,
    0.5,
    1.25,
    12.34,
    99.0,
    16777217.0,
    1e10,
    1e300,
    5e-324,
    3.4028235e38,
    math.nan,
    math.inf,
    -math.inf,
]
_DECIMALS = ["0", "0.0001", "0.5", "0.1", "1.25", "12.3400", "99", "1234.5678", "16777217", "9007199254740993"]
_TEXTS = [
    "",
    "a",
    "a  ",
    "ab",
    "ab    ",
    "ä",
    "日本語",
    "\\",
    "{1.25}",
    "[1,2)",
    '{"ab    "}',
    "{1.239}",
    "{(1.239)}",
    "[1.239,2)",
    "{" + "x" * 64 + "}",
    "1.5",
    "x" * 63,
    "x" * 64,
    '"',
]
_DAYS = [0, -1, 11016, -719162, -719163, -2451545 + 10957, -2451546 + 10957, 2932897, 2**31 - 1, -(2**31)]
_SECONDS = [0, -1, 951782400, -62135596800, -62135596801, 253402300800, 9223372036854, -211813488000 + 946684800]
_MICROS = [0, 1, -1, 500_000, 123_000, 10**6, *(s * 10**6 for s in _SECONDS), 2**63 - 1, -(2**63)]
_TIMES = [0, 1, 1000, 10**6, 86_399_999_999]


def _of(arrow: pa.DataType, values: list[Any]) -> list[Any]:
    """The values that the type has."""
    found = []
    for value in values:
        try:
            pa.array([value], arrow)
        except (pa.ArrowInvalid, OverflowError, ValueError):
            continue
        found.append(value)
    return found


_RECORDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    **{
        str(t): (t, _of(t, _INTEGERS))
        for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint32(), pa.uint64())
    },
    "float": (pa.float32(), [float(np.float32(x)) for x in _FLOATS if not 3.5e38 < x < math.inf]),
    "double": (pa.float64(), _FLOATS),
    "decimal": (pa.decimal128(20, 4), [Decimal(x) for x in _DECIMALS]),
    "long decimal": (
        pa.decimal128(38, 20),
        [Decimal(x) for x in ("0.5", "0.00000000000000000001", "12345678901234567.5")],
    ),
    "money": (pa.decimal128(6, 2), [Decimal(x) for x in ("0.10", "1234.56", "99")]),
    "string": (pa.string(), _TEXTS),
    "binary": (pa.binary(), [b"", b"\0\xff"]),
    "boolean": (pa.bool_(), [True, False]),
    "date": (pa.date32(), _DAYS),
    "time": (pa.time64("us"), _TIMES),
    "time ns": (pa.time64("ns"), [0, 1, 1000]),
    **{f"timestamp {unit}": (pa.timestamp(unit), _MICROS) for unit in ("s", "us", "ns")},
    "timestamptz": (pa.timestamp("us", "UTC"), _MICROS),
    "duration": (pa.duration("us"), _MICROS),
    "duration ns": (pa.duration("ns"), _MICROS),
}
_TYPES = [
    *("smallint", "integer", "bigint", "real", "double precision", "numeric", "numeric(6,1)", "numeric(20,4)"),
    *(
        "numeric(38,20)",
        "text",
        "varchar",
        "varchar(2)",
        "char(2)",
        '"char"',
        "name",
        "json",
        "jsonb",
        "bytea",
        "boolean",
    ),
    *("date", "time", "time(0)", "timestamp", "timestamp(0)", "timestamp(3)", "timestamptz", "timestamptz(0)"),
    *("interval", "interval(0)", "interval day", "interval day to second(1)", "interval year", "bit(2)", "varbit(2)"),
    *("numeric[]", "numeric(2,1)[]", "text[]", "int4range", "nested_money", "timetz", "money", "oid", "uuid"),
    *("varchar(2)[]", "name[]", '"char"[]', "nested_money[]", "pairs", "pairs[]", "fare[]", "money_range", "money[]"),
    *("time(0)[]", "timestamptz(0)[]", "interval(0)[]", "interval day[]", "varchar[]", "char(2)[]"),
]
#: The seconds since 1970 of a time and of a date. The fraction is separate: the server rounds the sum.
_SECONDS_OF = (
    "(extract(epoch FROM date_trunc('second', {}))::numeric + extract(microseconds FROM {})::int8 % 1000000 / 1000000.0)",
    "(({} - '1970-01-01'::date) * 86400::int8)",
)
#: The types of a usual run.
_USUAL = ["real", "numeric(6,1)", "varchar(2)", "date", "timestamptz(0)", "varchar(2)[]", "nested_money[]", "fare[]"]
_UNITS = {"s": 10**6, "ms": 1000, "us": 1, "ns": Fraction(1, 1000)}


def _array(arrow: pa.DataType, value: Any) -> pa.Array:
    # Not from Python's times, which have other limits.
    if pa.types.is_temporal(arrow):
        number = pa.int32() if pa.types.is_date32(arrow) else pa.int64()
        return pa.array([value], number).view(arrow)
    return pa.array([value], arrow)


def _expected(arrow: pa.DataType, value: Any) -> Any:
    if pa.types.is_date(arrow):
        return Fraction(value * 86_400)
    if pa.types.is_temporal(arrow):
        return Fraction(value * _UNITS[arrow.unit], 10**6)
    return value


def _is_same(kind: str, expected: Any, text: str, seconds: Any, type_: str) -> bool:
    if isinstance(expected, Fraction):
        return bool(expected == Fraction(seconds))
    if isinstance(expected, bool):
        return text == str(expected).lower()
    if isinstance(expected, int):
        # A float is read with all of its digits.
        of: Any = {"real": np.float32, "double precision": np.float64}.get(type_, Decimal)
        return Fraction(expected) == Fraction(of(text) if of is Decimal else of(text).item())
    if isinstance(expected, float):
        found = float(np.float32(text)) if kind == "float" and type_ != "double precision" else float(text)
        found = float(np.float32(text)) if type_ == "real" else found
        return found == expected or (math.isnan(found) and math.isnan(expected))
    if isinstance(expected, Decimal):
        return Decimal(text) == expected
    if isinstance(expected, bytes):
        return text == "\\x" + expected.hex()
    return bool(text == (expected.rstrip(" ") if type_ == "char(2)" else expected))


def _accepted(conninfo: str, type_: str) -> list[str]:
    """The records that the sink accepts for a column of the type, found with one error."""
    execute(
        conninfo,
        "DROP TABLE IF EXISTS flights",
        f"CREATE TABLE flights ({', '.join(f'{_name(k)} {type_}' for k in _RECORDS)})",
    )
    to = sink(conninfo)
    schema = pa.schema({kind: arrow for kind, (arrow, _) in _RECORDS.items()})
    try:
        to.discard(to.begin(schema, token()))
    except SinkRejected as e:
        return [kind for kind in _RECORDS if f"column '{kind}' is" not in e.what]
    return list(_RECORDS)


def _name(kind: str) -> str:
    return f'"{kind}"'


def _written(conninfo: str, type_: str, kinds: list[str]) -> list[tuple[str, Any]]:
    """Writes each value of the records in a row of its own. Returns those that the sink accepts."""
    rows = [(kind, value) for kind in kinds for value in _RECORDS[kind][1]]
    to, table = sink(conninfo), {}
    for kind in kinds:
        arrow = _RECORDS[kind][0]
        table[kind] = pa.concat_arrays([_array(arrow, v) if k == kind else pa.nulls(1, arrow) for k, v in rows])
    table["row"] = pa.array(range(len(rows)))
    execute(
        conninfo,
        "DROP TABLE flights",
        f"CREATE TABLE flights ({', '.join(f'{_name(k)} {type_}' for k in kinds)}, row int8)",
    )
    batch = pa.record_batch(table)
    begun = to.begin(batch.schema, token())
    attempts = itertools.count()

    def write(connection: psycopg.Connection, some: pa.RecordBatch) -> list[PostgresStaged]:
        try:
            return [copy_into(connection, begun, iter([some]), next(attempts))]
        except RecordRejected:
            half = len(some) // 2
            return [*write(connection, some.slice(0, half)), *write(connection, some.slice(half))] if half else []

    # As the sink does, with one connection.
    with connected(conninfo, "staging") as connection:
        staged = write(connection, batch)
    with to.open("g") as ledger, ledger.transaction() as transaction:
        transaction.write(staged)
    to.discard(begun)
    return rows


@pytest.mark.parametrize("type_", _TYPES if TIMES > 1 else _USUAL)
def test_X2_a_value_comes_back_as_it_was_or_is_rejected(postgres: str, type_: str) -> None:
    execute(
        postgres,
        "CREATE DOMAIN inner_money AS numeric(6,1)",
        "CREATE DOMAIN nested_money AS inner_money",
        "CREATE DOMAIN pairs AS varchar(2)[]",
        "CREATE TYPE fare AS (price nested_money)",
        "CREATE TYPE money_range AS RANGE (subtype = nested_money)",
    )
    kinds = _accepted(postgres, type_)
    if not kinds:
        return
    rows = _written(postgres, type_, kinds)
    for kind in kinds:
        is_time = pa.types.is_temporal(_RECORDS[kind][0])
        seconds = _SECONDS_OF[type_ == "date"].replace("{}", _name(kind)) if is_time else "NULL"
        with psycopg.connect(postgres) as connection:
            connection.execute("SET TimeZone = 'UTC'; SET extra_float_digits = 1")
            found = connection.execute(
                f"SELECT row, {_name(kind)}::text, {seconds}::text FROM flights WHERE {_name(kind)} IS NOT NULL"
            ).fetchall()
        for row, text, value in found:
            of, written = rows[row]
            assert of == kind
            expected = _expected(_RECORDS[kind][0], written)
            if kind == "string" and type_ in ("json", "jsonb", "numeric[]", "text[]", "int4range", "oid", "char(2)[]"):
                continue
            assert _is_same(kind, expected, text, value, type_), (kind, written, text, value)
