"""Event times that operators compute with: a producer can send any number, and sums with a delay must not overflow.

Used by the operators with event time before they advance a watermark. A time beyond the limit counts as null: its record
becomes a dead letter, or has no match. Source: SEMANTICS W7; :data:`streamgroups.event_time.watermark.MAX_EVENT_TIME_MS`.
"""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.event_time.watermark import MAX_EVENT_TIME_MS

_Values = TypeVar("_Values", pa.Array, pa.ChunkedArray)


def event_times(values: _Values, *, per_ms: int = 1) -> _Values:
    """Returns event times. Those more than :data:`MAX_EVENT_TIME_MS` before or after 1970 are null.

    Args:
        values: numbers since the epoch.
        per_ms: how many units a millisecond has: 1 for milliseconds, 1,000 for microseconds.

    >>> event_times(pa.array([7, None, 2**62])).to_pylist()
    [7, None, None]
    """
    most = MAX_EVENT_TIME_MS * per_ms
    bounds = pc.min_max(values)
    if not bounds["min"].is_valid or (bounds["min"].as_py() >= -most and bounds["max"].as_py() <= most):
        return values
    is_time = pc.and_(pc.greater_equal(values, -most), pc.less_equal(values, most))
    return pc.if_else(is_time, values, pa.scalar(None, values.type))


def with_event_times(records: pa.Table) -> pa.Table:
    """Returns records whose column ``time``, in milliseconds, has event times only, and whose ``until`` is near them.

    >>> with_event_times(pa.table({"time": [2**62], "until": [2**62]})).to_pylist()
    [{'time': None, 'until': 4500000000000000}]
    """
    for name in ("time", "until"):
        if name not in records.column_names:
            continue
        given = records[name]
        # The absence of an end has another meaning than an end that is far away.
        times = event_times(given) if name == "time" else _near(given)
        if times is not given:
            records = records.set_column(records.schema.get_field_index(name), name, times)
    return records


def _near(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if event_times(values) is values:
        return values
    most = pa.scalar(MAX_EVENT_TIME_MS, pa.int64())
    least = pa.scalar(-MAX_EVENT_TIME_MS, pa.int64())
    above = pc.if_else(pc.greater(values, most), most, values)
    return pc.if_else(pc.less(above, least), least, above)
