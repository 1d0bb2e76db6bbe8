"""The life cycle of windows: when they open, are due, are updated and close.

:mod:`streamgroups.event_time.panes` calls this module when the watermark advances or the source is idle. Source: SEMANTICS W4, W5, W13; Flink, where late records update
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

from dataclasses import dataclass, replace

from streamgroups.event_time.idleness import Idle
from streamgroups.event_time.watermark import NOT_YET, At, Watermark, earlier, latest, reached
from streamgroups.event_time.windows import EventTime, Window, Windowing


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
