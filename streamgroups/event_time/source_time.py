"""The event time of a source: the watermark of each partition, and the minimum over its partitions.

``streamgroups_spark.source.source_watermark`` calls this module after each observation of the partitions of a member, which are
assigned and revoked. Windows close, and records are late, by the watermark that it returns. Source: SEMANTICS W1-W3, W5,
W8, W15. :mod:`streamgroups.event_time.imported_watermark` adds the watermarks of other streams.

========================================  ==========================================================
partitions                                watermark of the source
========================================  ==========================================================
some are not idle                         the minimum over those
all are idle                              the maximum over all: no partition has available records
none, or they generate no watermark       none
========================================  ==========================================================

The watermark never decreases. If a partition becomes active, or is assigned, with older records, the watermark does not
advance until it has caught up. (Flink excludes such a partition meanwhile, and advances without it.)

An observation can be repeated, for example if a batch is run again after a crash. Repeated records are not counted, and
do not end idleness.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from streamgroups.event_time.observations import Observation, idle_since, is_idle
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.strategy import NOTHING, Generation, Progress, asserted, progress
from streamgroups.event_time.watermark import NOT_YET, At, Watermark, earliest, latest
from streamgroups.partitions import TopicPartition


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


@dataclass(frozen=True, slots=True)
class SourceTime:
    """The event time of a source.

    Args:
        watermark: the watermark of the whole source.
        partitions: the time of each partition that the member owns.
    """

    watermark: Watermark = NOT_YET
    partitions: Mapping[TopicPartition, PartitionTime] = field(default_factory=dict)


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


def generated(partitions: Iterable[PartitionTime], idle_timeout_ms: int | None) -> Watermark:
    """Returns the combined watermark of partitions (SEMANTICS W2, W3).

    It can be less than the last watermark of the source.

    Args:
        partitions: their times.
        idle_timeout_ms: the partition idle timeout; ``None`` if no partition is ever idle.

    >>> from streamgroups.event_time.watermark import At
    >>> fast, slow = PartitionTime(watermark=At(900)), PartitionTime(watermark=At(300), idle_since_ms=0, seen_ms=60)
    >>> generated([fast, slow], None), generated([fast, slow], 60)
    (At(time_ms=300), At(time_ms=900))
    """
    return together([(p.watermark, p.is_idle(idle_timeout_ms)) for p in partitions])


def together(partitions: Collection[tuple[Watermark, bool]]) -> Watermark:
    """Applies the table above to the watermark of each partition and whether the partition is idle.

    >>> from streamgroups.event_time.watermark import At
    >>> together([(At(900), False), (At(300), True)]), together([(At(900), True), (At(300), True)])
    (At(time_ms=900), At(time_ms=900))
    """
    active = [watermark for watermark, is_idle in partitions if not is_idle]
    return earliest(*active) if active else latest(*(watermark for watermark, _ in partitions))


def observe(
    state: SourceTime, observations: Mapping[TopicPartition, Observation], settings: TimeSettings, now_ms: int
) -> SourceTime:
    """Returns the source after an observation of its partitions.

    Args:
        state: the source before.
        observations: the new observations. Partitions that are not owned are ignored. Owned partitions without an
            observation do not change.
        settings: the event-time settings.
        now_ms: the time now, in milliseconds since the epoch.

    >>> from streamgroups.event_time.strategy import Generation
    >>> settings = TimeSettings(Generation())
    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> state = add_partitions(SourceTime(), {p0: None, p1: None})
    >>> state = observe(state, {p0: Observation(5, 5, 5, event_time_ms=900)}, settings, 1_000)
    >>> state.watermark
    NotYet()
    >>> observe(state, {p1: Observation(3, 8, 3, event_time_ms=300)}, settings, 1_000).watermark
    At(time_ms=300)
    """
    seen = {
        tp: poll(state.partitions[tp], observation, settings.generation, now_ms)
        for tp, observation in observations.items()
        if tp in state.partitions
    }
    after = replace(state, partitions={**state.partitions, **seen})
    return advance_to(after, generated(after.partitions.values(), settings.partition_idle_timeout_ms))


def add_partitions(state: SourceTime, partitions: Mapping[TopicPartition, PartitionTime | None]) -> SourceTime:
    """Adds assigned partitions with their times. The watermark does not change, and applies to their records.

    Args:
        state: the source before.
        partitions: the assigned partitions. ``None`` for a partition without a stored time.
    """
    fresh = {tp: time or PartitionTime() for tp, time in partitions.items()}
    return replace(state, partitions={**state.partitions, **fresh})


def remove_partitions(state: SourceTime, partitions: Collection[TopicPartition]) -> SourceTime:
    """Removes revoked partitions and their times. The next observation updates the watermark.

    Args:
        state: the source before.
        partitions: the revoked partitions.
    """
    return replace(state, partitions={tp: time for tp, time in state.partitions.items() if tp not in partitions})


def advance_to(state: SourceTime, watermark: Watermark) -> SourceTime:
    """Advances the watermark without records: by an import, or because windows of an idle source have closed (W5, W10).

    Args:
        state: the source before.
        watermark: the new watermark. It is ignored if the source has a later one.

    >>> from streamgroups.event_time.watermark import At
    >>> advance_to(SourceTime(At(5)), At(6)).watermark, advance_to(SourceTime(At(5)), At(4)).watermark
    (At(time_ms=6), At(time_ms=5))
    """
    return replace(state, watermark=latest(state.watermark, watermark))
