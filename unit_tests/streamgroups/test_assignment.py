"""G10, G11: balanced, complete, and as little moved as can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from streamgroups.fakes.assignment import assign
from streamgroups.partitions import TopicPartition
from unit_tests.streamgroups.strategies import TOPIC_PARTITIONS


def flights(count: int) -> list[TopicPartition]:
    return [TopicPartition("flights", p) for p in range(count)]


def sizes(shares: Mapping[str, frozenset[TopicPartition]]) -> list[int]:
    return sorted(len(share) for share in shares.values())


def is_balanced(shares: Iterable[int]) -> bool:
    """Whether sizes differ by at most one: ⌊n/k⌋ or ⌈n/k⌉ partitions each (SEMANTICS G10)."""
    listed = list(shares)
    return not listed or max(listed) - min(listed) <= 1


def test_G10_eight_partitions_four_instances_get_two_each() -> None:
    assert sizes(assign(flights(8), "abcd", {})) == [2, 2, 2, 2]


def test_G10_ten_partitions_four_instances_two_have_two_and_two_have_three() -> None:
    assert sizes(assign(flights(10), "abcd", {})) == [2, 2, 3, 3]


def test_G10_standby_instances_idle_and_take_over_when_another_leaves() -> None:
    crowded = assign(flights(2), "abc", {})
    assert sizes(crowded) == [0, 1, 1]
    assert sizes(assign(flights(2), "bc", crowded)) == [1, 1]


def test_S1_who_joins_takes_only_what_it_needs() -> None:
    alone = assign(flights(8), "a", {})
    shared = assign(flights(8), "ab", alone)
    assert sizes(shared) == [4, 4]
    assert assign(flights(8), "a", shared) == alone


def test_a_group_without_members_has_no_assignment() -> None:
    assert assign(flights(3), [], {"a": frozenset(flights(3))}) == {}
    assert is_balanced([])


@given(
    st.frozensets(TOPIC_PARTITIONS),
    st.lists(st.sampled_from("abcdefg"), unique=True, min_size=1),
    st.lists(st.tuples(TOPIC_PARTITIONS, st.sampled_from("abcdefgh"))),
)
def test_G10_G11_every_partition_has_one_owner_shares_are_even_and_as_few_as_possible_move(
    partitions: frozenset[TopicPartition], members: list[str], had: list[tuple[TopicPartition, str]]
) -> None:
    owner = dict(had)
    previous = {m: frozenset(tp for tp, who in owner.items() if who == m) for m in "abcdefgh"}

    shares = assign(partitions, members, previous)

    assert Counter(tp for share in shares.values() for tp in share) == Counter(partitions)
    assert shares.keys() == set(members)
    assert is_balanced(map(len, shares.values()))
    # What is kept at most: each keeps ⌊n/k⌋, and as many of those with more as there are larger shares one further.
    floor, larger = divmod(len(partitions), len(members))
    holdings = [len(previous[m] & partitions) for m in members]
    most = sum(min(h, floor) for h in holdings) + min(larger, sum(h > floor for h in holdings))
    assert sum(len(shares[m] & previous[m]) for m in members) == most


@given(st.integers(1, 24), st.lists(st.sampled_from("abcdefg"), min_size=2, max_size=12))
@example(7, list("abcb"))
@example(8, list("abcac"))
def test_G10_shares_stay_even_when_members_join_and_leave(count: int, comes_or_goes: list[str]) -> None:
    """Each assignment begins with what the one before it left: members come if they are not there, and go if they are."""
    members: list[str] = []
    shares: Mapping[str, frozenset[TopicPartition]] = {}
    for name in comes_or_goes:
        members = [m for m in members if m != name] if name in members else [*members, name]
        before, shares = shares, assign(flights(count), members, shares)
        assert is_balanced(map(len, shares.values())), (before, members)
        assert Counter(tp for share in shares.values() for tp in share) == Counter(flights(count) if members else [])


def test_G10_who_has_more_than_others_keeps_one_more_and_not_two() -> None:
    """Seven partitions for three: one has three. Of the two who could, each has two already."""
    p = flights(7)
    had = {"a": frozenset(p[:3]), "b": frozenset(p[3:5]), "c": frozenset(p[5:6])}
    assert sizes(assign(p, "abc", had)) == [2, 2, 3]
    had = {"a": frozenset(p[:3]), "b": frozenset(p[3:6])}
    assert sizes(assign(flights(8), "abc", had)) == [2, 3, 3]


@pytest.mark.parametrize("count", range(12))
def test_the_same_question_has_the_same_answer(count: int) -> None:
    first = assign(flights(count), "abc", {})
    assert assign(flights(count), "abc", first) == first
    assert assign(reversed(flights(count)), "abc", {}) == first
