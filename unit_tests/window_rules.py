"""The rules of windows for single records: each is counted, counted at another time, or dropped as a dead letter.

The tests of event time verify their tables, and compare ``streamgroups_spark.windows.bucket_state`` and
``streamgroups_operators.window_operator``, which apply the same rules to columns. The windows are those at the time when the batch was planned, because time advances after a
batch, not within it. Source: SEMANTICS W4-W7, W9, W13.

In this table ``w`` is the watermark. ``c`` is the time up to which windows are closed: ``w`` less the allowed
lateness::

    open     it contains a record or the watermark
    due      w has reached its end: its result can be emitted
    updated  a record arrived after that: the emitted result has changed
    closed   c has reached its end: a record that arrives now is late

Without allowed lateness, a window is due and closed at the same moment. ``c`` is stored beside ``w``, because an idle
timeout closes a window at once, whatever the allowed lateness, and does not affect later windows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from streamgroups.event_time.violations import OnViolation, Why
from streamgroups.event_time.watermark import NOT_YET, At, Watermark, earliest, latest, reached
from streamgroups.event_time.windows import EventTime, ProcessingTime, Session, Shape, Window, Windowing


@dataclass(frozen=True, slots=True, order=True)
class OpenWindow:
    """A window that contains records.

    Args:
        window: its time.
        records: the number of its records.
    """

    window: Window
    records: int


@dataclass(frozen=True, slots=True)
class WindowStates:
    """The windows of a query or, for sessions, of one key.

    Args:
        watermark: the watermark.
        closed_until: windows that end at or before this watermark are closed.
        filled: the windows that contain records and are not closed, in ascending order.
    """

    watermark: Watermark = NOT_YET
    closed_until: Watermark = NOT_YET
    filled: tuple[OpenWindow, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of an advance of time on windows.

    Args:
        due: windows whose end the watermark has reached with this advance.
        closed: windows that this advance has closed.
    """

    due: tuple[OpenWindow, ...] = ()
    closed: tuple[OpenWindow, ...] = ()


def earlier(watermark: Watermark, by_ms: int) -> Watermark:
    """Returns a watermark less a duration, which closes windows with allowed lateness (SEMANTICS W4).

    >>> earlier(At(7), 2), earlier(NOT_YET, 2)
    (At(time_ms=5), NotYet())
    """
    return At(watermark.time_ms - by_ms) if isinstance(watermark, At) else watermark


def advance(windowing: Windowing, state: WindowStates, watermark: Watermark) -> tuple[WindowStates, Change]:
    """Advances time, and closes windows after their allowed lateness (SEMANTICS W4).

    Args:
        windowing: how records are assigned to windows.
        state: the windows.
        watermark: the new watermark; for windows by processing time, the clock.
    """
    lateness_ms = windowing.boundary.allowed_lateness_ms if isinstance(windowing.boundary, EventTime) else 0
    return _move(state, watermark, earlier(watermark, lateness_ms))


def expire(windowing: Windowing, state: WindowStates, idle: Idle | None) -> tuple[WindowStates, Change]:
    """Closes windows that contain records because the source is idle, and advances time to their ends (SEMANTICS W5).

    The timeout starts when the clock has passed the end of the window and the source is idle, whichever is later. An
    empty window does not close, because later records would be late.

    Args:
        windowing: how records are assigned to windows.
        state: the windows, with all records counted that were read.
        idle: how long the source has been idle, by the clock; ``None`` if it is not idle.

    >>> from streamgroups.event_time.windows import tumbling
    >>> threes = Windowing(tumbling(3), EventTime(idle_timeout_ms=1))
    >>> state = WindowStates(At(2), filled=(OpenWindow(Window(0, 3), 1),))
    >>> [expire(threes, state, Idle(2, until_ms))[0].watermark for until_ms in (3, 4)]
    [At(time_ms=2), At(time_ms=3)]
    """
    timeout_ms = windowing.boundary.idle_timeout_ms if isinstance(windowing.boundary, EventTime) else None
    if idle is None or timeout_ms is None or idle.until_ms - idle.since_ms < timeout_ms:
        return state, Change()
    waited_from_ms = idle.until_ms - timeout_ms
    over_ms = [f.window.end_ms for f in state.filled if f.window.end_ms <= waited_from_ms]
    until: Watermark = At(max(over_ms)) if over_ms else NOT_YET
    return _move(state, until, until)


def _move(state: WindowStates, watermark: Watermark, closed_until: Watermark) -> tuple[WindowStates, Change]:
    moved = WindowStates(latest(state.watermark, watermark), latest(state.closed_until, closed_until))
    due = tuple(f for f in state.filled if _is_due(moved, f.window) and not _is_due(state, f.window))
    closed = tuple(f for f in state.filled if reached(moved.closed_until, f.window.end_ms))
    still_open = tuple(f for f in state.filled if not reached(moved.closed_until, f.window.end_ms))
    return replace(moved, filled=still_open), Change(due, closed)


def _is_due(state: WindowStates, window: Window) -> bool:
    return reached(state.watermark, window.end_ms)


@dataclass(frozen=True, slots=True)
class Idle:
    """A period in which a source had no available and no new records in any partition.

    Args:
        since_ms: the start of the period.
        until_ms: the verified end of the period: each partition was observed at this time or later.
    """

    since_ms: int
    until_ms: int


def is_final(time_ms: int, watermark: Watermark) -> bool:
    """Returns whether the records of a time are complete: the watermark has passed it (SEMANTICS W12, W13)."""
    return reached(watermark, time_ms + 1)


