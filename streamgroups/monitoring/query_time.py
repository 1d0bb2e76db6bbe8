"""Reports of the queries of an application about their event time, for metrics.

The source of a running query reports the partitions that wait by ``maxDrift``, and tasks report watermarks of producers
that they cannot read. ``sg.reports.MetricsListener`` exports both (:mod:`streamgroups.monitoring.time_metrics`). It is separate
from the metrics, because sources run without the extra ``metrics``. Source: SEMANTICS W15, W16, O3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamgroups.partitions import TopicPartition


@dataclass(frozen=True, slots=True)
class WaitingPartitions:
    """The partitions of one member that wait for the watermark.

    Args:
        group_id: its group.
        member: its ``client.id``.
        ahead_ms: the distance of each partition to the watermark, in milliseconds; ``None`` without a watermark.
    """

    group_id: str
    member: str
    ahead_ms: Mapping[TopicPartition, int | None]


@dataclass(frozen=True, slots=True)
class UnreadableWatermarks:
    """Watermarks of producers that one member could not read.

    Args:
        group_id: its group.
        member: its ``client.id``.
        topic_partition: the partition.
        count: their number.
    """

    group_id: str
    member: str
    topic_partition: TopicPartition
    count: int
