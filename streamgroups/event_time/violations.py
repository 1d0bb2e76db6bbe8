"""Records that come too late: what is done about one that is before the watermark, and what is told of one that is given up.

Called by :mod:`streamgroups.event_time.placing`, record by record. Source: SEMANTICS W7, W9; StreamInsight's ``AdvanceTimePolicy``
(drop, adjust); Atlas, whose windows count what is before the watermark as long as they are open, which is the default here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from streamgroups.event_time.watermark import At, Watermark, is_final
from streamgroups.event_time.windows import Window
from streamgroups.times import utc


class OnViolation(Enum):
    """What is done with a record that is before the watermark: the option ``onViolation``."""

    #: It keeps its time, and is late only for windows that are closed.
    KEEP = "keep"
    #: It is dropped.
    DROP = "drop"
    #: Its start is lifted to the watermark if it lasts longer than that; otherwise it is dropped.
    ADJUST = "adjust"


@dataclass(frozen=True, slots=True)
class Interval:
    """When a record is valid: ``[start_ms, end_ms)``, in milliseconds since the epoch."""

    start_ms: int
    end_ms: int


def point(time_ms: int) -> Interval:
    """A record that is valid for one moment, as most are.

    >>> point(5)
    Interval(start_ms=5, end_ms=6)
    """
    return Interval(time_ms, time_ms + 1)


@dataclass(frozen=True, slots=True)
class Keep:
    """The record goes on with its own time."""


@dataclass(frozen=True, slots=True)
class Lift:
    """The record goes on, but begins at the watermark."""

    interval: Interval


@dataclass(frozen=True, slots=True)
class Drop:
    """The record is given up."""


Judgement: TypeAlias = Keep | Lift | Drop


def judge(record: Interval, watermark: Watermark, policy: OnViolation) -> Judgement:
    """What becomes of a record, given the time already asserted (SEMANTICS W9).

    Args:
        record: when it is valid.
        watermark: of the whole source, when the record is processed.
        policy: what to do about violations.

    >>> judge(point(5), At(5), OnViolation.DROP), judge(point(4), At(5), OnViolation.DROP)
    (Keep(), Drop())
    >>> judge(Interval(4, 9), At(5), OnViolation.ADJUST)
    Lift(interval=Interval(start_ms=5, end_ms=9))
    >>> judge(Interval(3, 5), At(5), OnViolation.ADJUST)
    Drop()
    """
    if policy is OnViolation.KEEP or not is_final(record.start_ms, watermark):
        return Keep()
    # An end that is the watermark itself is no part of the interval: nothing of the record would be left.
    if policy is OnViolation.ADJUST and isinstance(watermark, At) and watermark.time_ms < record.end_ms:
        return Lift(Interval(watermark.time_ms, record.end_ms))
    return Drop()


class Why(Enum):
    """Why a record is given up."""

    #: Every window it belongs to is closed (SEMANTICS W7).
    LATE = "late"
    #: It is before the watermark, and nothing of it is after (SEMANTICS W9).
    VIOLATION = "violation"
    #: It says no event time.
    UNREADABLE = "no event time"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What the dead letter queue is told of a record, beside its content (SEMANTICS W7).

    Args:
        why: why it is given up.
        event_time_ms: its event time; ``None`` if it cannot be read.
        watermark: where the watermark was.
        missed: the windows it would have been in.

    >>> print(DeadLetter(Why.LATE, 61_000, At(120_000), (Window(60_000, 90_000),)))
    late: event time 1970-01-01T00:01:01.000Z, watermark 1970-01-01T00:02:00.000Z, \
missed [1970-01-01T00:01:00.000Z, 1970-01-01T00:01:30.000Z)
    """

    why: Why
    event_time_ms: int | None
    watermark: Watermark
    missed: tuple[Window, ...] = ()

    def __str__(self) -> str:
        parts = [
            f"event time {utc(self.event_time_ms) or 'unknown'}",
            f"watermark {self.watermark}",
            *(f"missed {window}" for window in self.missed),
        ]
        return f"{self.why.value}: {', '.join(parts)}"
