"""Intervals and edges in windows, record by record: the reference for ``streamgroups_operators.windows.lifetimes``.

Each event has the set of windows that count it. The rules are those of docs/windows.rst, "Intervals and edges".
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from streamgroups.event_time.event_shapes import EventShape
from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.windows import EventTime, Hopping
from streamgroups_operators.window_operator import WindowOperator
from streamgroups_operators.windows.window_definition import state_schema
from unit_tests.streamgroups_operators.window_model import (
    AGGREGATES,
    RECORDS,
    START_MS,
    Keys,
    Place,
    Record,
    aggregated,
    by_event_time,
)

#: The earliest and the latest start of a window in tests, before alignment.
_EARLIEST_MS, _LATEST_MS = START_MS - 100, START_MS + 600


def of_events(
    event_shape: EventShape,
    shape: Hopping,
    lateness_ms: int = 0,
    delay_ms: int = 0,
    policy: OnViolation = OnViolation.KEEP,
    idle_timeout_ms: int | None = None,
) -> WindowOperator:
    """Windows over events of a shape."""
    points = by_event_time(shape, lateness_ms, idle_timeout_ms, delay_ms, policy)
    schema = state_schema(shape, RECORDS, AGGREGATES, event_shape)
    return replace(points, event_shape=event_shape, schema=schema)


@dataclass
class Event:
    """An event, and the starts of the windows that count it."""

    keys: Keys
    value: int | None
    begin: int
    windows: set[int]


@dataclass
class EventReference:
    """Windows over intervals or edges."""

    operator: WindowOperator
    newest: int | None = None
    events: list[Event] = field(default_factory=list)
    open: list[Event] = field(default_factory=list)
    late: Counter[tuple[Keys, int]] = field(default_factory=Counter)
    dead: list[tuple[str, int | None]] = field(default_factory=list)

    @property
    def _shape(self) -> Hopping:
        shape = self.operator.windowing.shape
        assert isinstance(shape, Hopping)
        return shape

    @property
    def _watermark(self) -> int:
        return _EARLIEST_MS - 10_000 if self.newest is None else self.newest - (self.operator.delay_ms or 0)

    @property
    def _closed(self) -> int:
        boundary = self.operator.windowing.boundary
        assert isinstance(boundary, EventTime)
        return self._watermark - boundary.allowed_lateness_ms

    def add(self, record: Record) -> None:
        if record.time is None:
            self.dead.append(("no event time", None))
            return
        is_edge = self.operator.event_shape is EventShape.EDGE
        if is_edge and record.until is not None:
            self._end(record, record.time, max(record.until, record.time + 1))
            return
        end = record.time + 1 if record.until is None else max(record.until, record.time + 1)
        self._begin(record, record.time, None if is_edge else end)
        self.newest = record.time if self.newest is None else max(self.newest, record.time)

    def _begin(self, record: Record, begin: int, end: int | None) -> None:
        start, policy = begin, self.operator.on_violation
        if policy is not OnViolation.KEEP and begin < self._watermark:
            if policy is OnViolation.DROP or (end is not None and end <= self._watermark):
                self.dead.append(("violation", begin))
                return
            start = self._watermark
        size = self._shape.size_ms
        windows = {a for a in self._starts if a + size > start and (end is None or a < end) and a + size > self._closed}
        if not windows:
            self.dead.append(("late", begin))
            return
        event = Event(record.keys, record.value, begin, windows)
        self.events.append(event)
        if end is None:
            self.open.append(event)
        self._update(record.keys, windows)

    def _end(self, record: Record, begin: int, end: int) -> None:
        policy = self.operator.on_violation
        if end < self._watermark:
            if policy is OnViolation.DROP:
                self.dead.append(("violation", end))
                return
            if policy is OnViolation.ADJUST:
                end = self._watermark
        event = next((it for it in self.open if (it.keys, it.begin) == (record.keys, begin)), None)
        if event is None:
            self.dead.append(("no start", end))
            return
        self.open.remove(event)
        removed = {a for a in event.windows if a >= end and a + self._shape.size_ms > self._closed}
        event.windows -= removed
        if not event.windows:
            self.dead.append(("late", end))
        self._update(record.keys, removed)

    @property
    def _starts(self) -> range:
        hop = self._shape.hop_ms
        return range(_EARLIEST_MS // hop * hop, _LATEST_MS, hop)

    def _update(self, keys: Keys, windows: set[int]) -> None:
        """Emitted windows have an update."""
        self.late.update((keys, a) for a in windows if a + self._shape.size_ms <= self._watermark)

    def result(self) -> dict[Place, tuple[object, ...]]:
        """The current result of each emitted window."""
        values: dict[tuple[Keys, int], list[int | None]] = {}
        for event in self.events:
            for a in event.windows:
                if a + self._shape.size_ms <= self._watermark:
                    values.setdefault((event.keys, a), []).append(event.value)
        size = self._shape.size_ms
        return {(keys, a, a + size): (self.late[keys, a], *aggregated(them)) for (keys, a), them in values.items()}
