"""What a group looks like from outside.

Made by ``streamgroups_kafka.cursors.group_operations`` from what the broker and the board say; returned by ``GroupCursors.get_group``. Source:
SEMANTICS G8, G9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamgroups.coordination.reset_protocol import MemberEntry, ResetRequest
from streamgroups.groups.join_policy import LiveGroup
from streamgroups.partitions import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition of a group.

    Args:
        partition: its number.
        next_offset: the committed offset; ``None`` if there is none.
        instance: the name of the instance that holds it; ``None`` if nobody does.
        until_ms: until when the instance is in the group if it stays silent, milliseconds since the epoch; ``None`` if it
            is no instance of group cursors.
        moving_to: where its owner goes on at its next request, if the group was moved; else ``None``.
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
        partitions: all of the stream's, in order.
        instances: the names of all live members, those without partitions too.
    """

    stream: str
    group: str
    partitions: tuple[PartitionState, ...]
    instances: tuple[str, ...]


def group_state(
    live: LiveGroup,
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int],
    notes: Mapping[TopicPartition, MemberEntry],
    waiting: Mapping[TopicPartition, ResetRequest],
) -> tuple[PartitionState, ...]:
    """The state of each partition.

    Args:
        live: the group's members.
        partitions: all of the stream's.
        committed: the group's committed offsets.
        notes: what the owners noted; one of a former owner counts for nothing.
        waiting: the orders that have not been obeyed yet.

    >>> p = TopicPartition("flights", 0)
    >>> group_state(LiveGroup("billing"), [p], {p: 100}, {}, {})
    (PartitionState(partition=0, next_offset=100, instance=None, until_ms=None, moving_to=None),)
    """
    owners = {tp: m.client_id for m in live.members for tp in m.partitions}
    return tuple(
        PartitionState(
            tp.partition,
            committed.get(tp),
            owners.get(tp),
            notes[tp].until_ms if tp in owners and tp in notes and notes[tp].instance == owners[tp] else None,
            waiting[tp].next_offset if tp in waiting else None,
        )
        for tp in sorted(partitions)
    )
