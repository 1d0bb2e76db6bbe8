"""The event time of one partition, with everything that must travel with it when the partition changes hands.

Called by :mod:`streamgroups.event_time.source_time` with each look at a partition. Source: SEMANTICS W1, W3, W8.

A look may be repeated, as when a batch is run again after a crash: what is known already is neither counted nor taken for activity.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamgroups.event_time.idleness import Observation, idle_since, is_idle
from streamgroups.event_time.strategy import NOTHING, Generation, Progress, asserted, progress
from streamgroups.event_time.watermark import NOT_YET, Watermark, latest


@dataclass(frozen=True, slots=True)
class PartitionTime:
    """How far a partition's event time has come. A new one knows nothing, and holds the watermark back until it does.

    Args:
        event_time_ms: the latest event time of its records; ``None`` before the first.
        watermark: what it asserts.
        progress: what has come since it was last asserted.
        next_offset: the position up to which this holds; ``None`` if nobody has looked yet.
        idle_since_ms: since when it has nothing unread and no new record; ``None`` while it has unread ones.
        seen_ms: when it was last looked at.
    """

    event_time_ms: int | None = None
    watermark: Watermark = NOT_YET
    progress: Progress = NOTHING
    next_offset: int | None = None
    idle_since_ms: int | None = None
    seen_ms: int | None = None

    def is_idle(self, timeout_ms: int | None) -> bool:
        """Whether it no longer holds the watermark back, as of the last look (SEMANTICS W3).

        Args:
            timeout_ms: the partition idle timeout; ``None`` if no partition is ever idle.
        """
        return self.seen_ms is not None and is_idle(self.idle_since_ms, self.seen_ms, timeout_ms)


def poll(before: PartitionTime, observation: Observation, generation: Generation | None, now_ms: int) -> PartitionTime:
    """A partition after one more look at it.

    Args:
        before: what was known.
        sighting: what is seen.
        generation: how the stream asserts time; ``None`` if it does not.
        now_ms: when it is, in milliseconds since the epoch.

    >>> one = poll(PartitionTime(), Observation(1, 9, records=1, event_time_ms=600), Generation(), now_ms=1_000)
    >>> one.watermark, one.idle_since_ms
    (At(time_ms=600), None)
    >>> older = poll(one, Observation(9, 9, records=8, event_time_ms=400), Generation(), now_ms=1_200)
    >>> older.watermark, older.idle_since_ms
    (At(time_ms=600), 1200)
    """
    moved = observation.next_offset != before.next_offset
    known_ms = [ms for ms in (before.event_time_ms, observation.event_time_ms) if ms is not None]
    event_time_ms = max(known_ms, default=None)
    counted, watermark = before.progress, before.watermark
    if generation is not None and event_time_ms is not None:
        counted, due = progress(generation.every, counted, observation.records if moved else 0, event_time_ms)
        watermark = latest(watermark, asserted(generation, event_time_ms)) if due else watermark
    return PartitionTime(
        event_time_ms=event_time_ms,
        watermark=watermark,
        progress=counted,
        next_offset=observation.next_offset,
        idle_since_ms=idle_since(before.idle_since_ms, observation, moved=moved, now_ms=now_ms),
        seen_ms=now_ms,
    )
