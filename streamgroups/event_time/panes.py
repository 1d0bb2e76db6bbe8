"""Panes: which results of a window are emitted, when they are emitted, and which of them are retracted.

``streamgroups_spark.windows.processor`` calls this module for each batch of a query and each part of its state. The
results of a window for one key are a *pane*. A pane is emitted when its window is due, and again whenever a late record
changes it. After the window has closed, no pane is emitted. Source: SEMANTICS W4, W5; panes and accumulation in Beam's
model; Flink's merging windows.

Within a batch, the window states before the batch apply to all records. After the records, time advances: first by the
watermark, then by idleness. Spark's window aggregation uses the same order, so both return the same results where both
apply.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from streamgroups.event_time.idleness import Idle
from streamgroups.event_time.watermark import At, Watermark, decode_watermark, encode_watermark, reached
from streamgroups.event_time.window_states import OpenWindow, WindowStates, advance, expire
from streamgroups.event_time.windows import ProcessingTime, Session, Window, Windowing

_VERSION = 1


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


@dataclass(frozen=True, slots=True)
class KeptTime:
    """The time of one part of a query's state, stored from batch to batch.

    Args:
        windows: the watermark, the closed windows and, except for sessions, the windows that contain records.
        data_ms: when the latest batch with records was planned, by the clock. ``None`` if there was no such batch.
        seen_ms: when the latest batch was planned.
    """

    windows: WindowStates = field(default_factory=WindowStates)
    data_ms: int | None = None
    seen_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """The properties of a batch that advance time.

    Args:
        watermark: the watermark with which the batch was planned.
        now_ms: when the batch was planned, by the clock.
        has_records: whether the source returned any records, in any part of the state.
        windows: the windows of the records; for sessions, all windows of this part of the state.
    """

    watermark: Watermark
    now_ms: int
    has_records: bool
    windows: tuple[Window, ...] = ()


@dataclass(frozen=True, slots=True)
class Passage:
    """The window states before an advance of time, after the watermark, and after idleness."""

    before: WindowStates
    by_watermark: WindowStates
    after: WindowStates


def time_of_records(windowing: Windowing, kept: KeptTime, now_ms: int) -> int | None:
    """Returns the time that assigns all records of a batch to windows. ``None`` if each record has its own time.

    Args:
        windowing: how records are assigned to windows.
        kept: the stored time.
        now_ms: when the batch was planned.
    """
    if not isinstance(windowing.boundary, ProcessingTime):
        return None
    # A clock that was set back makes no record late.
    watermark = kept.windows.watermark
    return max(now_ms, watermark.time_ms) if isinstance(watermark, At) else now_ms


def is_closed(states: WindowStates, window: Window) -> bool:
    """Returns whether a record of this window is late."""
    return reached(states.closed_until, window.end_ms)


def pass_time(windowing: Windowing, kept: KeptTime, batch: Batch) -> tuple[KeptTime, Passage]:
    """Advances time after the records of a batch are counted.

    The source has been idle since the last batch with records. Spark queries the source for new records before it reads
    the clock. A batch without records therefore proves only that no record arrived *before the previous batch was
    planned*.

    Args:
        windowing: how records are assigned to windows.
        kept: the stored time.
        batch: the batch.

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
    after, _ = expire(windowing, by_watermark, None if batch.has_records else _idle_period(kept))
    passage = Passage(before, by_watermark, after)
    if isinstance(windowing.shape, Session):
        after = replace(after, filled=())
    data_ms = batch.now_ms if batch.has_records else kept.data_ms
    return KeptTime(after, data_ms, batch.now_ms), passage


def _idle_period(kept: KeptTime) -> Idle | None:
    if kept.data_ms is None or kept.seen_ms is None:
        return None
    return Idle(kept.data_ms, max(kept.seen_ms, kept.data_ms))


def _with(states: WindowStates, windows: Iterable[Window]) -> WindowStates:
    found = {f.window for f in states.filled} | {w for w in windows if not is_closed(states, w)}
    return replace(states, filled=tuple(OpenWindow(w, 1) for w in sorted(found)))


def verdict(passage: Passage, window: Window, *, changed: bool) -> PaneKind | None:
    """Returns the kind of pane to emit now. ``None`` if no pane is emitted.

    Args:
        passage: how this batch has advanced time.
        window: the window of the pane.
        changed: whether the window contains records of this batch.
    """
    if reached(passage.before.watermark, window.end_ms):
        return PaneKind.UPDATE if changed else None
    if reached(passage.by_watermark.watermark, window.end_ms):
        return PaneKind.ON_TIME
    return PaneKind.IDLE if reached(passage.after.watermark, window.end_ms) else None


def to_poll(passage: Passage) -> tuple[Window, ...]:
    """Returns the windows to emit or to delete although no record has changed them, in ascending order."""
    return tuple(
        f.window
        for f in passage.before.filled
        if is_closed(passage.after, f.window) or verdict(passage, f.window, changed=False) is not None
    )


def session_numbers(keys: Sequence[int], starts_ms: Sequence[int], ends_ms: Sequence[int]) -> list[int]:
    """Numbers sessions: sessions of one key that touch are merged and get the same number.

    Args:
        keys: the key of each session.
        starts_ms: the start of each session. The input is sorted by key, then by start.
        ends_ms: the end of each session.

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
    """Returns the stored time as JSON, for the state store.

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
    """Decodes the stored time.

    Raises:
        ValueError: a newer version wrote it. To guess its meaning could emit results twice.
    """
    if raw["v"] != _VERSION:
        raise ValueError(
            f"the state of these windows has version {raw['v']}, but this library supports version {_VERSION}"
        )
    filled = tuple(OpenWindow(Window(start_ms, end_ms), 1) for start_ms, end_ms in raw["windows"])
    states = WindowStates(decode_watermark(raw["watermark"]), decode_watermark(raw["closed"]), filled)
    return KeptTime(states, raw["data"], raw["seen"])
