"""The event time of one partition, with all values that the next owner of the partition needs.

:mod:`streamgroups.event_time.source_time` calls this module with each observation of a partition. Source: SEMANTICS W1,
W3, W8, W15.

An observation can be repeated, for example if a batch is run again after a crash. Repeated records are not counted, and
do not end idleness.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamgroups.event_time.idleness import Observation, idle_since, is_idle
from streamgroups.event_time.strategy import NOTHING, Generation, Progress, asserted, progress
from streamgroups.event_time.watermark import NOT_YET, At, Watermark, latest


@dataclass(frozen=True, slots=True)
class PartitionTime:
    """The event time of a partition. A new partition has none, and holds back the watermark until it has one.

    Args:
        event_time_ms: the latest event time of its records; ``None`` before the first record.
        watermark: its watermark: the later one of its records and its producer.
        progress: the records and event time since the watermark was last emitted.
        next_offset: the position up to which these values apply; ``None`` before the first observation.
        idle_since_ms: since when it has no available and no new records; ``None`` while it has available records.
        seen_ms: when it was last observed.
    """

    event_time_ms: int | None = None
    watermark: Watermark = NOT_YET
    progress: Progress = NOTHING
    next_offset: int | None = None
    idle_since_ms: int | None = None
    seen_ms: int | None = None

    def is_idle(self, timeout_ms: int | None) -> bool:
        """Returns whether it no longer holds back the watermark, by the last observation (SEMANTICS W3).

        Args:
            timeout_ms: the partition idle timeout; ``None`` if no partition is ever idle.
        """
        return self.seen_ms is not None and is_idle(self.idle_since_ms, self.seen_ms, timeout_ms)


def poll(before: PartitionTime, observation: Observation, generation: Generation | None, now_ms: int) -> PartitionTime:
    """Returns a partition after one more observation.

    Args:
        before: the partition before.
        observation: the new observation.
        generation: the watermark strategy of the stream; ``None`` if records advance no watermark.
        now_ms: the time now, in milliseconds since the epoch.

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
    if observation.producer_ms is not None:
        watermark = latest(watermark, At(observation.producer_ms))
    return PartitionTime(
        event_time_ms=event_time_ms,
        watermark=watermark,
        progress=counted,
        next_offset=observation.next_offset,
        idle_since_ms=idle_since(before.idle_since_ms, observation, moved=moved, now_ms=now_ms),
        seen_ms=now_ms,
    )
