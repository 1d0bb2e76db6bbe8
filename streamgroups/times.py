"""Durations and points in time as text: how options give them, and how messages print them.

Used by the options of the source, by event time, and by the command line. Source: the durations of Spark's own options
(``maxTriggerDelay``) and of ``withWatermark`` ("10 minutes").
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from streamgroups.errors import InvalidOption

_UNITS_MS = {
    1: ("", "ms", "millisecond", "milliseconds"),
    1_000: ("s", "second", "seconds"),
    60_000: ("m", "min", "minute", "minutes"),
    3_600_000: ("h", "hour", "hours"),
    86_400_000: ("d", "day", "days"),
}
_MS_OF_UNIT = {name: ms for ms, names in _UNITS_MS.items() for name in names}
_DURATION = re.compile(r"(?P<sign>-?)(?P<count>\d+)\s*(?P<unit>[a-z]*)")
_HOW_TO = "Write it like 500ms, 30s, 15m, 1h or 1d."
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def parse_duration_ms(text: str, *, option: str, signed: bool = False) -> int:
    """Reads a duration; a number without a unit is in milliseconds.

    Args:
        text: what the user wrote.
        option: the name of the option, for the error.
        signed: whether it may be negative.

    Raises:
        InvalidOption: if it is none, or negative and must not be.

    >>> [parse_duration_ms(text, option="delay") for text in ("500ms", "30s", "15 min", "10 minutes", "250")]
    [500, 30000, 900000, 600000, 250]
    >>> parse_duration_ms("-1ms", option="delay", signed=True)
    -1
    >>> parse_duration_ms("-1ms", option="idleTimeout")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'idleTimeout' is '-1ms', which is negative. Write it like 500ms, 30s, 15m, 1h or 1d.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match["unit"] not in _MS_OF_UNIT:
        raise InvalidOption(f"Option '{option}' is '{text}'.", remedy=_HOW_TO)
    ms = int(match["count"]) * _MS_OF_UNIT[match["unit"]]
    if not match["sign"]:
        return ms
    if not signed:
        raise InvalidOption(f"Option '{option}' is '{text}', which is negative.", remedy=_HOW_TO)
    return -ms


def utc(timestamp_ms: int | None) -> str | None:
    """A point in time in ISO 8601, UTC; ``None`` stays unknown.

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
