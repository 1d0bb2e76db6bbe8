"""The statistics of a data file in the log, by which readers skip files: row count, minima, maxima and null counts.

Called by ``data_files``. Pure functions. Readers trust bounds, so values that readers interpret differently have no
bounds: floats with NaN (the maximum in Spark, ignored by Arrow), infinity (unsupported by JSON), and times before the
year 1 or after 9999. The file then has no bounds for any column. deltalake interprets a missing bound beside others as
null, and its pyarrow reader would omit rows. Source: Delta's protocol, "Per-file Statistics"; Parquet's format, ``ColumnOrder``
(bounds of zero).
"""

from __future__ import annotations

import json
import math
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

#: The default number of columns with statistics in Delta's writers.
_MAX_COLUMNS = 32
#: Longer bounds would enlarge the log. They are truncated, and the upper one gets the highest character at its end.
_MAX_STRING = 64
_HIGHEST = "\U0010ffff"


def statistics(rows: pa.Table) -> str:
    """Returns the statistics of one data file, as JSON.

    Args:
        rows: the rows of the file, in Delta's types.

    >>> statistics(pa.table({"n": [3, None, 1], "name": ["a", "b", "c"]}))
    '{"numRecords":3,"minValues":{"n":1,"name":"a"},"maxValues":{"n":3,"name":"c"},"nullCount":{"n":1,"name":0}}'
    """
    columns = {name: rows.column(name) for name in rows.column_names[:_MAX_COLUMNS]}
    nulls = {name: str(column.null_count) for name, column in columns.items() if not pa.types.is_struct(column.type)}
    bounds = {name: _bounds(column) for name, column in columns.items() if _has_bounds(column)}
    low, high = ({name: both[i] for name, both in bounds.items()} for i in range(2))
    figures = {"numRecords": str(rows.num_rows)}
    if None not in low.values() and None not in high.values():
        figures |= {"minValues": _object(low), "maxValues": _object(high)}
    return _object(figures | {"nullCount": _object(nulls)})


def _object(values: dict[str, Any]) -> str:
    """Returns a JSON object from encoded values, so that numbers keep all their digits."""
    return "{" + ",".join(f"{_text(name)}:{value}" for name, value in values.items()) + "}"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _has_bounds(column: pa.ChunkedArray) -> bool:
    of = column.type
    return not (pa.types.is_nested(of) or pa.types.is_binary(of)) and column.null_count < len(column)


def _bounds(column: pa.ChunkedArray) -> tuple[str | None, str | None]:
    """Returns the bounds of a column as JSON. ``None`` if readers interpret a bound differently."""
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        return None, None
    both = pc.min_max(column)
    return _bound(both["min"], upper=False), _bound(both["max"], upper=True)


def _bound(value: Any, *, upper: bool) -> str | None:
    of = value.type
    if pa.types.is_timestamp(of):
        return _instant(value.value, "Z" if of.tz else "")
    if pa.types.is_date(of):
        at = _instant(value.value * 86_400_000_000, "")
        return at and at[: len('"9999-12-31')] + '"'
    plain = value.as_py()
    if pa.types.is_decimal(of):
        return format(plain, "f")
    if isinstance(plain, float) and not math.isfinite(plain):
        return None
    if isinstance(plain, float) and plain == 0:
        # For Arrow and Spark both zeros are equal. For deltalake -0.0 is less, and two equal bounds are the value of all rows.
        return "0.0" if upper else "-0.0"
    if isinstance(plain, str):
        return _text(_cut(plain, upper=upper))
    return json.dumps(plain)


def _cut(value: str, *, upper: bool) -> str:
    if len(value) <= _MAX_STRING or (upper and value[_MAX_STRING] == _HIGHEST):
        return value
    return value[:_MAX_STRING] + (_HIGHEST if upper else "")


def _instant(us: int, zone: str) -> str | None:
    """Formats microseconds since 1970. Returns ``None`` for a year without four digits."""
    try:
        at = datetime(1970, 1, 1) + timedelta(microseconds=us)
    except OverflowError:
        return None
    return f'"{at.isoformat(timespec="microseconds")}{zone}"'
