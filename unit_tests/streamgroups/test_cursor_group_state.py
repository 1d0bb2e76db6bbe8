"""G8, G9: what a group looks like from outside."""

from __future__ import annotations

from streamgroups.coordination.reset_protocol import MemberEntry, ResetRequest
from streamgroups.cursors.state import PartitionState, group_state
from streamgroups.groups.join_policy import LiveGroup, LiveMember
from streamgroups.partitions import TopicPartition

P0, P1, P2, P3 = (TopicPartition("flights", p) for p in range(4))


def member(name: str, *partitions: TopicPartition) -> LiveMember:
    return LiveMember(name, "/10.0.0.2", frozenset({"flights"}), frozenset(partitions))


def test_G9_each_partition_has_its_offset_its_instance_and_until_when() -> None:
    live = LiveGroup("billing", (member("a", P0, P1), member("b", P2), member("idle")))
    notes = {P0: MemberEntry("a", 1_000, 31_000), P1: MemberEntry("b", 500, 30_500)}
    assert group_state(live, [P3, P2, P1, P0], {P0: 10, P2: 0}, notes, {}) == (
        PartitionState(0, 10, "a", 31_000),
        # The note is of the owner before.
        PartitionState(1, None, "a", None),
        # A member that notes nothing.
        PartitionState(2, 0, "b", None),
        PartitionState(3, None, None, None),
    )


def test_G8_where_a_partition_moves_is_told_until_its_owner_has_obeyed() -> None:
    waiting = {P1: ResetRequest("x", 6, {"flights": 3})}
    state = group_state(LiveGroup("billing"), [P0, P1, P2], {}, {}, waiting)
    assert [p.moving_to for p in state] == [None, 6, None]
