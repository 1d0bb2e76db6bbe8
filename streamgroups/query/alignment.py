"""Decides which partitions are too far ahead of the watermark to be read (``maxDrift``).

Called by ``streamgroups.query.batch_ranges`` before each batch. Operators with event time keep the records after the
watermark. If one partition is a day behind, the state of the others grows to a day, unless they wait. Source: SEMANTICS
W16; Flink's watermark alignment (FLIP-182, FLIP-217).

The *base* is the minimum over the watermarks of all partitions that are not idle, or the watermark of the query if that
is later.

===========================================  =======================================================================
a partition with available records           is read
===========================================  =======================================================================
has no watermark                             yes
is ahead of the base by at most the drift    up to the base plus the drift, by the event time per offset of its last
                                             batches
is ahead by more, or there is no base yet    no: it waits
===========================================  =======================================================================

So the partition at the minimum is always read. A partition exceeds the limit by one batch at most: by the difference
between the expected and the actual event time of its records. As in Flink, a partition without records holds back the
others until it is idle; ``batch_ranges`` logs a warning. In a run that ends (``availableNow``) only partitions with
available records count, because the others cannot advance any more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from streamgroups.event_time.watermark import NOT_YET, At, Watermark, earliest, latest
from streamgroups.partitions import OffsetRange, TopicPartition

#: The offsets of a partition in a batch while their event time is unknown.
FIRST_OFFSETS = 10
#: A batch reads at most this multiple of the offsets that the last batch has read of a partition.
_GROWTH = 4


@dataclass(frozen=True, slots=True)
class EventTimes:
    """The event time of the partitions of a stream when a batch is planned.

    Args:
        watermarks: the watermark of each partition by its own records, also of partitions that other queries own.
        idle: the idle partitions.
        reached: the watermark of the query, if it can be later than the minimum over the partitions.
    """

    watermarks: Mapping[TopicPartition, Watermark] = field(default_factory=dict)
    idle: Collection[TopicPartition] = ()
    reached: Watermark = NOT_YET


@dataclass(frozen=True, slots=True)
class Density:
    """The event time per offset of a partition, as its last batches have shown it.

    Args:
        next_offset: its position.
        watermark: its watermark at the position.
        offsets: the offsets that the last batch has read of it; 0 before the first one.
        offset_ms: the event time per offset in milliseconds; ``None`` while it is unknown.
    """

    next_offset: int
    watermark: Watermark = NOT_YET
    offsets: int = 0
    offset_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Aligned:
    """The partitions that a batch may read.

    Args:
        available: next offset and end offset of each partition. A partition that waits has none.
        waiting: the partitions that wait, and their distance to the base in milliseconds; ``None`` without a base.
        base: see :mod:`streamgroups.query.alignment`.
        holding: the partitions with the earliest watermark.
    """

    available: Mapping[TopicPartition, tuple[int, int]]
    waiting: Mapping[TopicPartition, int | None]
    base: Watermark
    holding: frozenset[TopicPartition]


def measured_density(
    before: Density | None, next_offset: int, watermark: Watermark, read: OffsetRange | None
) -> Density:
    """Returns the event time per offset of a partition after a batch.

    It decreases by at most half with each batch, so that a few records with the same time have little effect.

    Args:
        before: the last one; ``None`` for a new partition.
        next_offset: its position.
        watermark: its watermark.
        read: the range that the last batch has read; ``None`` if it has not read the partition.

    >>> p0 = TopicPartition("flights", 0)
    >>> first = measured_density(None, 5, At(1_000), None)
    >>> second = measured_density(first, 15, At(1_500), OffsetRange(p0, 5, 15))
    >>> second.offset_ms, measured_density(second, 25, At(1_500), OffsetRange(p0, 15, 25)).offset_ms
    (50.0, 25.0)
    """
    if before is not None and before.next_offset == next_offset:
        return replace(before, watermark=watermark)
    if before is None or read is None or (read.next_offset, read.end_offset) != (before.next_offset, next_offset):
        # A reset or a gap: these offsets were not read.
        return Density(next_offset, watermark)
    offset_ms = before.offset_ms
    if isinstance(watermark, At) and isinstance(before.watermark, At):
        new_ms = max(watermark.time_ms - before.watermark.time_ms, 0) / len(read)
        offset_ms = max(new_ms, (offset_ms or 0.0) / 2)
    return Density(next_offset, watermark, len(read), offset_ms)


def align(
    available: Mapping[TopicPartition, tuple[int, int]],
    times: EventTimes,
    densities: Mapping[TopicPartition, Density],
    max_drift_ms: int,
    *,
    is_bounded: bool,
) -> Aligned:
    """Returns the partitions that a batch may read (SEMANTICS W16).

    Args:
        available: next offset and end offset of each partition that the query may read.
        times: the event times of the stream.
        densities: the event time per offset of partitions, where it is known.
        max_drift_ms: how far a partition can be ahead of the base, in milliseconds.
        is_bounded: whether the run ends when all available records are read.

    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> times = EventTimes({p0: At(90_000), p1: At(10_000)})
    >>> found = align({p0: (5, 900), p1: (7, 900)}, times, {}, 60_000, is_bounded=False)
    >>> found.available[p0], found.available[p1], found.waiting[p0]
    ((5, 5), (7, 17), 80000)
    """
    readable = {tp for tp, (next_offset, end) in available.items() if next_offset < end}
    active = readable if is_bounded else readable | (times.watermarks.keys() - set(times.idle))
    watermarks = {tp: times.watermarks.get(tp, NOT_YET) for tp in active}
    minimum = earliest(*watermarks.values())
    base = latest(times.reached, minimum)
    aligned, waiting = dict(available), dict[TopicPartition, int | None]()
    for tp in readable:
        next_offset, end = available[tp]
        ahead_ms = _ahead_ms(watermarks[tp], base)
        if ahead_ms is None or ahead_ms > max_drift_ms:
            waiting[tp] = ahead_ms
            aligned[tp] = next_offset, next_offset
        else:
            most = _max_offsets(densities.get(tp), max_drift_ms - ahead_ms)
            aligned[tp] = next_offset, min(end, next_offset + most)
    return Aligned(aligned, waiting, base, frozenset(tp for tp, it in watermarks.items() if it == minimum))


def _ahead_ms(watermark: Watermark, base: Watermark) -> int | None:
    """How far a partition is ahead of the base; ``None`` if it has a watermark, and there is no base."""
    if not isinstance(watermark, At):
        return 0
    return max(watermark.time_ms - base.time_ms, 0) if isinstance(base, At) else None


def _max_offsets(density: Density | None, room_ms: int) -> int:
    if density is None or (density.offset_ms is None and isinstance(density.watermark, At)):
        return FIRST_OFFSETS
    most = max(FIRST_OFFSETS, _GROWTH * density.offsets)
    if not density.offset_ms or not isinstance(density.watermark, At):
        return most
    return min(most, max(1, int(room_ms / density.offset_ms)))
