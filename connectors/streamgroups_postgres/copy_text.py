"""Arrow's columns as the text that PostgreSQL's COPY reads.

Used by ``staging`` in tasks. Everything is done column by column in Arrow's own code but for nested values. Of COPY's formats it is the
text format, because one line is one record, so that an error's line number names the record; in CSV a string may hold line breaks.
Source: PostgreSQL's documentation, "COPY": fields end with a tab, lines with a newline, ``\\N`` is NULL, backslash escapes.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.errors import RecordRefused
from streamgroups_postgres.column_types import Kind, RecordColumn
from streamgroups_postgres.json_text import json_writer

_TEXT = pa.large_string()
_TAB, _NEWLINE, _NOTHING = (pa.scalar(text, _TEXT) for text in ("\t", "\n", ""))
#: What is special in the format, and what is written instead; the backslash first.
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


def copy_text(
    records: pa.RecordBatch, columns: Sequence[RecordColumn], *, before: Sequence[Any], first_row: int
) -> pa.Buffer:
    """Lines for COPY.

    Args:
        records: a batch of a task's records.
        columns: what to write, in order.
        before: what comes before them in each line: numbers, or arrays of them.
        first_row: how many records of the task came before, for the text of an error.

    Raises:
        RecordRefused: if a value has no text that PostgreSQL would read, naming column and row.

    >>> batch = pa.record_batch({"id": [1, 2], "name": ["a\\tb", None]})
    >>> columns = [RecordColumn("id", Kind.INTEGER, "bigint"), RecordColumn("name", Kind.STRING, "text")]
    >>> copy_text(batch, columns, before=[7], first_row=0).to_pybytes()
    b'7\\t1\\ta\\\\tb\\n7\\t2\\t\\\\N\\n'
    """
    if not len(records):
        return pa.py_buffer(b"")
    made = [pc.cast(value if isinstance(value, pa.Array) else pa.scalar(value), _TEXT) for value in before]
    made += [_text(records.column(column.name), column, first_row) for column in columns]
    lines = pc.binary_join_element_wise(*made, _TAB, null_handling="replace", null_replacement="\\N")
    return _values(pc.binary_join_element_wise(lines, _NOTHING, _NEWLINE))


def _text(values: pa.Array, column: RecordColumn, first_row: int) -> pa.Array:
    while True:
        if isinstance(values, pa.ExtensionArray):
            values = values.storage
        elif pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        else:
            break
    if column.kind is Kind.STRING:
        return _escaped(_checked(pc.cast(values, _TEXT), column, first_row))
    if column.kind is Kind.BINARY:
        return _hex(values)
    if column.kind is Kind.NESTED:
        return _escaped(_json(values, column, first_row))
    try:
        return pc.cast(_plain(values), _TEXT)
    except pa.ArrowInvalid as e:
        raise _refused(column, first_row + _first(values, _plain), str(e)) from e


def _plain(values: pa.Array) -> pa.Array:
    """Values whose text in Arrow PostgreSQL understands. Finer than microseconds it does not count."""
    t = values.type
    if pa.types.is_date64(t):
        return pc.cast(values, pa.date32())
    if pa.types.is_time(t):
        return _cut(values, pa.time64("us"))
    if pa.types.is_timestamp(t):
        # What has a zone is counted in UTC; the session is in UTC, so that no one needs to know the zone.
        naive = pc.cast(pc.cast(values, pa.int64()), pa.timestamp(t.unit))
        return _cut(naive, pa.timestamp("us"))
    if pa.types.is_duration(t):
        counts = pc.cast(pc.cast(_cut(values, pa.duration("us")), pa.int64()), _TEXT)
        return pc.binary_join_element_wise(counts, pa.scalar("microseconds", _TEXT), pa.scalar(" ", _TEXT))
    return values


def _cut(values: pa.Array, to: pa.DataType) -> pa.Array:
    return pc.cast(values, options=pc.CastOptions(to, allow_time_truncate=True))


def _checked(texts: pa.Array, column: RecordColumn, first_row: int) -> pa.Array:
    """Refuses what is no text to PostgreSQL: it would refuse the line without naming the column."""
    if b"\0" in memoryview(_values(texts)).tobytes():
        row = first_row + pc.index(pc.match_substring(texts, "\0"), True).as_py()
        raise _refused(column, row, "it has the character NUL")
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as e:
        raise _refused(column, first_row + _first(texts, lambda one: one.validate(full=True)), "it is not UTF-8") from e
    return texts


def _escaped(texts: pa.Array) -> pa.Array:
    raw = _values(texts).to_pybytes()
    for special, written in _ESCAPES:
        if special.encode() in raw:
            texts = pc.replace_substring(texts, special, written)
    return texts


def _hex(values: pa.Array) -> pa.Array:
    """``\\x`` and two digits for each byte, all at once: the digits lie where the bytes lay, twice as far."""
    values = pc.cast(values, pa.large_binary())
    if values.offset:
        values = pa.concat_arrays([values])
    _, offsets, data = values.buffers()
    raw = b"" if data is None else data.to_pybytes()
    doubled = pc.multiply(pa.Array.from_buffers(pa.int64(), len(values) + 1, [None, offsets]), 2)
    digits = pa.Array.from_buffers(
        _TEXT, len(values), [values.buffers()[0], doubled.buffers()[1], pa.py_buffer(hexlify(raw))]
    )
    return pc.binary_join_element_wise(pa.scalar("\\\\x", _TEXT), digits, _NOTHING)


def _json(values: pa.Array, column: RecordColumn, first_row: int) -> pa.Array:
    write = json_writer(values.type)

    def texts(some: pa.Array) -> pa.Array:
        return pa.array([None if value is None else write(value) for value in some.to_pylist()], _TEXT)

    try:
        return texts(values)
    except (ValueError, OverflowError) as e:
        raise _refused(column, first_row + _first(values, texts), str(e)) from e


def _values(texts: pa.Array) -> pa.Buffer:
    """The bytes of all values, one after the other."""
    _, offsets, data = texts.buffers()
    if data is None:
        return pa.py_buffer(b"")
    ends = pa.Array.from_buffers(pa.int64(), texts.offset + len(texts) + 1, [None, offsets])
    begin, end = ends[texts.offset].as_py(), ends[-1].as_py()
    return data.slice(begin, end - begin)


def _first(values: pa.Array, convert: Any) -> int:
    """The first row that cannot be converted."""
    for row in range(len(values)):
        try:
            convert(values.slice(row, 1))
        except (pa.ArrowInvalid, ValueError, OverflowError):
            return row
    return 0


def _refused(column: RecordColumn, row: int, why: str) -> RecordRefused:
    return RecordRefused(
        f"The value of column '{column.name}' in row {row + 1} of a task cannot be written to PostgreSQL: {why}.",
        remedy="Filter such records out, or mend the value in the query.",
    )
