"""S1, S4: a group in use in a way that does not fit is refused before anything changes."""

from __future__ import annotations

import pytest

from streamgroups.errors import GroupRejected
from streamgroups.groups.join_policy import LiveGroup, LiveMember, MembershipMode, check_may_join
from streamgroups.partitions import TopicPartition

SHARED, EXCLUSIVE = MembershipMode.SHARED, MembershipMode.EXCLUSIVE
FLIGHTS = frozenset({"flights"})


def group(*topics: set[str], assignor: str = "cooperative-sticky", exclusive: bool = False) -> LiveGroup:
    members = tuple(LiveMember(f"m{i}", "/10.0.0.1", frozenset(t), frozenset()) for i, t in enumerate(topics))
    return LiveGroup("airline", members, assignor, exclusive)


@pytest.mark.parametrize("mode", [SHARED, EXCLUSIVE, None])
def test_S1_an_empty_group_takes_anybody(mode: MembershipMode | None) -> None:
    check_may_join(group(assignor="range", exclusive=True), FLIGHTS, by_pattern=False, mode=mode)


@pytest.mark.parametrize("assignor", ["", "cooperative-sticky", "uniform"])
@pytest.mark.parametrize("topics", [{"flights"}, set()], ids=["same topics", "not known"])
def test_S1_members_of_the_same_topics_are_joined(assignor: str, topics: set[str]) -> None:
    check_may_join(group(topics, assignor=assignor), FLIGHTS, by_pattern=False, mode=SHARED)


def test_S4_a_pattern_may_know_more_topics_than_the_others_but_not_fewer() -> None:
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
        (
            group({"flights"}, exclusive=True),
            SHARED,
            r"used by m0 \(/10.0.0.1\) with membership=exclusive",
            "Stop that",
        ),
        (group({"flights"}), None, "so 'assign' cannot commit to it", "Use 'subscribe'"),
    ],
)
def test_S4_refusals_name_the_members_and_say_what_to_do(
    live: LiveGroup, mode: MembershipMode | None, why: str, remedy: str
) -> None:
    with pytest.raises(GroupRejected, match=why) as rejection:
        check_may_join(live, FLIGHTS, by_pattern=False, mode=mode)
    assert remedy in rejection.value.remedy


def test_owned_is_what_all_members_have() -> None:
    p = [TopicPartition("flights", i) for i in range(3)]
    members = tuple(LiveMember(n, "/h", FLIGHTS, frozenset(tps)) for n, tps in (("a", p[:1]), ("b", p[1:])))
    assert LiveGroup("airline", members).owned == set(p)


def test_what_was_only_inferred_may_be_a_part_of_the_subscription() -> None:
    """The protocol of KIP-848 does not tell subscriptions: a member is seen by the partitions it has."""
    owns_one = LiveMember("bob", "/10.0.0.2", frozenset({"a"}), frozenset(), subscription_known=False)
    both = frozenset({"a", "b"})
    check_may_join(LiveGroup("g", (owns_one,)), both, by_pattern=False, mode=MembershipMode.SHARED)
    elsewhere = LiveMember("eve", "/10.0.0.3", frozenset({"c"}), frozenset(), subscription_known=False)
    with pytest.raises(GroupRejected, match="eve"):
        check_may_join(LiveGroup("g", (elsewhere,)), both, by_pattern=False, mode=MembershipMode.SHARED)
