"""The planned change of the committed offsets of a group.

Created by commands about groups and by restores of savepoints, and applied by :mod:`streamgroups_admin.groups.applying`.
Source: SEMANTICS O1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamgroups.errors import GroupRejected
from streamgroups.groups.description import GroupDescription
from streamgroups.groups.reset_plan import Move
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups.printable import listed
from streamgroups.state.continuation import Continuation


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """The planned change of one group.

    Args:
        group_id: the group.
        moves: the new offset of each partition.
        forgotten: the partitions whose committed offset will be deleted, with that offset.
        metadata: the metadata to commit with the offsets; empty by default.
        live: the group, if it has members, which then receive a reset request.
        has_states: whether its queries keep state of the partitions.
        is_in_effect: whether all new offsets are the committed ones already.
        states: the state with which each partition continues; empty if that is unknown.
        added: the partitions without a committed offset that were added to a topic, and that the user has not named.
        not_saved: the partitions whose committed offset stays, because the restored savepoint does not have them.
    """

    group_id: str
    moves: Sequence[Move]
    forgotten: Mapping[TopicPartition, int] = field(default_factory=dict)
    metadata: Mapping[TopicPartition, str] = field(default_factory=dict)
    live: GroupDescription | None = None
    has_states: bool = False
    is_in_effect: bool = False
    states: Mapping[TopicPartition, Continuation] = field(default_factory=dict)
    added: Sequence[TopicPartition] = ()
    not_saved: Sequence[TopicPartition] = ()

    @property
    def changes(self) -> dict[TopicPartition, Committed | None]:
        """Returns the offsets to commit, and ``None`` for offsets to delete."""
        moves = () if self.is_in_effect else self.moves
        return {
            **{m.topic_partition: Committed(m.to_offset, self.metadata.get(m.topic_partition, "")) for m in moves},
            **dict.fromkeys(self.forgotten),
        }


def require_owned(plans: Sequence[GroupPlan]) -> None:
    """Rejects partitions without an owner in groups with members, because only the owner can reset a partition."""
    for p in plans:
        if p.live is None:
            continue
        nobodys = p.changes.keys() - p.live.owners.keys()
        if nobodys:
            raise GroupRejected(
                f"Group '{p.group_id}' has members, and none of them reads {listed(sorted(nobodys))}; nothing was changed.",
                remedy="Name the topics that they read with --topic, or stop them first.",
                group=p.group_id,
            )
        if p.forgotten:
            raise GroupRejected(
                f"Group '{p.group_id}' has members, so its committed offsets of {listed(sorted(p.forgotten))} cannot be deleted; "
                "nothing was changed.",
                remedy="Stop them first.",
                group=p.group_id,
            )
