"""Encodes nested Arrow values as JSON, for ``jsonb`` columns.

Used by ``copy_text``. Neither Arrow nor the standard library encodes decimals, binary data or times. JSON numbers can
have any length, so a decimal stays exact. Binary data is base64, times are ISO 8601, and a map is an object. A number
without a JSON representation is a string (``"NaN"``). Source: Spark's ``to_json``.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa

from streamgroups_sinks.postgres.column_types import value_type

_Write = Callable[[Any], str]


def json_writer(arrow_type: pa.DataType) -> _Write:
    """Returns a function that encodes a value of ``to_pylist`` as JSON.

    >>> json_writer(pa.struct({"carrier": pa.string(), "delays": pa.list_(pa.float64())}))({"carrier": "UA", "delays": [1.5, None]})
    '{"carrier": "UA", "delays": [1.5, null]}'
    """
    write = _writer(value_type(arrow_type))
    return lambda value: "null" if value is None else write(value)


def _writer(t: pa.DataType) -> _Write:
    if pa.types.is_struct(t):
        return _struct_writer(t)
    if pa.types.is_map(t):
        key, item = _key_writer(t.key_type), json_writer(t.item_type)
        return lambda pairs: "{" + ", ".join(f"{key(k)}: {item(v)}" for k, v in pairs) + "}"
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
