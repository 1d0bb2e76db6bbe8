"""Reports of the queries of an application about their batch, their states and their event time, for metrics.

The source of a running query reports them, and tasks report watermarks of producers that they cannot read.
``sg.reports.MetricsListener`` exports them (:mod:`streamgroups.monitoring.member_metrics`). They are separate from the
metrics, because sources run without the extra ``metrics``. Source: SEMANTICS S3, S10, W15, W16, O3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamgroups.partitions import TopicPartition
from streamgroups.state.figures import BatchFigures


@dataclass(frozen=True, slots=True)
class BatchFlight:
    """The batch in flight of one member.

    Args:
        group_id: its group.
        member: its ``client.id``.
        batch_ms: how long the batch has been in flight; ``None`` between two batches.
        handover_ms: how long a rebalance waits for it.
        lease_timeout_ms: the option ``leaseTimeout``; ``None`` if it is off.
    """

    group_id: str
    member: str
    batch_ms: int | None
    handover_ms: int
    lease_timeout_ms: int | None


@dataclass(frozen=True, slots=True)
class QueryStates:
    """The states of one member.

    Args:
        group_id: its group.
        member: its ``client.id``.
        figures: the figures of its last batch.
    """

    group_id: str
    member: str
    figures: BatchFigures


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
