"""The state of a group for other clients.

``streamgroups_kafka.cursors.group_operations`` creates it from the broker's description and the metadata groups;
``GroupCursors.get_group`` returns it. Source: SEMANTICS G8, G9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamgroups.coordination.reset_protocol import MemberEntry, ResetRequest
from streamgroups.groups.description import GroupDescription
from streamgroups.partitions import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition of a group.

    Args:
        partition: its number.
        next_offset: the committed offset; ``None`` without one.
        instance: the name of the instance that owns it; ``None`` without an owner.
        until_ms: when the lease of the instance expires without another request, milliseconds since the epoch. ``None``
            if the owner is not an instance of group cursors.
        moving_to: the offset of a pending reset, at which its owner continues with its next request; else ``None``.
    """

    partition: int
    next_offset: int | None
    instance: str | None
    until_ms: int | None
    moving_to: int | None = None


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group on a stream, as it is now.

    Args:
        stream: the topic.
        group: the consumer group.
        partitions: all partitions of the stream, in order.
        instances: the names of all live members, including those without partitions.
    """

    stream: str
    group: str
    partitions: tuple[PartitionState, ...]
    instances: tuple[str, ...]


def group_state(
    live: GroupDescription,
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int],
    entries: Mapping[TopicPartition, MemberEntry],
    waiting: Mapping[TopicPartition, ResetRequest],
) -> tuple[PartitionState, ...]:
    """Returns the state of each partition.

    Args:
        live: the group's members.
        partitions: all partitions of the stream.
        committed: the group's committed offsets.
        entries: the metadata entries of the owners. Those of former owners are ignored.
        waiting: the reset requests that are not applied yet.

    >>> p = TopicPartition("flights", 0)
    >>> group_state(GroupDescription("billing", "Empty"), [p], {p: 100}, {}, {})
    (PartitionState(partition=0, next_offset=100, instance=None, until_ms=None, moving_to=None),)
    """
    owners = live.owners
    return tuple(
        PartitionState(
            tp.partition,
            committed.get(tp),
            owners[tp].client_id if tp in owners else None,
            entries[tp].until_ms
            if tp in owners and tp in entries and entries[tp].member_id == owners[tp].member_id
            else None,
            waiting[tp].next_offset if tp in waiting else None,
        )
        for tp in sorted(partitions)
    )
