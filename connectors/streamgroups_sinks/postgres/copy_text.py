"""Encodes Arrow columns in the text format of PostgreSQL's COPY.

Used by ``stages`` in tasks, for columns without a binary encoding in ``copy_binary``. Arrow processes all columns as a
whole, except nested values. In the text format one line is one record, so the line number of an error identifies the
record. In CSV a string can contain line breaks. Source: PostgreSQL's documentation, "COPY": fields end with a tab,
lines with a newline, ``\\N`` is NULL, backslash escapes.

Nested values are JSON for ``jsonb`` columns, like those of Spark's ``to_json``. Neither Arrow nor the standard library encodes
decimals, binary data or times. JSON numbers can have any length, so a decimal stays exact. Binary data is base64, times are
ISO 8601, and a map is an object: one with equal keys is rejected. A number without a JSON representation is a string (``"NaN"``).
"""

from __future__ import annotations

import base64
import json
import math
from binascii import hexlify
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
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
    value_type,
)
from streamgroups_sinks.postgres.copy_binary import pg_numbers

_TEXT = pa.large_string()
#: PostgreSQL's numbers of the years 1 to 9999.
_FOUR_DIGITS = {
    pa.date32(): (-730_119, 2_921_939),
    pa.timestamp("us"): (-730_119 * 86_400_000_000, 2_921_940 * 86_400_000_000 - 1),
}
#: The special characters of the format and their escape sequences, the backslash first.
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
_Write = Callable[[Any], str]


def copy_text(
    records: pa.RecordBatch, columns: Sequence[RecordColumn], *, before: Sequence[Any], first_row: int
) -> pa.Buffer:
    """Encodes lines for COPY.

    Args:
        records: a batch of the records of a task.
        columns: the columns to write, in order.
        before: the fields before them in each line: numbers, or arrays of numbers.
        first_row: the number of earlier records of the task, for errors.

    Raises:
        RecordRejected: if a value has no text that PostgreSQL accepts, or a map has a key twice. The error contains column and
            row.

    >>> batch = pa.record_batch({"id": [1, 2], "name": ["a\\tb", None]})
    >>> columns = [RecordColumn("id", Kind.INTEGER, "bigint"), RecordColumn("name", Kind.STRING, "text")]
    >>> copy_text(batch, columns, before=[7], first_row=0).to_pybytes()
    b'7\\t1\\ta\\\\tb\\n7\\t2\\t\\\\N\\n'
    """
    if not len(records):
        return pa.py_buffer(b"")
    made = [pc.cast(value if isinstance(value, pa.Array) else pa.scalar(value), _TEXT) for value in before]
    made += [_text(records.column(column.name), column, first_row) for column in columns]
    lines = pc.binary_join_element_wise(*made, _scalar("\t"), null_handling="replace", null_replacement="\\N")
    return joined(pc.binary_join_element_wise(lines, _scalar(""), _scalar("\n")))


def _scalar(text: str | None) -> pa.Scalar:
    # Not as a constant: ``pa.scalar`` imports pandas, which the processes of the driver do not need.
    return pa.scalar(text, _TEXT)


def _text(values: pa.Array, column: RecordColumn, first_row: int) -> pa.Array:
    values = unwrapped(values)
    if column.kind is Kind.STRING:
        return _escaped(checked_texts(pc.cast(values, _TEXT), column, first_row))
    if column.kind is Kind.BINARY:
        return _hex(values)
    if column.kind is Kind.NESTED:
        return _escaped(_json(values, column, first_row))
    try:
        if column.kind in (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ):
            return _days(plain(values), pg_numbers(values, column.kind))
        return _written(plain(values))
    except pa.ArrowInvalid as e:
        raise rejected(column, first_row + first_rejected(values, plain), str(e)) from e


def _written(values: pa.Array) -> pa.Array:
    if not pa.types.is_duration(values.type):
        return pc.cast(values, _TEXT)
    counts = pc.cast(pc.cast(values, pa.int64()), _TEXT)
    return pc.binary_join_element_wise(counts, _scalar("microseconds"), _scalar(" "))


def _days(values: pa.Array, numbers: pa.Array) -> pa.Array:
    """Writes dates and timestamps. Arrow has no text for years after 32,767, and PostgreSQL reads no year 0.

    Args:
        values: the values.
        numbers: PostgreSQL's numbers for them, whose range is checked.
    """
    extremes = pc.min_max(numbers)
    first, last = _FOUR_DIGITS[values.type]
    if extremes["min"].as_py() is None or first <= extremes["min"].as_py() <= extremes["max"].as_py() <= last:
        return pc.cast(values, _TEXT)
    counts = pc.fill_null(pc.cast(numbers, pa.int64()), 0).to_numpy()
    zero = np.datetime64("2000-01-01", "D" if pa.types.is_date(values.type) else "us")
    texts = np.datetime_as_string(zero + counts.astype(f"timedelta64[{np.datetime_data(zero.dtype)[0]}]"))
    written = pa.array([_with_era(text) for text in texts.tolist()], _TEXT)
    return pc.if_else(values.is_valid(), written, _scalar(None))


