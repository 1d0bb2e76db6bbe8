"""Encodes Arrow columns in the binary format of PostgreSQL's COPY, which the server reads in half the time of text.

Used by ``stages`` in tasks if all columns have types with a binary encoding here. Otherwise ``copy_text`` encodes all
columns, because a COPY has one format. All columns are processed by Arrow and NumPy as a whole. Source: PostgreSQL's
documentation, "COPY" (binary format); the ``..._recv`` functions of its types.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups_sinks.postgres.column_types import (
    Kind,
    RecordColumn,
    checked_texts,
    first_rejected,
    joined,
    plain,
    rejected,
    unwrapped,
)

#: The header before the first row: no options, no extension.
HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
#: The trailer after the last row.
TRAILER = struct.pack(">h", -1)

_BYTES = pa.large_binary()
# Not as ``pa.scalar``, which imports pandas. The processes of the driver import this module, and need no pandas.
_NULL = struct.pack(">i", -1)
_NOTHING = b""
#: PostgreSQL's dates begin at 2000-01-01.
_DAYS_TO_2000 = 10_957
_US_TO_2000 = _DAYS_TO_2000 * 86_400_000_000
#: The first and last number of each kind. They exclude the numbers of ``-infinity`` and ``infinity``.
_RANGES: dict[Kind, tuple[int, int]] = {
    Kind.DATE: (-2_451_545, 2_145_031_948),
    Kind.TIME: (0, 86_400_000_000),
    Kind.TIMESTAMP: (-211_813_488_000_000_000, 9_223_371_331_199_999_999),
    Kind.TIMESTAMPTZ: (-211_813_488_000_000_000, 9_223_371_331_199_999_999),
}

#: Types with values of fixed size, by their names in ``pg_type``.
_FIXED: dict[str, npt.DTypeLike] = {
    "bool": ">i1",
    "int2": ">i2",
    "int4": ">i4",
    "int8": ">i8",
    "float4": ">f4",
    "float8": ">f8",
    "date": ">i4",
    "time": ">i8",
    "timestamp": ">i8",
    "timestamptz": ">i8",
    # Microseconds, days, months. The last two remain 0.
    "interval": np.dtype([("us", ">i8"), ("days", ">i4"), ("months", ">i4")]),
}
#: The kinds that are encoded for each type, with the type of a new table. The server converts other kinds from text.
_MADE_OF: dict[str, set[tuple[Kind, str]]] = {
    "bool": {(Kind.BOOLEAN, "boolean")},
    "int2": {(Kind.INTEGER, "smallint")},
    "int4": {(Kind.INTEGER, "smallint"), (Kind.INTEGER, "integer")},
    "int8": {(Kind.INTEGER, "smallint"), (Kind.INTEGER, "integer"), (Kind.INTEGER, "bigint")},
    "float4": {(Kind.FLOAT, "real")},
    "float8": {(Kind.FLOAT, "double precision")},
    "date": {(Kind.DATE, "date")},
    "time": {(Kind.TIME, "time")},
    "timestamp": {(Kind.TIMESTAMP, "timestamp")},
    "timestamptz": {(Kind.TIMESTAMPTZ, "timestamptz")},
    "interval": {(Kind.INTERVAL, "interval")},
    "text": {(Kind.STRING, "text")},
    "varchar": {(Kind.STRING, "text")},
    "bytea": {(Kind.BINARY, "bytea")},
}


def is_binary(column: RecordColumn, type_name: str) -> bool:
    """Returns whether the values of a column can be encoded in binary.

    Args:
        column: the column of the records.
        type_name: the name of the target type in ``pg_type``.

    >>> id_ = RecordColumn("id", Kind.INTEGER, "integer")
    >>> [is_binary(id_, type_name) for type_name in ("int8", "int2", "numeric")]
    [True, False, False]
    """
    return (column.kind, column.type) in _MADE_OF.get(type_name, ())


def copy_binary(
    records: pa.RecordBatch,
    columns: Sequence[tuple[RecordColumn, str]],
    *,
    before: Sequence[int | pa.Array],
    first_row: int,
) -> pa.Buffer:
    """Encodes rows for COPY.

    Args:
        records: a batch of the records of a task.
        columns: the columns to write, in order, and their target types in ``pg_type``.
        before: the ``bigint`` fields before them in each row: numbers, or arrays of numbers.
        first_row: the number of earlier records of the task, for errors.

    Raises:
        RecordRejected: if PostgreSQL does not support a value. The error contains column and row.

    >>> batch = pa.record_batch({"name": ["ab", None]})
    >>> columns = [(RecordColumn("name", Kind.STRING, "text"), "text")]
    >>> copy_binary(batch, columns, before=[7], first_row=0).to_pybytes().hex(" ", 4)
    '0002 00000008 00000000 00000007 00000002 61620002 00000008 00000000 00000007 ffffffff'
    """
    return joined(binary_rows(records, columns, before=before, first_row=first_row))


def binary_rows(
    records: pa.RecordBatch,
    columns: Sequence[tuple[RecordColumn, str]],
    *,
    before: Sequence[int | pa.Array] = (),
    first_row: int,
) -> pa.Array:
    """Encodes each row for COPY, as an array of ``large_binary``. See :func:`copy_binary`."""
    if not len(records):
        return pa.array([], _BYTES)
    fields: list[pa.Array | pa.Scalar] = [pa.scalar(struct.pack(">h", len(before) + len(columns)), _BYTES)]
    for value in before:
        if isinstance(value, int):
            fields.append(pa.scalar(struct.pack(">iq", 8, value), _BYTES))
        else:
            fields.append(_fixed(value, "int8"))
    for column, type_name in columns:
        fields += _fields(unwrapped(records.column(column.name)), column, type_name, first_row)
    return pc.binary_join_element_wise(*fields, pa.scalar(_NOTHING, _BYTES))


def _fields(values: pa.Array, column: RecordColumn, type_name: str, first_row: int) -> list[pa.Array]:
    """Returns sizes and values, in one array or in two."""
    if column.kind is Kind.STRING:
        return _of_any_size(checked_texts(pc.cast(values, pa.large_string()), column, first_row))
    if column.kind is Kind.BINARY:
        return _of_any_size(values)
    try:
        return [_fixed(pg_numbers(values, column.kind), type_name)]
    except pa.ArrowInvalid as e:
        row = first_row + first_rejected(values, lambda one: pg_numbers(one, column.kind))
        raise rejected(column, row, str(e)) from e


def pg_numbers(values: pa.Array, kind: Kind) -> pa.Array:
    """Converts values to PostgreSQL's numbers.

    Raises:
        pa.ArrowInvalid: if a value has no such number.
    """
    numbers = _unchecked_numbers(values, kind)
    if kind in _RANGES:
        first, last = _RANGES[kind]
        found = pc.min_max(numbers)
        if found["min"].is_valid and not first <= found["min"].as_py() <= found["max"].as_py() <= last:
            raise pa.ArrowInvalid(f"PostgreSQL has no such {kind.value}")
    return numbers


def _unchecked_numbers(values: pa.Array, kind: Kind) -> pa.Array:
    if kind is Kind.BOOLEAN:
        return pc.cast(values, pa.int8())
    if kind is Kind.DATE:
        return pc.subtract_checked(pc.cast(plain(values), pa.int32()), pa.scalar(_DAYS_TO_2000, pa.int32()))
    if kind in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ):
        return pc.subtract_checked(pc.cast(plain(values), pa.int64()), pa.scalar(_US_TO_2000))
    if kind in (Kind.TIME, Kind.INTERVAL):
        return pc.cast(plain(values), pa.int64())
    return values


def _fixed(numbers: pa.Array, type_name: str) -> pa.Array:
    fields = np.zeros(len(numbers), [("size", ">i4"), ("value", _FIXED[type_name])])
    fields["size"] = fields.dtype["value"].itemsize
    values = fields["value"]["us"] if type_name == "interval" else fields["value"]
    values[:] = (pc.fill_null(numbers, 0) if numbers.null_count else numbers).to_numpy(zero_copy_only=False)
    made = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(fields.itemsize), len(fields), [None, pa.py_buffer(fields)]
    ).cast(_BYTES)
    return pc.if_else(numbers.is_valid(), made, pa.scalar(_NULL, _BYTES)) if numbers.null_count else made


def _of_any_size(values: pa.Array) -> list[pa.Array]:
    values = pc.cast(values, _BYTES)
    lengths = pc.fill_null(pc.binary_length(values), -1).to_numpy(zero_copy_only=False).astype(">i4")
    sizes = pa.FixedSizeBinaryArray.from_buffers(pa.binary(4), len(lengths), [None, pa.py_buffer(lengths)])
    return [sizes.cast(_BYTES), pc.fill_null(values, b"") if values.null_count else values]
