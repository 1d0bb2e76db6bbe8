"""G8, G9: the description of a group for other programs."""

from __future__ import annotations

from streamgroups.coordination.reset_protocol import MemberEntry, ResetRequest
from streamgroups.cursors.group_state import PartitionState, group_state
from streamgroups.groups.description import GroupDescription, GroupMember
from streamgroups.partitions import TopicPartition

P0, P1, P2, P3 = (TopicPartition("flights", p) for p in range(4))


def member(name: str, *partitions: TopicPartition) -> GroupMember:
    return GroupMember(name, "/10.0.0.2", frozenset(partitions), member_id=f"{name}-1")


def test_G9_each_partition_has_its_offset_its_instance_and_until_when() -> None:
    live = GroupDescription("billing", "Stable", members=(member("a", P0, P1), member("b", P2), member("idle")))
    entries = {
        P0: MemberEntry("a", "a-1", 1_000, 31_000),
        P1: MemberEntry("b", "b-1", 500, 30_500),
        P2: MemberEntry("b", "b-0", 500, 30_500),
    }
    assert group_state(live, [P3, P2, P1, P0], {P0: 10, P2: 0}, entries, {}) == (
        PartitionState(0, 10, "a", 31_000),
        # The entry is of the previous owner.
        PartitionState(1, None, "a", None),
        # The entry is of an earlier member of the same name.
        PartitionState(2, 0, "b", None),
        PartitionState(3, None, None, None),
    )
    # A member without an entry.
    assert group_state(live, [P2], {P2: 0}, {}, {}) == (PartitionState(2, 0, "b", None),)


def test_G8_the_target_of_a_reset_is_reported_until_its_owner_has_applied_it() -> None:
    waiting = {P1: ResetRequest("a", 6, {"flights": 3})}
    state = group_state(GroupDescription("billing", "Empty"), [P0, P1, P2], {}, {}, waiting)
    assert [p.moving_to for p in state] == [None, 6, None]
