"""The watermark of a source: the minimum over its partitions, which come and go.

Called by whoever drives a query's time, with each look at the partitions a member owns; what it returns is the time by which windows
close and records are late. Source: SEMANTICS W1-W3, W5, W8. What it imports is added by
:mod:`streamgroups.event_time.imports`.

========================================  ==================================================================================
partitions                                the source asserts
========================================  ==================================================================================
some are not idle                         the minimum over those
all are idle                              the maximum over all: none has anything unread, and none holds another back
there are none, or they generate no time  nothing
========================================  ==================================================================================

The watermark never goes back. When a partition wakes up, or comes in, with older records, the watermark stays until the partition has caught
up. (Flink leaves such a partition out meanwhile, and goes on without it.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from streamgroups.event_time.idleness import Idle, Observation
from streamgroups.event_time.partition_time import PartitionTime, poll
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.watermark import NOT_YET, AtEnd, Watermark, latest, oldest
from streamgroups.partitions import TopicPartition


@dataclass(frozen=True, slots=True)
class SourceTime:
    """How far the event time of a source has come.

    Args:
        watermark: what is asserted for the whole source.
        partitions: the time of each partition that the member owns.
    """

    watermark: Watermark = NOT_YET
    partitions: Mapping[TopicPartition, PartitionTime] = field(default_factory=dict)

    @property
    def quiet(self) -> Idle | None:
        """How long the whole source has been quiet; ``None`` if it is not, or if nobody has looked at some partition yet."""
        known = [
            (partition.idle_since_ms, partition.seen_ms)
            for partition in self.partitions.values()
            if partition.idle_since_ms is not None and partition.seen_ms is not None
        ]
        if not known or len(known) < len(self.partitions):
            return None
        return Idle(max(since_ms for since_ms, _ in known), min(seen_ms for _, seen_ms in known))


def generated(partitions: Iterable[PartitionTime], idle_timeout_ms: int | None) -> Watermark:
    """What partitions assert together (SEMANTICS W2, W3); it may be less than what was asserted before.

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
    """The table above: what each partition asserts, and whether it is idle.

    >>> from streamgroups.event_time.watermark import At
    >>> together([(At(900), False), (At(300), True)]), together([(At(900), True), (At(300), True)])
    (At(time_ms=900), At(time_ms=900))
    """
    active = [watermark for watermark, is_idle in partitions if not is_idle]
    return oldest(*active) if active else latest(*(watermark for watermark, _ in partitions))


def observe(
    state: SourceTime, observations: Mapping[TopicPartition, Observation], settings: TimeSettings, now_ms: int
) -> SourceTime:
    """The source after a look at its partitions.

    Args:
        state: what was known.
        sightings: what is seen now. A partition that is not owned (any more) is left out; one that is not looked at stays as it was.
        settings: how time is made.
        now_ms: when it is, in milliseconds since the epoch.

    >>> from streamgroups.event_time.strategy import Generation
    >>> settings = TimeSettings(Generation())
    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> state = take(SourceTime(), {p0: None, p1: None})
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


def take(state: SourceTime, partitions: Mapping[TopicPartition, PartitionTime | None]) -> SourceTime:
    """Partitions come in, with their times: ``None`` where nobody knows. The watermark stays; their records are judged by it.

    Args:
        state: what was known.
        partitions: what comes in.
    """
    fresh = {tp: time or PartitionTime() for tp, time in partitions.items()}
    return replace(state, partitions={**state.partitions, **fresh})


def give(state: SourceTime, partitions: Collection[TopicPartition]) -> SourceTime:
    """Partitions leave; their times, which are in ``state.partitions``, go with them. The watermark is that of the next look.

    Args:
        state: what was known.
        partitions: what leaves.
    """
    return replace(state, partitions={tp: time for tp, time in state.partitions.items() if tp not in partitions})


def merge(states: Collection[SourceTime], settings: TimeSettings) -> SourceTime:
    """Several members' partitions as if they were one member's.

    It asserts what the partitions do together; or, if that is less, what each of the members has asserted already.

    Args:
        states: what each member knows, of partitions of its own.
        settings: how time is made.

    >>> from streamgroups.event_time.strategy import Generation
    >>> from streamgroups.event_time.watermark import At
    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> alice = SourceTime(At(900), {p0: PartitionTime(watermark=At(900))})
    >>> bob = SourceTime(At(300), {p1: PartitionTime(watermark=At(300))})
    >>> merge([alice, bob], TimeSettings(Generation())).watermark
    At(time_ms=300)
    """
    together = SourceTime(
        oldest(*(state.watermark for state in states if state.partitions)),
        {tp: time for state in states for tp, time in state.partitions.items()},
    )
    return advance_to(together, generated(together.partitions.values(), settings.partition_idle_timeout_ms))


def advance_to(state: SourceTime, watermark: Watermark) -> SourceTime:
    """Time moves otherwise than by the source's records: by an import, or because windows of an idle source have closed (W5, W10).

    Args:
        state: what was known.
        watermark: where time is now; if it is further already, it stays.

    >>> from streamgroups.event_time.watermark import At
    >>> advance_to(SourceTime(At(5)), At(6)).watermark, advance_to(SourceTime(At(5)), At(4)).watermark
    (At(time_ms=6), At(time_ms=5))
    """
    return replace(state, watermark=latest(state.watermark, watermark))


def stop(state: SourceTime, settings: TimeSettings) -> Watermark:
    """The last watermark, when the stream is stopped: the end of time if it flushes (SEMANTICS W8).

    It is no part of the state, for a stream that is started again goes on where it was.

    Args:
        state: what was known.
        settings: how time is made.

    >>> from streamgroups.event_time.strategy import Generation
    >>> from streamgroups.event_time.watermark import At
    >>> stop(SourceTime(At(5)), TimeSettings(Generation(flush=True))), stop(SourceTime(At(5)), TimeSettings(Generation()))
    (AtEnd(), At(time_ms=5))
    """
    flushes = settings.generation is not None and settings.generation.flush
    return AtEnd() if flushes else state.watermark