def windows_of(shape: Shape, time_ms: int) -> tuple[Window, ...]:
    """Returns the windows that contain a time, in ascending order. A session is that of a single record.

    Args:
        shape: the shape of the windows.
        time_ms: milliseconds since the epoch.
    """
    if isinstance(shape, Session):
        return (Window(time_ms, time_ms + shape.gap_ms),)
    newest_ms = time_ms - time_ms % shape.hop_ms
    starts = range(newest_ms, time_ms - shape.size_ms, -shape.hop_ms)
    return tuple(Window(start_ms, start_ms + shape.size_ms) for start_ms in reversed(starts))


@dataclass(frozen=True, slots=True)
class Interval:
    """The validity of a record: ``[start_ms, end_ms)``, in milliseconds since the epoch."""

    start_ms: int
    end_ms: int


def point(time_ms: int) -> Interval:
    """Returns the interval of a record that is valid for one moment, as most records are."""
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
    """
    if policy is OnViolation.KEEP or not is_final(record.start_ms, watermark):
        return Keep()
    # The interval excludes its end: if the end equals the watermark, nothing of the record is left.
    if policy is OnViolation.ADJUST and isinstance(watermark, At) and watermark.time_ms < record.end_ms:
        return Lift(Interval(watermark.time_ms, record.end_ms))
    return Drop()


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The description of a record in the dead letter queue, beside its content (SEMANTICS W7).

    Args:
        why: why it is dropped.
        event_time_ms: its event time; ``None`` if it cannot be read.
        watermark: the watermark.
        missed: the windows that it missed.
    """

    why: Why
    event_time_ms: int | None
    watermark: Watermark
    missed: tuple[Window, ...] = ()


@dataclass(frozen=True, slots=True)
class Counted:
    """The outcome for a record that at least one window counts.

    Args:
        time_ms: the time that assigns the record.
        windows: its windows, including this record.
        updated: the windows among them that were due before. Their emitted result has changed, or is emitted now for
            the first time.
        merged: sessions that the record has merged into another one.
        missed: its windows that are closed. Other windows of a hopping shape count the record.
    """

    time_ms: int
    windows: tuple[Window, ...]
    updated: tuple[Window, ...] = ()
    merged: tuple[Window, ...] = ()
    missed: tuple[Window, ...] = ()


@dataclass(frozen=True, slots=True)
class Missed:
    """The outcome for a record whose windows are all closed."""

    windows: tuple[Window, ...]


Counting: TypeAlias = Counted | Missed


def open_windows(windowing: Windowing, state: WindowStates) -> tuple[Window, ...]:
    """Returns the open windows: those that contain records, and those that contain the watermark.

    Args:
        windowing: how records are assigned to windows.
        state: the windows.
    """
    found = {filled.window for filled in state.filled}
    if isinstance(state.watermark, At) and not isinstance(windowing.shape, Session):
        found.update(windows_of(windowing.shape, state.watermark.time_ms))
    return tuple(sorted(found))


def count(windowing: Windowing, state: WindowStates, time_ms: int) -> tuple[WindowStates, Counting]:
    """Assigns one record to its windows that are still open (SEMANTICS W4).

    Args:
        windowing: how records are assigned to windows.
        state: the windows.
        time_ms: the time of the record.
    """
    own = windows_of(windowing.shape, time_ms)
    if isinstance(windowing.shape, Session):
        return _count_session(state, time_ms, own[0])
    windows = tuple(window for window in own if not reached(state.closed_until, window.end_ms))
    if not windows:
        return state, Missed(own)
    records = {filled.window: filled.records for filled in state.filled}
    for window in windows:
        records[window] = records.get(window, 0) + 1
    return (
        _with(state, (OpenWindow(*item) for item in records.items())),
        Counted(time_ms, windows, updated=_due(state, windows), missed=own[: len(own) - len(windows)]),
    )


def _count_session(state: WindowStates, time_ms: int, alone: Window) -> tuple[WindowStates, Counting]:
    """Merges a record with the sessions that it touches.

    The session of the record alone decides whether it is late, as in Spark. If a record could join an open session at
    any lateness, sessions could grow backwards without limit.
    """
    if reached(state.closed_until, alone.end_ms):
        return state, Missed((alone,))
    touched = [f for f in state.filled if f.window.start_ms <= alone.end_ms and alone.start_ms <= f.window.end_ms]
    windows = [alone, *(f.window for f in touched)]
    session = Window(min(w.start_ms for w in windows), max(w.end_ms for w in windows))
    filled = OpenWindow(session, 1 + sum(f.records for f in touched))
    before = tuple(f.window for f in touched)
    return (
        _with(state, [filled, *(f for f in state.filled if f not in touched)]),
        Counted(
            time_ms,
            (session,),
            updated=(session,) if _due(state, before) else (),
            merged=tuple(window for window in before if window != session),
        ),
    )


def released(windowing: Windowing, state: WindowStates) -> Watermark:
    """Returns the watermark of results: those before it are final. Their timestamps are the starts of their windows.

    It is the watermark, set back to the start of the earliest window that can still be open (SEMANTICS W13).

    Args:
        windowing: how records are assigned to windows.
        state: the windows.
    """
    if not isinstance(state.closed_until, At):
        return state.closed_until
    closed_until_ms = state.closed_until.time_ms
    if isinstance(windowing.shape, Session):
        # The earliest record that creates a session of its own ends it one tick after the closed time.
        newest = At(closed_until_ms - windowing.shape.gap_ms + 1)
        return earliest(newest, *(At(f.window.start_ms) for f in state.filled))
    return At(windows_of(windowing.shape, closed_until_ms)[0].start_ms)


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


def _due(state: WindowStates, windows: Iterable[Window]) -> tuple[Window, ...]:
    return tuple(window for window in windows if reached(state.watermark, window.end_ms))


def _with(state: WindowStates, windows: Iterable[OpenWindow]) -> WindowStates:
    return replace(state, filled=tuple(sorted(windows)))
