"""Panes: what is told of a window, when, and what of it is taken back.

Called by ``streamgroups_spark.windows.processor`` for each batch of a query, in each part of its state. A window's results for one
key are a *pane*. It is told when the window is due, again whenever a late record has changed it, and not at all after the window has
closed. Source: SEMANTICS W4, W5; the panes and their accumulation in Beam's model; Flink's merging windows.

Within a batch all records are judged by the windows as they stood before it; then time moves, by the watermark first and by silence
after that. That is how Spark's own window aggregation does it, so that both give the same where both can.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from streamgroups.event_time.encoding import decode_watermark, encode_watermark
from streamgroups.event_time.idleness import Idle
from streamgroups.event_time.watermark import At, Watermark, reached
from streamgroups.event_time.window_states import OpenWindow, WindowStates, advance, expire
from streamgroups.event_time.windows import ProcessingTime, Session, Window, Windowing

_VERSION = 1


class PaneKind(Enum):
    """What a row that comes out of windows tells: the column ``pane``."""

    #: The watermark has reached the window's end (by processing time: the clock has).
    ON_TIME = "on time"
    #: The source was idle for the idle timeout, and the window closed without a record.
    IDLE = "idle"
    #: Late records, within the allowed lateness, have changed what was told, or brought something to tell.
    REFINEMENT = "update"
    #: A session that was told has become part of another: its row is void.
    WITHDRAWN = "retraction"
    #: A record that no window counts.
    DEAD_LETTER = "dead letter"


@dataclass(frozen=True, slots=True)
class KeptTime:
    """What a part of a query's state knows of time, from batch to batch.

    Args:
        windows: the watermark, what is closed, and, but for sessions, the windows in which the source has records.
        data_ms: when the latest batch with records was planned, by the clock; ``None`` if there was none.
        seen_ms: when the latest batch was planned.
    """

    windows: WindowStates = field(default_factory=WindowStates)
    data_ms: int | None = None
    seen_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch says of time.

    Args:
        watermark: with which it was planned.
        now_ms: when it was planned, by the clock.
        has_records: whether the source gave it any, in whatever part of the state they are.
        windows: those the records are in; of sessions, all that this part of the state has.
    """

    watermark: Watermark
    now_ms: int
    has_records: bool
    windows: tuple[Window, ...] = ()


@dataclass(frozen=True, slots=True)
class Passage:
    """Time has moved: the windows before that, after the watermark, and after silence."""

    before: WindowStates
    by_watermark: WindowStates
    after: WindowStates


def time_of_records(windowing: Windowing, kept: KeptTime, now_ms: int) -> int | None:
    """The time by which all records of a batch are put into windows; ``None`` if each has its own.

    Args:
        windowing: how records are put into windows.
        kept: what is known of time.
        now_ms: when the batch was planned.
    """
    if not isinstance(windowing.boundary, ProcessingTime):
        return None
    # A clock that was set back makes nothing late.
    watermark = kept.windows.watermark
    return max(now_ms, watermark.time_ms) if isinstance(watermark, At) else now_ms


def is_closed(states: WindowStates, window: Window) -> bool:
    """Whether a record of this window is late."""
    return reached(states.closed_until, window.end_ms)


def pass_time(windowing: Windowing, kept: KeptTime, batch: Batch) -> tuple[KeptTime, Passage]:
    """Time moves after the records of a batch are counted.

    The source is known to be quiet since the last batch that had records. Until when? Spark asks the source what is new before it looks at
    the clock. A batch without records says only that there was nothing new *after the batch before it was planned*.

    Args:
        windowing: how records are put into windows.
        kept: what is known of time.
        batch: what the batch says.

    >>> from streamgroups.event_time.windows import EventTime, tumbling
    >>> threes = Windowing(tumbling(3), EventTime(idle_timeout_ms=1))
    >>> kept, _ = pass_time(threes, KeptTime(), Batch(At(2), 3, has_records=True, windows=(Window(0, 3),)))
    >>> kept, _ = pass_time(threes, kept, Batch(At(2), 4, has_records=False))
    >>> kept, passage = pass_time(threes, kept, Batch(At(2), 5, has_records=False))
    >>> verdict(passage, Window(0, 3), changed=False)
    <PaneKind.IDLE: 'idle'>
    """
    before = _with(kept.windows, batch.windows)
    now: Watermark = batch.watermark
    if isinstance(windowing.boundary, ProcessingTime):
        now = At(batch.now_ms)
    by_watermark, _ = advance(windowing, before, now)
    after, _ = expire(windowing, by_watermark, None if batch.has_records else _quiet(kept))
    passage = Passage(before, by_watermark, after)
    if isinstance(windowing.shape, Session):
        after = replace(after, filled=())
    data_ms = batch.now_ms if batch.has_records else kept.data_ms
    return KeptTime(after, data_ms, batch.now_ms), passage


