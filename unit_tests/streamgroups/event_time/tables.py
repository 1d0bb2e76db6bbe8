"""Times and tables as the worked examples write them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.strategy import Generation
from streamgroups.event_time.watermark import At, Watermark
from streamgroups.event_time.windows import Window
from streamgroups.partitions import TopicPartition

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
