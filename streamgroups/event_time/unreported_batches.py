"""The finished batches whose event times are not known yet.

``streamgroups_spark.source.source_watermark`` requests the observations of each finished batch from the process that has received
them. If this process does not respond, the batch waits here, and so do all later batches and polls: each of them could advance
the watermark past records that have been read. Source: SEMANTICS W2, W3, W8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamgroups.groups.membership import InFlight
from streamgroups.partitions import OffsetRange, TopicPartition


def still_current(
    batch: InFlight, waiting: Iterable[InFlight], positions: Mapping[TopicPartition, int]
) -> tuple[OffsetRange, ...]:
    """Returns the ranges of a batch whose partitions have continued from there, as far as the positions show it.

    Meanwhile the group can have reset a partition, or another member can have read it further. Then its stored time
    counts.

    Args:
        batch: the first batch that waits.
        waiting: the later ones.
        positions: the next offset of each owned partition, before the last batch or after it.

    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> batch = InFlight(3, (OffsetRange(p0, 5, 9), OffsetRange(p1, 5, 9)))
    >>> still_current(batch, [InFlight(4, (OffsetRange(p0, 9, 12),))], {p0: 12, p1: 12})
    (OffsetRange(topic_partition=TopicPartition(topic='flights', partition=0), next_offset=5, end_offset=9),)
    """
    ends: dict[TopicPartition, int] = {}
    for it in (batch, *waiting):
        ends |= {r.topic_partition: r.end_offset for r in it.ranges}
    return tuple(
        r
        for r in batch.ranges
        if r.topic_partition in positions and r.next_offset <= positions[r.topic_partition] <= ends[r.topic_partition]
    )
