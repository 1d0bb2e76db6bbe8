"""Formats points in time for messages and tables. :func:`streamgroups.positions.parse_time_ms` parses them.

Used by event time and by the command line. Source: ISO 8601.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def utc(timestamp_ms: int | None) -> str | None:
    """A point in time in ISO 8601, UTC; ``None`` for an unknown one.

    >>> utc(1_357_016_400_000), utc(None)
    ('2013-01-01T05:00:00.000Z', None)
    """
    if timestamp_ms is None:
        return None
    try:
        time = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms}ms"
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
