"""Watermarks: their variants and their order.

A watermark is the event time up to which the input is complete: later records should not be older. All modules of event
time use this one. Source: SEMANTICS W2, W8, W13; Flink's watermarks and StreamInsight's CTIs, which are the same
concept.

The order is ``NotYet < At(...)``. A record and a watermark at the same time are equal: a record is late only if
its time is *before* the watermark. A window ``[start, end)`` is due when the watermark has *reached* its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from streamgroups.json_values import time_ms
from streamgroups.times import utc

#: The largest distance of an event time from 1970, in milliseconds: 142,599 years. A watermark, the end of a window and a
#: timeout are an event time and a few durations. The distance to :data:`streamgroups.json_values.MAX_TIME_MS`, the limit of
#: stored times, is twelve times the longest duration (100,000 days).
MAX_EVENT_TIME_MS = 4_500_000_000_000_000


@dataclass(frozen=True, slots=True)
class NotYet:
    """No watermark was emitted yet."""

    def __str__(self) -> str:
        return "none yet"


@dataclass(frozen=True, slots=True)
class At:
    """The input is complete up to this time (milliseconds since the epoch)."""

    time_ms: int

    def __str__(self) -> str:
        return str(utc(self.time_ms))


Watermark: TypeAlias = NotYet | At

NOT_YET = NotYet()


def _rank(watermark: Watermark) -> tuple[int, int]:
    return (1, watermark.time_ms) if isinstance(watermark, At) else (0, 0)


def reached(watermark: Watermark, time_ms: int) -> bool:
    """Returns whether a watermark has reached or passed a time.

    >>> reached(At(5), 5), reached(At(4), 5), reached(NotYet(), 5)
    (True, False, False)
    """
    return _rank(watermark) >= (1, time_ms)


def latest(*watermarks: Watermark) -> Watermark:
    """Returns the maximum of watermarks; ``NotYet`` without arguments.

    >>> latest(At(3), NotYet(), At(7))
    At(time_ms=7)
    """
    return max(watermarks, key=_rank, default=NOT_YET)


def earliest(*watermarks: Watermark) -> Watermark:
    """Returns the minimum of watermarks, for joins, for unions and for partitions (SEMANTICS W2, W13).

    >>> earliest(At(3), At(7)), earliest(At(3), NotYet())
    (At(time_ms=3), NotYet())
    """
    return min(watermarks, key=_rank, default=NOT_YET)


def encode_watermark(watermark: Watermark) -> int | None:
    """Encodes a watermark as a JSON value.

    >>> encode_watermark(At(5)), encode_watermark(NotYet())
    (5, None)
    """
    return watermark.time_ms if isinstance(watermark, At) else None


def decode_watermark(value: Any) -> Watermark:
    """Decodes a watermark.

    Raises:
        ValueError: the value is not a watermark.
    """
    return NotYet() if value is None else At(time_ms(value))
