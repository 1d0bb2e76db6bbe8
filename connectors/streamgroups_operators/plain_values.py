"""Converts Arrow values to Python objects without ``datetime``, so that no value of a record can fail, and times to UTC.

Called wherever a record chooses the values: for dead letters, errors, the display of a state, and each batch of an operator.
Python's times have the years 1 to 9999, Arrow's and Spark's have the years -290,308 to 294,247. A string of Spark can have
bytes that are not UTF-8. Source: Python's ``datetime``; Spark's ``TimestampType``, its cast of binary to string, and
``spark.sql.session.timeZone``; SEMANTICS S10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.json_values import write_json

#: The number that pandas takes for a missing time. Not an Arrow scalar: creating one imports pandas.
_NAT = -(2**63)
_TEXT = (pa.types.is_string, pa.types.is_large_string)


def numbers_of(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Returns values as Python objects, with times and durations as numbers in the unit of their type.

    >>> numbers_of(pa.array([2**63 - 1, None], pa.int64()).cast(pa.timestamp("us", "UTC")))
    [9223372036854775807, None]
    """
    return _objects(values.cast(_without_zone(values.type)), _number)


def texts_of(rows: pa.Table) -> list[dict[str, Any]]:
    """Returns rows as Python objects, with times as texts in UTC, and durations as numbers.

    >>> texts_of(pa.table({"at": pa.array([253402300800000000, 2**62], pa.int64()).cast(pa.timestamp("us", "UTC"))}))
    [{'at': '10000-01-01 00:00:00.000000'}, {'at': '<value out of range: 4611686018427387904>'}]
    """
    columns = []
    for column in rows.columns:
        # Arrow's texts of times with a zone are wrong after the year 32,767.
        columns.append(_objects(column.cast(_without_zone(column.type)), _displayed))
    return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def json_of(rows: pa.Table, max_characters: int) -> list[str]:
    """Returns each row as JSON, for a dead letter. ``NaN`` and infinite numbers are texts.

    Args:
        rows: the rows.
        max_characters: the maximum length. A longer text ends with three dots.

    >>> json_of(pa.table({"raw": [b"\\xff"], "n": [1]}), 100)
    ['{"raw": "\\\\\\\\xff", "n": 1}']
    """
    return [json_of_row(row, max_characters) for row in texts_of(rows)]


def json_of_row(row: Any, max_characters: int) -> str:
    """Returns one row as JSON: see :func:`json_of`."""
    text = write_json(row, default=_json_value)
    return text if len(text) <= max_characters else text[: max_characters - 3] + "..."


def in_utc(table: pa.Table) -> pa.Table:
    """Returns a table with all timestamps in UTC, also in nested columns.

    Arrow's type of a timestamp contains the time zone of the Spark session, and a state must not: another session continues
    with it. The instant stays the same.

    >>> seen = pa.array([0], pa.timestamp("us", "America/New_York"))
    >>> in_utc(pa.table({"seen": seen})).schema
    seen: timestamp[us, tz=UTC]
    """
    schema = pa.schema([field.with_type(with_zone(field.type, "UTC")) for field in table.schema])
    return table if schema.equals(table.schema) else table.cast(schema)


def check_pandas_times(rows: pa.Table) -> None:
    """Checks that pandas can distinguish each time from null. It has NaT at the least number of 64 bits.

    Raises:
        ValueError: if a value would become NaT.
    """
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        of = column.type
        if (pa.types.is_timestamp(of) or pa.types.is_duration(of)) and pc.any(
            pc.equal(column.cast(pa.int64()), pa.scalar(_NAT, pa.int64()))
        ).as_py():
            raise ValueError(
                f"pandas has no object for the value of column '{name}': it is the least number of 64 bits."
            )


def _json_value(value: Any) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def _objects(values: pa.Array | pa.ChunkedArray, form: Callable[[pa.DataType], pa.DataType]) -> list[Any]:
    found = values.cast(_mapped(values.type, form))
    try:
        objects: list[Any] = found.to_pylist()
    except UnicodeDecodeError:
        of_type = found.type
        return [_decoded(it, of_type) for it in found.cast(_mapped(of_type, _bytes)).to_pylist()]
    return objects


def _decoded(value: Any, of: pa.DataType) -> Any:
    """An object whose texts were read as bytes."""
    if value is None:
        return None
    if any(it(of) for it in _TEXT):
        return value.decode(errors="backslashreplace")
    if pa.types.is_struct(of):
        return {field.name: _decoded(value[field.name], field.type) for field in of}
    if pa.types.is_map(of):
        return [(_decoded(key, of.key_type), _decoded(item, of.item_type)) for key, item in value]
    if _is_list(of):
        return [_decoded(it, of.value_type) for it in value]
    return value


# ---- types -----------------------------------------------------------------------------------------------------------


def with_zone(of: pa.DataType, zone: str) -> pa.DataType:
    """Replaces the zone of all timestamps in a type. Those without a zone stay without one.

    >>> with_zone(pa.list_(pa.struct([("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])), "Asia/Tokyo")
    ListType(list<item: struct<at: timestamp[us, tz=Asia/Tokyo], n: int64>>)
    >>> with_zone(pa.timestamp("us"), "Asia/Tokyo")
    TimestampType(timestamp[us])
    """
    return _mapped(of, lambda it: pa.timestamp(it.unit, it.tz and zone) if pa.types.is_timestamp(it) else it)


def _without_zone(of: pa.DataType) -> pa.DataType:
    return _mapped(of, lambda it: pa.timestamp(it.unit) if pa.types.is_timestamp(it) else it)


def _number(of: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(of) or pa.types.is_time32(of):
        return pa.int32()
    is_time = pa.types.is_temporal(of) and not pa.types.is_interval(of)
    return pa.int64() if is_time else of


def _displayed(of: pa.DataType) -> pa.DataType:
    if pa.types.is_duration(of):
        return pa.int64()
    is_time = pa.types.is_temporal(of) and not pa.types.is_interval(of)
    return pa.string() if is_time else of


def _bytes(of: pa.DataType) -> pa.DataType:
    return pa.large_binary() if pa.types.is_large_string(of) else pa.binary() if pa.types.is_string(of) else of


def _is_list(of: pa.DataType) -> bool:
    return bool(pa.types.is_list(of) or pa.types.is_large_list(of) or pa.types.is_fixed_size_list(of))


def _mapped(of: pa.DataType, form: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type whose leaves have another form."""
    if pa.types.is_struct(of):
        return pa.struct([field.with_type(_mapped(field.type, form)) for field in of])
    if pa.types.is_map(of):
        key, item = of.key_field, of.item_field
        return pa.map_(
            key.with_type(_mapped(key.type, form)), item.with_type(_mapped(item.type, form)), keys_sorted=of.keys_sorted
        )
    if _is_list(of):
        field = of.value_field.with_type(_mapped(of.value_type, form))
        if pa.types.is_fixed_size_list(of):
            return pa.list_(field, of.list_size)
        return pa.large_list(field) if pa.types.is_large_list(of) else pa.list_(field)
    if pa.types.is_dictionary(of):
        return _mapped(of.value_type, form)
    return form(of)
