"""The life of windows: when they open, count, are due, are refined, and close.

Called by :mod:`streamgroups.event_time.placing` for each record, and by whoever drives time when the watermark has moved or the source is
quiet. Source: SEMANTICS W4, W5, W13; Flink, whose windows are refined by late records as here.

A window's life, with ``w`` for the watermark and ``c`` for the time up to which windows are closed, ``w`` less the allowed lateness::

    open     a record is in it, or the watermark is
    due      w has reached its end: what it holds can be told
    refined  a record came after that: what was told has changed
    closed   c has reached its end: a record that comes now is late

Without allowed lateness a window is due and closed in one moment. ``c`` is kept beside ``w`` because an idle timeout closes a
window at once, allowed lateness or not, and says nothing of the later ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from streamgroups.event_time.idleness import Idle
from streamgroups.event_time.watermark import NOT_YET, At, Watermark, earlier, latest, oldest, reached
from streamgroups.event_time.windows import EventTime, Session, Window, Windowing, windows_of


@dataclass(frozen=True, slots=True, order=True)
class OpenWindow:
    """A window with records in it.

    Args:
        window: its time.
        records: how many.
    """

    window: Window
    records: int


@dataclass(frozen=True, slots=True)
class WindowStates:
    """The windows of a query, or of one key for sessions.

    Args:
        watermark: where time is.
        closed_until: windows that end at or before this are closed.
        filled: those that hold records and are not closed, the earliest first.
    """

    watermark: Watermark = NOT_YET
    closed_until: Watermark = NOT_YET
    filled: tuple[OpenWindow, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of windows when time moves.

    Args:
        due: windows whose end the watermark has reached now.
        closed: windows that are closed now.
    """

    due: tuple[OpenWindow, ...] = ()
    closed: tuple[OpenWindow, ...] = ()


@dataclass(frozen=True, slots=True)
class Counted:
    """A record is in these windows.

    Args:
        time_ms: the time by which it was put there.
        windows: as they are with it.
        refined: those of them whose end the watermark had reached before: what was told of them has changed, or is told only now.
        merged: sessions that the record has made part of another.
        missed: windows it would have been in, had they not been closed. Others of a hopping window's count it.
    """

    time_ms: int
    windows: tuple[Window, ...]
    refined: tuple[Window, ...] = ()
    merged: tuple[Window, ...] = ()
    missed: tuple[Window, ...] = ()


@dataclass(frozen=True, slots=True)
class Missed:
    """Every window of a record is closed."""

    windows: tuple[Window, ...]


Outcome: TypeAlias = Counted | Missed


def open_windows(windowing: Windowing, state: WindowStates) -> tuple[Window, ...]:
    """The windows that are open: those with records, and those the watermark is in.

    Args:
        windowing: how records are put into windows.
        state: the windows.
    """
    found = {filled.window for filled in state.filled}
    if isinstance(state.watermark, At) and not isinstance(windowing.shape, Session):
        found.update(windows_of(windowing.shape, state.watermark.time_ms))
    return tuple(sorted(found))


