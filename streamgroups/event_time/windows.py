"""Windows: their shapes, the windows of a record, the clock that closes them, and the kinds of their results.

Used by ``streamgroups_operators.windows`` and ``streamgroups_spark.windows``. All times are UTC. Windows start at multiples
of their hop since the epoch, as in Spark.

The results of a window for one key are a *pane*. A window is *due* when the watermark has reached its end: its pane is
emitted. It is emitted again whenever a late record changes it. When the watermark has reached the end plus the allowed
lateness, the window is *closed*: no pane is emitted, and a record that arrives now is late. An idle timeout closes a window
at once, whatever the allowed lateness, and does not affect later windows. Source: SEMANTICS W4-W6, W13; Atlas's tumbling,
hopping and session windows; panes and accumulation in Beam's model; Flink's merging windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from streamgroups.durations import exact
from streamgroups.errors import InvalidOption
from streamgroups.times import utc


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """The time ``[start_ms, end_ms)``, in milliseconds since the epoch.

    >>> print(Window(0, 300_000))
    [1970-01-01T00:00:00.000Z, 1970-01-01T00:05:00.000Z)
    """

    start_ms: int
    end_ms: int

    def __str__(self) -> str:
        return f"[{utc(self.start_ms)}, {utc(self.end_ms)})"


@dataclass(frozen=True, slots=True, repr=False)
class Hopping:
    """Windows of one size that start every ``hop_ms``. A record belongs to each window that contains its time.

    Raises:
        InvalidOption: if the size or the hop is not above 0, or the windows leave gaps.
    """

    size_ms: int
    hop_ms: int

    def __post_init__(self) -> None:
        _reject_nothing(size=self.size_ms, hop=self.hop_ms)
        if self.hop_ms > self.size_ms:
            raise InvalidOption(
                f"Option 'hop' is {self.hop_ms}ms, which is longer than 'size' ({self.size_ms}ms): some records would be in no window.",
                remedy="Set 'hop' to at most 'size'.",
            )

    def __repr__(self) -> str:
        if self.hop_ms == self.size_ms:
            return f"tumbling('{exact(self.size_ms)}')"
        return f"hopping('{exact(self.size_ms)}', hop='{exact(self.hop_ms)}')"


def tumbling(size_ms: int) -> Hopping:
    """Windows of one size that do not overlap and leave no gaps.

    >>> tumbling(300_000)
    tumbling('5m')
    """
    return Hopping(size_ms, size_ms)


@dataclass(frozen=True, slots=True, repr=False)
class Session:
    """A window that lasts while records arrive, and ends ``gap_ms`` after the last one. Each key has its own sessions.

    Raises:
        InvalidOption: if the gap is not above 0.
    """

    gap_ms: int

    def __post_init__(self) -> None:
        _reject_nothing(gap=self.gap_ms)

    def __repr__(self) -> str:
        return f"session('{exact(self.gap_ms)}')"


Shape: TypeAlias = Hopping | Session


@dataclass(frozen=True, slots=True)
class EventTime:
    """Windows by event time: the watermark closes them (SEMANTICS W4, W5).

    Args:
        allowed_lateness_ms: how long a window stays open after the watermark has reached its end.
        idle_timeout_ms: how long the source must be idle, after the clock has passed the end of a window, until the
            window closes without a record. ``None``: idleness closes no window.

    Raises:
        InvalidOption: if the lateness is negative, or the timeout not above 0.
    """

    allowed_lateness_ms: int = 0
    idle_timeout_ms: int | None = None

    def __post_init__(self) -> None:
        if self.allowed_lateness_ms < 0:
            raise InvalidOption(
                f"Option 'allowed_lateness' is {self.allowed_lateness_ms}ms.", remedy="It must not be negative."
            )
        if self.idle_timeout_ms is not None:
            _reject_nothing(idle_timeout=self.idle_timeout_ms)


@dataclass(frozen=True, slots=True)
class ProcessingTime:
    """Windows by the clock: a record belongs to the window of its processing time, and is never late (SEMANTICS W6)."""


Boundary: TypeAlias = EventTime | ProcessingTime


@dataclass(frozen=True, slots=True)
class Windowing:
    """How records are assigned to windows.

    Args:
        shape: the shape of the windows.
        boundary: the clock that closes them: event time or processing time.

    Raises:
        InvalidOption: for sessions by processing time.
    """

    shape: Shape
    boundary: Boundary = EventTime()

    def __post_init__(self) -> None:
        if isinstance(self.shape, Session) and isinstance(self.boundary, ProcessingTime):
            raise InvalidOption(
                "Option 'boundary' is 'processingTime' for session windows.",
                remedy="Omit it: only tumbling and hopping windows support it.",
            )


class PaneKind(Enum):
    """The kind of an output row of windows: the column ``pane``."""

    #: The watermark has reached the end of the window. By processing time: the clock has reached it.
    ON_TIME = "on time"
    #: The source was idle for the idle timeout, and the window closed without a record.
    IDLE = "idle"
    #: A bounded run has ended, and the window is still open: its result so far.
    FLUSH = "flush"
    #: Late records, within the allowed lateness, have changed an emitted result or have created a first one.
    UPDATE = "update"
    #: An emitted session has become part of another session, so its row is void.
    RETRACTION = "retraction"
    #: A record that no window counts.
    DEAD_LETTER = "dead letter"


def _reject_nothing(**durations_ms: int) -> None:
    for name, duration_ms in durations_ms.items():
        if duration_ms <= 0:
            raise InvalidOption(f"Option '{name}' is {duration_ms}ms.", remedy="It must be longer than 0.")


def last_end_ms(shape: Shape, until_ms: int) -> int:
    """Returns the end of the last window that ends at or before a time. A session can end at each time.

    Args:
        shape: the shape of the windows.
        until_ms: the time.

    >>> last_end_ms(Hopping(10, 10), 29), last_end_ms(Hopping(10, 4), 29), last_end_ms(Session(5), 29)
    (20, 26, 29)
    """
    if isinstance(shape, Session):
        return until_ms
    return (until_ms - shape.size_ms) // shape.hop_ms * shape.hop_ms + shape.size_ms


def released_ms(shape: Shape, closed_until_ms: int, earliest_start_ms: int | None = None) -> int:
    """Returns the watermark of the results of windows: no later result starts before it (SEMANTICS W13).

    Hopping windows move a time to the start of the earliest open one, and sessions to the start of the earliest open session,
    or of one that a record can still open. An operator downstream of windows receives it with their results.

    Args:
        shape: the shape of the windows.
        closed_until_ms: windows that end at or before this time have no later result.
        earliest_start_ms: the earliest start of an open session; ``None`` without one. Windows have a grid instead.

    >>> released_ms(Hopping(10, 10), 19), released_ms(Hopping(10, 10), 20), released_ms(Hopping(10, 5), 12)
    (10, 20, 5)
    >>> released_ms(Session(5), 20), released_ms(Session(5), 20, 7)
    (16, 7)
    """
    if isinstance(shape, Session):
        # A record whose session ends later than this is not late.
        opens_ms = closed_until_ms - shape.gap_ms + 1
        return opens_ms if earliest_start_ms is None else min(opens_ms, earliest_start_ms)
    return (closed_until_ms - shape.size_ms) // shape.hop_ms * shape.hop_ms + shape.hop_ms
