"""Rejects values that PostgreSQL would round or truncate without an error.

Used by ``output_table`` (types) and ``copy_to_stage`` (values). The server rejects a number that is too large for its column, but it
rounds one that has too many digits, and removes spaces and fractions of seconds. Source: PostgreSQL's documentation, "Data
Types" (numeric scale, floating-point types, character types, precision of times), ``interval`` fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups_sinks.postgres.column_types import Kind, RecordColumn, first_rejected, plain, rejected, unwrapped
from streamgroups_sinks.postgres.stages import StageColumn

#: Raises ``ValueError`` if a column does not store one of the values as it is.
_Check = Callable[[pa.Array], None]

_TIMES = frozenset({Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.INTERVAL})
_FLOATS: dict[str, npt.DTypeLike] = {"float4": np.float32, "float8": np.float64}
#: Decimals with this number of digits have a float with the same text. C: ``FLT_DIG``, ``DBL_DIG``.
_FLOAT_DIGITS = {"float4": 6, "float8": 15}
_BIT_WIDTHS = {"smallint": 16, "integer": 32, "bigint": 64, "numeric(20,0)": 64}
_MANTISSA_BITS = {"float4": 24, "float8": 53}
#: Longer values of these types are truncated.
_MAX_TEXT_BYTES = {"name": 63, "char": 1}
_DIGITS_OF_SECONDS = 6


def checks(columns: Sequence[StageColumn]) -> list[tuple[RecordColumn, str, _Check]]:
    """Returns the columns that do not store all values, with their types and checks."""
    found = ((column, _check_of(column.record, column.type_name, column.base)) for column in columns)
    return [(column.record, column.base, check) for column, check in found if check is not None]


def check(records: pa.RecordBatch, columns: Sequence[tuple[RecordColumn, str, _Check]], first_row: int) -> None:
    """Rejects a record with a value that its column does not store as it is.

    Args:
        records: a batch of the records of a task.
        columns: the result of :func:`checks`.
        first_row: the number of earlier records of the task, for errors.

    Raises:
        RecordRejected: if there is one. The error contains column and row.
    """
    for column, type_, is_stored in columns:
        values = unwrapped(records.column(column.name))
        try:
            is_stored(values)
        except (ValueError, ArithmeticError):
            row = first_row + first_rejected(values, is_stored)
            raise rejected(column, row, f"type {type_} would store it rounded or truncated") from None


def _check_of(column: RecordColumn, type_name: str, base: str) -> _Check | None:
    if column.kind in _TIMES:
        return _check_of_time(base)
    if column.kind is Kind.STRING:
        return _check_of_text(type_name, base)
    if type_name in _FLOATS:
        return _check_of_float(column, type_name)
    scale = re.search(r"^numeric\(\d+,(-?\d+)\)", base)
    if scale is None:
        return None
    if column.kind is Kind.INTEGER:
        return partial(_check_tens, power=-int(scale[1])) if int(scale[1]) < 0 else None
    return partial(_check_digits if column.kind is Kind.FLOAT else _check_decimals, scale=int(scale[1]))


def _check_of_time(base: str) -> _Check | None:
    digits = re.search(r"\((\d)\)", base)
    n_digits = int(digits[1]) if digits else _DIGITS_OF_SECONDS
    return None if n_digits == _DIGITS_OF_SECONDS else partial(_check_fraction, n_digits=n_digits)


def _check_of_text(type_name: str, base: str) -> _Check | None:
    if type_name in _MAX_TEXT_BYTES:
        return partial(_check_bytes, most=_MAX_TEXT_BYTES[type_name])
    length = re.search(r"^character varying\((\d+)\)$", base)
    return partial(_check_spaces, most=int(length[1])) if length else None


def _check_of_float(column: RecordColumn, type_name: str) -> _Check | None:
    if column.kind is Kind.INTEGER:
        fits = _BIT_WIDTHS[column.type] <= _MANTISSA_BITS[type_name]
        return None if fits else partial(_check_exact, of=_FLOATS[type_name])
    if column.kind is Kind.FLOAT:
        return (
            partial(_check_exact, of=np.float32) if (column.type, type_name) == ("double precision", "float4") else None
        )
    digits = re.search(r"\d+", column.type)
    fits = digits is not None and int(digits[0]) <= _FLOAT_DIGITS[type_name]
    return None if fits else partial(_check_text_of_float, of=_FLOATS[type_name])


def _require(condition: Any) -> None:
    if not condition:
        raise ValueError("a value is not stored as it is")


def _check_exact(values: pa.Array, *, of: npt.DTypeLike) -> None:
    numbers = values.drop_null().to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        floats = numbers.astype(of)
    if numbers.dtype.kind == "f":
        _require(np.all((floats.astype(np.float64) == numbers) | np.isnan(numbers)))
        return
    limit = float(np.iinfo(numbers.dtype).max) + 1
    inside = floats.astype(np.float64) < limit
    _require(np.all(inside) and np.all(floats.astype(numbers.dtype) == numbers))


def _check_text_of_float(values: pa.Array, *, of: Any) -> None:
    with np.errstate(over="ignore"):
        _require(all(Decimal(str(of(value))) == value for value in values.drop_null().to_pylist()))


def _check_digits(values: pa.Array, *, scale: int) -> None:
    for text in pc.cast(values.drop_null(), pa.string()).to_pylist():
        number = Decimal(text)
        exponent = number.normalize().as_tuple().exponent
        _require(not isinstance(exponent, int) or not number or -exponent <= scale)


def _check_decimals(values: pa.Array, *, scale: int) -> None:
    if scale < values.type.scale:
        make = pa.decimal256 if pa.types.is_decimal256(values.type) else pa.decimal128
        # A safe cast raises an error for a value with more digits.
        pc.cast(values, make(values.type.precision, scale))


def _check_tens(values: pa.Array, *, power: int) -> None:
    _require(all(value % 10**power == 0 for value in values.drop_null().to_pylist()))


def _check_fraction(values: pa.Array, *, n_digits: int) -> None:
    counts = pc.cast(plain(values), pa.int64()).drop_null().to_numpy()
    _require(np.all(counts % 10 ** (_DIGITS_OF_SECONDS - n_digits) == 0))


def _check_bytes(values: pa.Array, *, most: int) -> None:
    longest = pc.max(pc.binary_length(values)).as_py()
    _require(longest is None or longest <= most)


def _check_spaces(values: pa.Array, *, most: int) -> None:
    values = pc.cast(values, pa.large_string())
    longer = values.filter(pc.greater(pc.utf8_length(values), most))
    shortest = pc.min(pc.utf8_length(pc.utf8_rtrim(longer, " "))).as_py()
    _require(shortest is None or shortest > most)
