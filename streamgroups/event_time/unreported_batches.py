"""The finished batches whose event times are not known yet.

``streamgroups_spark.source.source_watermark`` requests the observations of each finished batch from the process that has received
them. If this process does not respond, the batch waits here, and so do all later batches and polls: each of them could advance
the watermark past records that have been read. Source: SEMANTICS W2, W3, W8.

The process can be frozen for hours. So the batches after the first one wait as one: it has one range per partition, and one
request returns its observations. The first one does not change, because the reply to its request can be lost, and is repeated
by its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamgroups.groups.membership import InFlight
from streamgroups.partitions import OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True)
class Unreported:
    """Finished batches whose observations are requested together.

    Args:
        batch: the number of the last one, and the ranges of all.
        last: the offset at which the last of the ranges of each partition begins.
    """

    batch: InFlight
    last: Mapping[TopicPartition, int]

    @classmethod
    def of(cls, batch: InFlight) -> Unreported:
        """One batch."""
        return cls(batch, {r.topic_partition: r.next_offset for r in batch.ranges})


def with_finished(waiting: tuple[Unreported, ...], batch: InFlight) -> tuple[Unreported, ...]:
    """Returns the batches that wait after one more is finished: at most two.

    If the group was reset to an earlier offset, its records are read again, and only the new range of the partition waits.

    Args:
        waiting: those before, in their order.
        batch: the finished batch.

    >>> p0 = TopicPartition("flights", 0)
    >>> waiting: tuple[Unreported, ...] = ()
    >>> for number in range(5):
    ...     waiting = with_finished(waiting, InFlight(number, (OffsetRange(p0, number, number + 1),)))
    >>> [(it.batch.number, *map(str, it.batch.ranges)) for it in waiting]
    [(0, 'flights-0[0,1)'), (4, 'flights-0[1,5)')]
    """
    # The first one can have been requested.
    if len(waiting) < 2:
        return (*waiting, Unreported.of(batch))
    *before, last = waiting
    ranges = {r.topic_partition: r for r in last.batch.ranges}
    for r in batch.ranges:
        known = ranges.get(r.topic_partition, r)
        begin = known.next_offset if known.end_offset <= r.next_offset else r.next_offset
        ranges[r.topic_partition] = OffsetRange(r.topic_partition, begin, r.end_offset)
    together = InFlight(batch.number, tuple(ranges.values()))
    return (*before, Unreported(together, {**last.last, **Unreported.of(batch).last}))


def still_current(
    unreported: Unreported, waiting: Iterable[Unreported], positions: Mapping[TopicPartition, int]
) -> tuple[OffsetRange, ...]:
    """Returns the ranges of a batch whose partitions have continued from there, as far as the positions show it.

    Meanwhile the group can have reset a partition, or another member can have read it further. Then its stored time
    counts.

    Args:
        unreported: the first batch that waits.
        waiting: the later ones.
        positions: the next offset of each owned partition, before the last batch or after it.

    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> batch = Unreported.of(InFlight(3, (OffsetRange(p0, 5, 9), OffsetRange(p1, 5, 9))))
    >>> still_current(batch, [Unreported.of(InFlight(4, (OffsetRange(p0, 9, 12),)))], {p0: 12, p1: 12})
    (OffsetRange(topic_partition=TopicPartition(topic='flights', partition=0), next_offset=5, end_offset=9),)
    """
    ends: dict[TopicPartition, int] = {}
    for it in (unreported, *waiting):
        ends |= {r.topic_partition: r.end_offset for r in it.batch.ranges}
    return tuple(
        r
        for r in unreported.batch.ranges
        if r.topic_partition in positions
        # Before the last one of several batches, the position was reset: some of the records will be read again.
        and unreported.last[r.topic_partition] <= positions[r.topic_partition] <= ends[r.topic_partition]
    )
