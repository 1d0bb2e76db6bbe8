"""Records before the watermark: how each is handled, and the dead letter of a dropped record.

:mod:`streamgroups.event_time.placing` calls this module for each record. Source: SEMANTICS W7, W9; StreamInsight's
``AdvanceTimePolicy`` (drop, adjust). The default is that of Atlas: open windows count records before the watermark.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from streamgroups.event_time.watermark import At, Watermark, is_final
from streamgroups.event_time.windows import Window
from streamgroups.times import utc


class OnViolation(Enum):
    """How a record before the watermark is handled: the option ``onViolation``."""

    #: It keeps its time, and is late only for closed windows.
    KEEP = "keep"
    #: It is dropped.
    DROP = "drop"
    #: Its start is set to the watermark if its end is later; otherwise it is dropped.
    ADJUST = "adjust"


@dataclass(frozen=True, slots=True)
class Interval:
    """The validity of a record: ``[start_ms, end_ms)``, in milliseconds since the epoch."""

    start_ms: int
    end_ms: int


def point(time_ms: int) -> Interval:
    """Returns the interval of a record that is valid for one moment, as most records are.

    >>> point(5)
    Interval(start_ms=5, end_ms=6)
    """
    return Interval(time_ms, time_ms + 1)


@dataclass(frozen=True, slots=True)
class Keep:
    """The record keeps its own time."""


@dataclass(frozen=True, slots=True)
class Lift:
    """The record starts at the watermark."""

    interval: Interval


@dataclass(frozen=True, slots=True)
class Drop:
    """The record is dropped."""


Judgement: TypeAlias = Keep | Lift | Drop


def judge(record: Interval, watermark: Watermark, policy: OnViolation) -> Judgement:
    """Decides how a record is handled at the current watermark (SEMANTICS W9).

    Args:
        record: when the record is valid.
        watermark: the watermark of the whole source when the record is processed.
        policy: how violations are handled.

    >>> judge(point(5), At(5), OnViolation.DROP), judge(point(4), At(5), OnViolation.DROP)
    (Keep(), Drop())
    >>> judge(Interval(4, 9), At(5), OnViolation.ADJUST)
    Lift(interval=Interval(start_ms=5, end_ms=9))
    >>> judge(Interval(3, 5), At(5), OnViolation.ADJUST)
    Drop()
    """
    if policy is OnViolation.KEEP or not is_final(record.start_ms, watermark):
        return Keep()
    # The interval excludes its end: if the end equals the watermark, nothing of the record is left.
    if policy is OnViolation.ADJUST and isinstance(watermark, At) and watermark.time_ms < record.end_ms:
        return Lift(Interval(watermark.time_ms, record.end_ms))
    return Drop()


class Why(Enum):
    """Why a record is dropped."""

    #: Every window it belongs to is closed (SEMANTICS W7).
    LATE = "late"
    #: It is before the watermark, and no part of it is after (SEMANTICS W9).
    VIOLATION = "violation"
    #: It has no event time.
    UNREADABLE = "no event time"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The description of a record in the dead letter queue, beside its content (SEMANTICS W7).

    Args:
        why: why it is dropped.
        event_time_ms: its event time; ``None`` if it cannot be read.
        watermark: the watermark.
        missed: the windows that it missed.

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
