"""Handles each record in exactly one way: it is counted, counted at another time, or dropped as a dead letter.

This module states the rules for single records, and the unit tests verify its tables. ``streamgroups_spark.windows.step``
applies the same rules to the columns of a batch. The windows are those at the time when the batch was planned, because
time advances after a batch, not within it. Source: SEMANTICS W6, W7, W9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from streamgroups.event_time.violations import DeadLetter, Drop, Interval, Keep, Lift, OnViolation, Why, judge
from streamgroups.event_time.watermark import At
from streamgroups.event_time.window_states import Counted, Missed, WindowStates, count
from streamgroups.event_time.windows import ProcessingTime, Windowing, windows_of


@dataclass(frozen=True, slots=True)
class Adjusted:
    """The outcome for a record before the watermark that is counted as if it started at the watermark.

    Args:
        event_time_ms: the event time of the record.
        counted: the windows that count it.
    """

    event_time_ms: int
    counted: Counted


Placement: TypeAlias = Counted | Adjusted | DeadLetter


def place(
    windowing: Windowing, state: WindowStates, record: Interval | None, policy: OnViolation, now_ms: int
) -> tuple[WindowStates, Placement]:
    """Assigns a record to its windows, or drops it.

    Args:
        windowing: how records are assigned to windows.
        state: the windows.
        record: when the record is valid; ``None`` if it has no event time.
        policy: how a record before the watermark is handled.
        now_ms: the time now, which is the time of the record for windows by processing time.

    >>> from streamgroups.event_time.violations import point
    >>> from streamgroups.event_time.windows import tumbling
    >>> fives, at_six = Windowing(tumbling(5)), WindowStates(At(6), At(6))
    >>> place(fives, at_six, point(5), OnViolation.KEEP, now_ms=9)[1]
    Counted(time_ms=5, windows=(Window(start_ms=5, end_ms=10),), refined=(), merged=(), missed=())
    >>> place(fives, at_six, point(4), OnViolation.KEEP, now_ms=9)[1].why
    <Why.LATE: 'late'>
    >>> place(fives, at_six, point(5), OnViolation.DROP, now_ms=9)[1].why
    <Why.VIOLATION: 'violation'>
    >>> place(fives, at_six, Interval(4, 9), OnViolation.ADJUST, now_ms=9)[1].counted.time_ms
    6
    """
    if isinstance(windowing.boundary, ProcessingTime):
        # A clock that was set back makes no record late.
        clock_ms = max(now_ms, state.watermark.time_ms) if isinstance(state.watermark, At) else now_ms
        return _count(windowing, state, clock_ms, now_ms)
    if record is None:
        return state, DeadLetter(Why.UNREADABLE, None, state.watermark)
    match judge(record, state.watermark, policy):
        case Keep():
            return _count(windowing, state, record.start_ms, record.start_ms)
        case Lift(lifted):
            after, placed = _count(windowing, state, lifted.start_ms, record.start_ms)
            return after, Adjusted(record.start_ms, placed) if isinstance(placed, Counted) else placed
        case Drop():
            missed = windows_of(windowing.shape, record.start_ms)
            return state, DeadLetter(Why.VIOLATION, record.start_ms, state.watermark, missed)


def _count(
    windowing: Windowing, state: WindowStates, time_ms: int, event_time_ms: int
) -> tuple[WindowStates, Counted | DeadLetter]:
    after, outcome = count(windowing, state, time_ms)
    if isinstance(outcome, Missed):
        return state, DeadLetter(Why.LATE, event_time_ms, state.watermark, outcome.windows)
    return after, outcome
