"""Decisions about groups: ownership of partitions, commits, offset resets, lag and history.

**Lease of a batch.** Heartbeats continue while a batch hangs, because the member's thread polls independently of Spark.
``streamgroups/groups/batch_lease`` determines when a batch is logged as a warning, when its lease expires, and whether
the member leaves. Before the member leaves, its thread checks Spark's commit log for the batch, and the group for other
members.

``MemberState`` then releases the partitions first. From then on no sink gets consumer group metadata for the batch, and
``finish`` commits none of it. Then the client is closed, which leaves the group. A transaction that already has the old
metadata is rejected by the broker, and a ledger rejects the batch by its positions. When the batch ends, a new client
joins. The member does not use ``unsubscribe``: librdkafka postpones it during a rebalance, and that rebalance may wait
for this batch.

**Paused processes.** A paused process (a suspended laptop, a frozen VM) does not detect that the group has removed it. Two mechanisms protect
the group. The broker rejects its commits by their generation. The member's thread detects a pause of more than three
seconds. It then plans no batch until the group has accepted a commit again.

Users import the names below as ``sg.groups``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgroups._lazy import accessors, places

if TYPE_CHECKING:
    from streamgroups.monitoring.group_tables import DescribedGroup as DescribedGroup
    from streamgroups.partitions import OffsetRange as OffsetRange
    from streamgroups.partitions import TopicPartition as TopicPartition
    from streamgroups_kafka.admin.describe_group import describe_group as describe_group

_PLACES = places(
    {
        "streamgroups.monitoring.group_tables": "DescribedGroup",
        "streamgroups.partitions": "OffsetRange TopicPartition",
        "streamgroups_kafka.admin.describe_group": "describe_group",
    }
)

__all__ = sorted(_PLACES)
__getattr__, __dir__ = accessors(__name__, _PLACES)