def count(windowing: Windowing, state: WindowStates, time_ms: int) -> tuple[WindowStates, Outcome]:
    """Puts one record into its windows, those that are still open (SEMANTICS W4).

    Args:
        windowing: how records are put into windows.
        state: the windows.
        time_ms: the record's time.

    >>> from streamgroups.event_time.windows import tumbling
    >>> fives = Windowing(tumbling(5))
    >>> state, _ = count(fives, WindowStates(), 3)
    >>> state, change = advance(fives, state, At(5))
    >>> change.closed
    (OpenWindow(window=Window(start_ms=0, end_ms=5), records=1),)
    >>> count(fives, state, 4)[1]
    Missed(windows=(Window(start_ms=0, end_ms=5),))
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
        replace(state, filled=_in_order(OpenWindow(*item) for item in records.items())),
        Counted(time_ms, windows, refined=_due(state, windows), missed=own[: len(own) - len(windows)]),
    )


def _count_session(state: WindowStates, time_ms: int, alone: Window) -> tuple[WindowStates, Outcome]:
    """A record joins the sessions it touches, and makes them one.

    Whether it is late is told by the session it makes alone, as in Spark: if it could join an open session however late it is, sessions
    could grow backwards without end.
    """
    if reached(state.closed_until, alone.end_ms):
        return state, Missed((alone,))
    touched = [f for f in state.filled if f.window.start_ms <= alone.end_ms and alone.start_ms <= f.window.end_ms]
    windows = [alone, *(f.window for f in touched)]
    session = Window(min(w.start_ms for w in windows), max(w.end_ms for w in windows))
    filled = OpenWindow(session, 1 + sum(f.records for f in touched))
    before = tuple(f.window for f in touched)
    return (
        replace(state, filled=_in_order([filled, *(f for f in state.filled if f not in touched)])),
        Counted(
            time_ms,
            (session,),
            refined=(session,) if _due(state, before) else (),
            merged=tuple(window for window in before if window != session),
        ),
    )


def advance(windowing: Windowing, state: WindowStates, watermark: Watermark) -> tuple[WindowStates, Change]:
    """Time moves; windows that are over close, after their allowed lateness (SEMANTICS W4).

    Args:
        windowing: how records are put into windows.
        state: the windows.
        watermark: where time is now; for windows by processing time, the clock.
    """
    lateness_ms = windowing.boundary.allowed_lateness_ms if isinstance(windowing.boundary, EventTime) else 0
    return _move(state, watermark, earlier(watermark, lateness_ms))


def expire(windowing: Windowing, state: WindowStates, quiet: Idle | None) -> tuple[WindowStates, Change]:
    """Windows that hold records close because the source is idle, and time moves to their ends (SEMANTICS W5).

    The wait begins when the clock has passed a window's end and the source is quiet, whichever is later. A window that nobody has put
    anything into waits for nothing: it would only make later records late.

    Args:
        windowing: how records are put into windows.
        state: the windows, all records that were read counted.
        quiet: how long the source has been quiet, by the clock; ``None`` if it is not.

    >>> from streamgroups.event_time.windows import tumbling
    >>> threes = Windowing(tumbling(3), EventTime(idle_timeout_ms=1))
    >>> state, _ = count(threes, WindowStates(At(2)), 2)
    >>> [expire(threes, state, Idle(2, until_ms))[0].watermark for until_ms in (3, 4)]
    [At(time_ms=2), At(time_ms=3)]
    """
    timeout_ms = windowing.boundary.idle_timeout_ms if isinstance(windowing.boundary, EventTime) else None
    if quiet is None or timeout_ms is None or quiet.until_ms - quiet.since_ms < timeout_ms:
        return state, Change()
    waited_from_ms = quiet.until_ms - timeout_ms
    over_ms = [f.window.end_ms for f in state.filled if f.window.end_ms <= waited_from_ms]
    until: Watermark = At(max(over_ms)) if over_ms else NOT_YET
    return _move(state, until, until)


def released(windowing: Windowing, state: WindowStates) -> Watermark:
    """The time of what windows give: nothing before it will change any more, results being stamped with their windows' starts.

    It is the watermark, moved to the start of the earliest window that may still be open (SEMANTICS W13).

    Args:
        windowing: how records are put into windows.
        state: the windows.

    >>> from streamgroups.event_time.windows import Hopping
    >>> released(Windowing(Hopping(10, 5)), WindowStates(At(13), At(13)))
    At(time_ms=5)
    """
    if not isinstance(state.closed_until, At):
        return state.closed_until
    closed_until_ms = state.closed_until.time_ms
    if isinstance(windowing.shape, Session):
        # The oldest record that makes a session of its own ends it one tick later than what is closed.
        newest = At(closed_until_ms - windowing.shape.gap_ms + 1)
        return oldest(newest, *(At(f.window.start_ms) for f in state.filled))
    return At(windows_of(windowing.shape, closed_until_ms)[0].start_ms)


def _move(state: WindowStates, watermark: Watermark, closed_until: Watermark) -> tuple[WindowStates, Change]:
    moved = WindowStates(latest(state.watermark, watermark), latest(state.closed_until, closed_until))
    due = tuple(f for f in state.filled if _is_due(moved, f.window) and not _is_due(state, f.window))
    closed = tuple(f for f in state.filled if reached(moved.closed_until, f.window.end_ms))
    still_open = tuple(f for f in state.filled if not reached(moved.closed_until, f.window.end_ms))
    return replace(moved, filled=still_open), Change(due, closed)


def _is_due(state: WindowStates, window: Window) -> bool:
    return reached(state.watermark, window.end_ms)


def _due(state: WindowStates, windows: Iterable[Window]) -> tuple[Window, ...]:
    return tuple(window for window in windows if _is_due(state, window))


def _in_order(windows: Iterable[OpenWindow]) -> tuple[OpenWindow, ...]:
    return tuple(sorted(windows))