def _with_era(text: str) -> str:
    """Returns a date whose year 0 is 1 BC.

    >>> _with_era("-0043-03-15"), _with_era("10000-01-01")
    ('0044-03-15 BC', '10000-01-01')
    """
    year, month, rest = text.rsplit("-", 2)
    return text if int(year) > 0 else f"{1 - int(year):04}-{month}-{rest} BC"


def _escaped(texts: pa.Array) -> pa.Array:
    raw = joined(texts).to_pybytes()
    for special, written in _ESCAPES:
        if special.encode() in raw:
            texts = pc.replace_substring(texts, special, written)
    return texts


def _hex(values: pa.Array) -> pa.Array:
    """Encodes bytes as ``\\x`` and two digits each. All values are encoded together, and their offsets double."""
    values = pc.cast(values, pa.large_binary())
    if values.offset:
        values = pa.concat_arrays([values])
    _, offsets, data = values.buffers()
    raw = b"" if data is None else data.to_pybytes()
    doubled = pc.multiply(pa.Array.from_buffers(pa.int64(), len(values) + 1, [None, offsets]), 2)
    digits = pa.Array.from_buffers(
        _TEXT, len(values), [values.buffers()[0], doubled.buffers()[1], pa.py_buffer(hexlify(raw))]
    )
    return pc.binary_join_element_wise(_scalar("\\\\x"), digits, _scalar(""))


def _json(values: pa.Array, column: RecordColumn, first_row: int) -> pa.Array:
    write = json_writer(values.type)

    def texts(some: pa.Array) -> pa.Array:
        return pa.array([None if value is None else write(value) for value in some.to_pylist()], _TEXT)

    try:
        return texts(values)
    except (ValueError, OverflowError) as e:
        raise rejected(column, first_row + first_rejected(values, texts), str(e)) from e


def json_writer(arrow_type: pa.DataType) -> _Write:
    """Returns a function that encodes a value of ``to_pylist`` as JSON. It raises ``ValueError`` if a map has a key twice.

    >>> json_writer(pa.struct({"carrier": pa.string(), "delays": pa.list_(pa.float64())}))({"carrier": "UA", "delays": [1.5, None]})
    '{"carrier": "UA", "delays": [1.5, null]}'
    """
    write = _writer(value_type(arrow_type))
    return lambda value: "null" if value is None else write(value)


def _writer(t: pa.DataType) -> _Write:
    if pa.types.is_struct(t):
        return _struct_writer(t)
    if pa.types.is_map(t):
        return _map_writer(t)
    if pa.types.is_nested(t) and hasattr(t, "value_type"):
        each = json_writer(t.value_type)
        return lambda values: "[" + ", ".join(map(each, values)) + "]"
    if pa.types.is_boolean(t):
        return lambda value: "true" if value else "false"
    if pa.types.is_integer(t):
        return str
    if pa.types.is_decimal(t):
        return lambda value: format(value, "f")
    if pa.types.is_floating(t):
        return _float
    if pa.types.is_duration(t):
        return lambda value: json.dumps(_duration(value))
    if pa.types.is_temporal(t):
        return lambda value: json.dumps(value.isoformat())
    return _other


def _struct_writer(t: pa.DataType) -> _Write:
    fields = [(field.name, json.dumps(field.name), json_writer(field.type)) for field in t]
    return lambda value: "{" + ", ".join(f"{quoted}: {write(value[name])}" for name, quoted, write in fields) + "}"


def _map_writer(t: pa.DataType) -> _Write:
    key, item = _key_writer(t.key_type), json_writer(t.item_type)

    def write(pairs: list[tuple[Any, Any]]) -> str:
        written = {key(k): item(v) for k, v in pairs}
        if len(written) < len(pairs):
            # Spark's from_json and its casts of keys return such maps. PostgreSQL would keep the last value only.
            raise ValueError("a map has a key twice")
        return "{" + ", ".join([f"{k}: {v}" for k, v in written.items()]) + "}"

    return write


def _key_writer(t: pa.DataType) -> _Write:
    write = json_writer(t)

    def quoted(key: Any) -> str:
        text = write(key)
        return text if text.startswith('"') else json.dumps(text)

    return quoted


def _float(value: float) -> str:
    return (
        repr(value)
        if math.isfinite(value)
        else json.dumps({math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN"))
    )


def _duration(value: timedelta) -> str:
    """Returns a duration in the style of PostgreSQL's ISO 8601 intervals.

    >>> _duration(timedelta(days=1, seconds=2.5)), _duration(timedelta(microseconds=-1)), _duration(timedelta())
    ('P1DT2.5S', 'PT-0.000001S', 'PT0S')
    """
    sign, rest = ("-", -value) if value < timedelta() else ("", value)
    hours, seconds = divmod(rest.seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    fraction = f"{seconds}.{rest.microseconds:06}".rstrip("0").rstrip(".")
    parts = [
        f"{sign}{number}{unit}"
        for number, unit in ((hours, "H"), (minutes, "M"), (fraction, "S"))
        if number not in (0, "0")
    ]
    days = f"{sign}{rest.days}D" if rest.days else ""
    return f"P{days}T{''.join(parts)}" if parts else (f"P{days}" if days else "PT0S")


def _other(value: Any) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return json.dumps(base64.b64encode(value).decode())
    return json.dumps(str(value), ensure_ascii=False)
