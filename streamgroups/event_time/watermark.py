"""Watermarks: what is asserted about event time, as variants, and their order.

A watermark says that event time has come so far: what is to come should not be older. Used by all of event time. Source:
SEMANTICS W2, W8, W13; Flink's watermarks and StreamInsight's CTIs, which are the same thing under two names.

The order is ``NotYet < At(...) < AtEnd``. Of a record and a watermark at the same time neither is before the other: a record is late
only if its time is *before* the watermark, and a window ``[start, end)`` is over when the watermark has *reached* its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from streamgroups.times import utc


@dataclass(frozen=True, slots=True)
class NotYet:
    """Nothing is asserted so far."""

    def __str__(self) -> str:
        return "none yet"


@dataclass(frozen=True, slots=True)
class At:
    """Everything before this time has come (milliseconds since the epoch)."""

    time_ms: int

    def __str__(self) -> str:
        return str(utc(self.time_ms))


@dataclass(frozen=True, slots=True)
class AtEnd:
    """Everything has come: what StreamInsight asserts with a time of +∞."""

    def __str__(self) -> str:
        return "the end"


Watermark: TypeAlias = NotYet | At | AtEnd

NOT_YET = NotYet()


def _rank(watermark: Watermark) -> tuple[int, int]:
    if isinstance(watermark, At):
        return 1, watermark.time_ms
    return (0, 0) if isinstance(watermark, NotYet) else (2, 0)


def reached(watermark: Watermark, time_ms: int) -> bool:
    """Whether a watermark has come to a time, or passed it.

    >>> reached(At(5), 5), reached(At(4), 5), reached(NotYet(), 5), reached(AtEnd(), 5)
    (True, False, False, True)
    """
    return _rank(watermark) >= (1, time_ms)


def is_final(time_ms: int, watermark: Watermark) -> bool:
    """Whether all that happened at a time has come: the watermark has passed it (SEMANTICS W12, W13).

    >>> is_final(4, At(5)), is_final(5, At(5))
    (True, False)
    """
    return reached(watermark, time_ms + 1)


def latest(*watermarks: Watermark) -> Watermark:
    """The one that asserts most; of none, nothing.

    >>> latest(At(3), NotYet(), At(7))
    At(time_ms=7)
    """
    return max(watermarks, key=_rank, default=NOT_YET)


def oldest(*watermarks: Watermark) -> Watermark:
    """The one that asserts least: the time of a join or a union of streams, and of a topic's partitions (SEMANTICS W2, W13).

    >>> oldest(At(3), AtEnd(), At(7)), oldest(At(3), NotYet())
    (At(time_ms=3), NotYet())
    """
    return min(watermarks, key=_rank, default=NOT_YET)


def earlier(watermark: Watermark, by_ms: int) -> Watermark:
    """A watermark, held back by a duration: how a window with allowed lateness sees it (SEMANTICS W4).

    >>> earlier(At(7), 2), earlier(AtEnd(), 2)
    (At(time_ms=5), AtEnd())
    """
    return At(watermark.time_ms - by_ms) if isinstance(watermark, At) else watermark