def _quiet(kept: KeptTime) -> Idle | None:
    if kept.data_ms is None or kept.seen_ms is None:
        return None
    return Idle(kept.data_ms, max(kept.seen_ms, kept.data_ms))


def _with(states: WindowStates, windows: Iterable[Window]) -> WindowStates:
    found = {f.window for f in states.filled} | {w for w in windows if not is_closed(states, w)}
    return replace(states, filled=tuple(OpenWindow(w, 1) for w in sorted(found)))


def verdict(passage: Passage, window: Window, *, changed: bool) -> PaneKind | None:
    """Whether a pane is told now, and as what.

    Args:
        passage: how time has moved with this batch.
        window: the pane's.
        changed: whether records of this batch are in it.
    """
    if reached(passage.before.watermark, window.end_ms):
        return PaneKind.REFINEMENT if changed else None
    if reached(passage.by_watermark.watermark, window.end_ms):
        return PaneKind.ON_TIME
    return PaneKind.IDLE if reached(passage.after.watermark, window.end_ms) else None


def to_poll(passage: Passage) -> tuple[Window, ...]:
    """The windows of which something is told, or forgotten, although no record has changed them: the earliest first."""
    return tuple(
        f.window
        for f in passage.before.filled
        if is_closed(passage.after, f.window) or verdict(passage, f.window, changed=False) is not None
    )


def session_numbers(keys: Sequence[int], starts_ms: Sequence[int], ends_ms: Sequence[int]) -> list[int]:
    """Which of these are one session: they get one number. Sessions that touch are one.

    Args:
        keys: whose session each is.
        starts_ms: when each begins; in order of key, then of this.
        ends_ms: when each ends.

    >>> session_numbers([7, 7, 7, 8], [0, 5, 9, 9], [5, 7, 14, 14])
    [0, 0, 1, 2]
    """
    numbers: list[int] = []
    number, of_key, end = -1, None, 0
    for key, start_ms, end_ms in zip(keys, starts_ms, ends_ms, strict=True):
        if key != of_key or start_ms > end:
            number, of_key, end = number + 1, key, end_ms
        end = max(end, end_ms)
        numbers.append(number)
    return numbers


def encode_kept(kept: KeptTime) -> dict[str, Any]:
    """What is known of time as JSON, for the state store.

    >>> kept = KeptTime(WindowStates(At(7), At(5), (OpenWindow(Window(5, 10), 1),)), 3, 4)
    >>> decode_kept(encode_kept(kept)) == kept
    True
    """
    return {
        "v": _VERSION,
        "watermark": encode_watermark(kept.windows.watermark),
        "closed": encode_watermark(kept.windows.closed_until),
        "windows": [[f.window.start_ms, f.window.end_ms] for f in kept.windows.filled],
        "data": kept.data_ms,
        "seen": kept.seen_ms,
    }


def decode_kept(raw: Any) -> KeptTime:
    """Reads it back.

    Raises:
        ValueError: it is of a newer version. Results told twice would be the price of guessing.
    """
    if raw["v"] != _VERSION:
        raise ValueError(
            f"the state of these windows has version {raw['v']}, but this library supports version {_VERSION}"
        )
    filled = tuple(OpenWindow(Window(start_ms, end_ms), 1) for start_ms, end_ms in raw["windows"])
    states = WindowStates(decode_watermark(raw["watermark"]), decode_watermark(raw["closed"]), filled)
    return KeptTime(states, raw["data"], raw["seen"])
