"""Converts Arrow values for COPY, and rejects values that PostgreSQL does not support.

Used by ``copy_text`` and ``copy_binary``. Source: PostgreSQL's documentation, "Data Types".
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.errors import RecordRejected
from streamgroups_sinks.postgres.column_types import RecordColumn


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
