"""Times and tables as the worked examples write them, and a query that has nothing but its time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamgroups.event_time.idleness import Observation
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import SourceTime, advance_to, observe, take
from streamgroups.event_time.strategy import Generation
from streamgroups.event_time.watermark import At, Watermark
from streamgroups.event_time.window_states import Change, WindowStates, advance, expire
from streamgroups.event_time.windows import Window, Windowing
from streamgroups.partitions import TopicPartition
from unit_tests.window_rules import Interval, Placement, open_windows, place, point

MINUTE_MS = 60_000
P0, P1, P2 = (TopicPartition("flights", p) for p in range(3))
AS_READ = TimeSettings(Generation())


def rows(table: str) -> list[list[str]]:
    """The rows below a table's heading; columns are two spaces apart."""
    return [re.split(r"\s{2,}", line.strip()) for line in table.strip().splitlines()[1:]]


def ms(clock: str) -> int:
    """12:05 in milliseconds."""
    hours, minutes = clock.split(":")
    return (int(hours) * 60 + int(minutes)) * MINUTE_MS


def clock(watermark: Watermark) -> str:
    """A watermark as a table shows it."""
    return _clock(watermark.time_ms) if isinstance(watermark, At) else str(watermark)


def shown(windows: Sequence[Window]) -> str:
    """Windows as a table shows them."""
    return ", ".join(f"{_clock(w.start_ms)}-{_clock(w.end_ms)}" for w in windows)


def _clock(time_ms: int) -> str:
    return f"{time_ms // MINUTE_MS // 60:02}:{time_ms // MINUTE_MS % 60:02}"


@dataclass
class Query:
    """Puts records into windows and lets time move, step by step, as a streaming query does."""

    windowing: Windowing
    settings: TimeSettings = AS_READ
    partitions: Sequence[TopicPartition] = (P0,)
    windows: WindowStates = field(default_factory=WindowStates)
    source: SourceTime = field(default_factory=SourceTime)
    closed: list[Window] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source = take(self.source, dict.fromkeys(self.partitions))
        self._next = dict.fromkeys(self.partitions, 0)

    def step(
        self,
        now_ms: int,
        records: Mapping[TopicPartition, Sequence[int | Interval]] | None = None,
        *,
        unread: Mapping[TopicPartition, int] | None = None,
    ) -> list[Placement]:
        """A batch: records are placed, then the partitions are polled, and time advances."""
        records, placed = records or {}, []
        for batch in records.values():
            for record in batch:
                interval = point(record) if isinstance(record, int) else record
                self.windows, placement = place(
                    self.windowing, self.windows, interval, self.settings.on_violation, now_ms
                )
                placed.append(placement)
        observations = {}
        for tp in self.partitions:
            times_ms = [r if isinstance(r, int) else r.start_ms for r in records.get(tp, ())]
            self._next[tp] += len(times_ms)
            end_offset = self._next[tp] + (unread or {}).get(tp, 0)
            observations[tp] = Observation(self._next[tp], end_offset, len(times_ms), max(times_ms, default=None))
        self.source = observe(self.source, observations, self.settings, now_ms)
        self._note(*advance(self.windowing, self.windows, self.source.watermark))
        self._note(*expire(self.windowing, self.windows, self.source.quiet))
        self.source = advance_to(self.source, self.windows.watermark)
        return placed

    def _note(self, windows: WindowStates, change: Change) -> None:
        self.windows = windows
        self.closed += [f.window for f in change.closed]

    @property
    def open(self) -> str:
        """The open windows, as a table shows them."""
        return shown(open_windows(self.windowing, self.windows))

    @property
    def watermark(self) -> str:
        """The source's watermark, as a table shows it."""
        return clock(self.source.watermark)
