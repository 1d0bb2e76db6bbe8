"""The life cycle of windows: when they open, count records, are due, are updated and close.

:mod:`streamgroups.event_time.placing` calls this module for each record. :mod:`streamgroups.event_time.panes` calls it
when the watermark advances or the source is idle. Source: SEMANTICS W4, W5, W13; Flink, where late records update
windows too.

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

from streamgroups.event_time.idleness import Idle
from streamgroups.event_time.watermark import NOT_YET, At, Watermark, earlier, latest, oldest, reached
from streamgroups.event_time.windows import EventTime, Session, Window, Windowing, windows_of


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


@dataclass(frozen=True, slots=True)
class Counted:
    """The outcome for a record that at least one window counts.

    Args:
        time_ms: the time that assigns the record.
        windows: its windows, including this record.
        refined: the windows among them that were due before. Their emitted result has changed, or is emitted now for
            the first time.
        merged: sessions that the record has merged into another one.
        missed: its windows that are closed. Other windows of a hopping shape count the record.
    """

    time_ms: int
    windows: tuple[Window, ...]
    refined: tuple[Window, ...] = ()
    merged: tuple[Window, ...] = ()
    missed: tuple[Window, ...] = ()


@dataclass(frozen=True, slots=True)
class Missed:
    """The outcome for a record whose windows are all closed."""

    windows: tuple[Window, ...]


Outcome: TypeAlias = Counted | Missed


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


def count(windowing: Windowing, state: WindowStates, time_ms: int) -> tuple[WindowStates, Outcome]:
    """Assigns one record to its windows that are still open (SEMANTICS W4).

    Args:
        windowing: how records are assigned to windows.
        state: the windows.
        time_ms: the time of the record.

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
        replace(state, filled=_in_order([filled, *(f for f in state.filled if f not in touched)])),
        Counted(
            time_ms,
            (session,),
            refined=(session,) if _due(state, before) else (),
            merged=tuple(window for window in before if window != session),
        ),
    )


def advance(windowing: Windowing, state: WindowStates, watermark: Watermark) -> tuple[WindowStates, Change]:
    """Advances time, and closes windows after their allowed lateness (SEMANTICS W4).

    Args:
        windowing: how records are assigned to windows.
        state: the windows.
        watermark: the new watermark; for windows by processing time, the clock.
    """
    lateness_ms = windowing.boundary.allowed_lateness_ms if isinstance(windowing.boundary, EventTime) else 0
    return _move(state, watermark, earlier(watermark, lateness_ms))


def expire(windowing: Windowing, state: WindowStates, quiet: Idle | None) -> tuple[WindowStates, Change]:
    """Closes windows that contain records because the source is idle, and advances time to their ends (SEMANTICS W5).

    The timeout starts when the clock has passed the end of the window and the source is idle, whichever is later. It
    does not apply to an empty window, which would only make later records late.

    Args:
        windowing: how records are assigned to windows.
        state: the windows, with all records counted that were read.
        quiet: how long the source has been idle, by the clock; ``None`` if it is not idle.

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
    """Returns the watermark of results: those before it are final. Their timestamps are the starts of their windows.

    It is the watermark, set back to the start of the earliest window that can still be open (SEMANTICS W13).

    Args:
        windowing: how records are assigned to windows.
        state: the windows.

    >>> from streamgroups.event_time.windows import Hopping
    >>> released(Windowing(Hopping(10, 5)), WindowStates(At(13), At(13)))
    At(time_ms=5)
    """
    if not isinstance(state.closed_until, At):
        return state.closed_until
    closed_until_ms = state.closed_until.time_ms
    if isinstance(windowing.shape, Session):
        # The earliest record that creates a session of its own ends it one tick after the closed time.
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
