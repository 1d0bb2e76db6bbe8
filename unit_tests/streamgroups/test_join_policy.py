"""S1, S4: a group in conflicting use is rejected before anything changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamgroups.errors import GroupRejected
from streamgroups.groups.description import GroupDescription, GroupMember
from streamgroups.groups.join_policy import MembershipMode, check_may_join
from streamgroups.partitions import TopicPartition

SHARED, EXCLUSIVE = MembershipMode.SHARED, MembershipMode.EXCLUSIVE
FLIGHTS = frozenset({"flights"})


def group(*topics: set[str], assignor: str = "cooperative-sticky") -> GroupDescription:
    members = tuple(GroupMember(f"m{i}", "/10.0.0.1", subscription=frozenset(t)) for i, t in enumerate(topics))
    return GroupDescription("airline", "Stable" if members else "Empty", assignor=assignor, members=members)


@pytest.mark.parametrize("mode", [SHARED, EXCLUSIVE, None])
def test_S1_an_empty_group_accepts_every_member(mode: MembershipMode | None) -> None:
    check_may_join(group(assignor="range"), FLIGHTS, by_pattern=False, mode=mode, held_exclusively=True)


@pytest.mark.parametrize("assignor", ["", "cooperative-sticky", "uniform"])
@pytest.mark.parametrize("topics", [{"flights"}, set()], ids=["same topics", "not known"])
def test_S1_members_of_the_same_topics_are_joined(assignor: str, topics: set[str]) -> None:
    check_may_join(group(topics, assignor=assignor), FLIGHTS, by_pattern=False, mode=SHARED)


@pytest.mark.parametrize("assignor", ["range", "uniform", "a-plugin"])
def test_S1_any_assignor_of_the_broker_fits(assignor: str) -> None:
    own = replace(group({"flights"}, assignor=assignor), type="consumer")
    check_may_join(own, FLIGHTS, by_pattern=False, mode=SHARED)


def test_S4_a_pattern_may_match_more_topics_than_the_others_but_not_fewer() -> None:
    both = frozenset({"flights", "flights-2013"})
    check_may_join(group({"flights"}), both, by_pattern=True, mode=SHARED)
    with pytest.raises(GroupRejected, match="another subscription"):
        check_may_join(group({"flights"}), both, by_pattern=False, mode=SHARED)
    with pytest.raises(GroupRejected, match="another subscription"):
        check_may_join(group({"orders", "flights"}), both, by_pattern=True, mode=SHARED)


@pytest.mark.parametrize(
    ("live", "mode", "why", "remedy"),
    [
        (
            group({"orders"}),
            SHARED,
            r"m0 \(/10.0.0.1\) reads orders, this query would read flights",
            "another group.id",
        ),
        (group({"flights"}, assignor="range"), SHARED, "assign by 'range'", "partition.assignment.strategy"),
        (group({"flights"}), EXCLUSIVE, "membership=exclusive permits no other member", "session times out"),
        (group({"flights"}), None, "so 'assign' cannot commit to it", "Use 'subscribe'"),
    ],
)
def test_S4_errors_name_the_members_and_a_remedy(
    live: GroupDescription, mode: MembershipMode | None, why: str, remedy: str
) -> None:
    with pytest.raises(GroupRejected, match=why) as rejection:
        check_may_join(live, FLIGHTS, by_pattern=False, mode=mode)
    assert remedy in rejection.value.remedy


def test_S4_a_group_of_an_exclusive_member_is_not_shared() -> None:
    why = r"used by m0 \(/10.0.0.1\) with membership=exclusive. Stop that"
    with pytest.raises(GroupRejected, match=why):
        check_may_join(group({"flights"}), FLIGHTS, by_pattern=False, mode=SHARED, held_exclusively=True)


def test_what_was_only_inferred_may_be_a_part_of_the_subscription() -> None:
    """The protocol of KIP-848 does not return subscriptions: a member is described by its partitions."""
    owns_one = GroupMember("bob", "/10.0.0.2", frozenset({TopicPartition("a", 0)}))
    both = frozenset({"a", "b"})
    check_may_join(
        GroupDescription("g", "Stable", members=(owns_one,)), both, by_pattern=False, mode=MembershipMode.SHARED
    )
    elsewhere = GroupMember("eve", "/10.0.0.3", frozenset({TopicPartition("c", 0)}))
    with pytest.raises(GroupRejected, match="eve"):
        check_may_join(
            GroupDescription("g", "Stable", members=(elsewhere,)), both, by_pattern=False, mode=MembershipMode.SHARED
        )
