"""G4: a cursor that is used again has the messages of its first request, whatever arrived in between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamgroups.cursors.repeated_requests import MAX_REQUESTS, Repeat, Repeats
from streamgroups.partitions import TopicPartition

P0, P1, P2 = (TopicPartition("flights", p) for p in range(3))
NEW = Repeat({}, True)


def test_G4_a_request_from_the_same_positions_ends_where_it_ended() -> None:
    committed = {P0: 0, P1: 5}
    repeats = Repeats().after(committed, {P0: 10}, 10, committed).after({P0: 10, P1: 5}, {P1: 9}, 10, committed)
    assert repeats.of({P0: 0, P1: 5}, 10) == Repeat({P0: 10}, False)
    assert repeats.of({P0: 10, P1: 5}, 3) == Repeat({P1: 9}, False)
    assert repeats.of({P0: 10, P1: 9}, 10) == NEW


def test_G4_a_greater_limit_has_room_for_further_messages() -> None:
    repeats = Repeats().after({P0: 0}, {P0: 10}, 10, {})
    assert repeats.of({P0: 0}, 11) == Repeat({P0: 10}, True)
    repeats = repeats.after({P0: 0}, {P0: 11}, 11, {})
    assert [repeats.of({P0: 0}, n).end_offsets for n in (1, 10, 11, 12)] == [{P0: 10}, {P0: 10}, {P0: 11}, {P0: 11}]


def test_G4_a_rebalance_removes_only_what_it_revokes() -> None:
    repeats = Repeats().after({P0: 0, P1: 5}, {P0: 10, P1: 7}, 10, {P0: 0, P1: 5})
    assert repeats.of({P1: 5, P2: 3}, 10).end_offsets == {P1: 7}
    assert repeats.of({P2: 3}, 10) == NEW


def test_G12_a_request_before_the_committed_offset_is_forgotten() -> None:
    repeats = Repeats().after({P0: 0}, {P0: 10}, 10, {P0: 0}).after({P0: 10}, {P0: 20}, 10, {P0: 10})
    assert [it.next_offsets for it in repeats.answered] == [{P0: 10}]


def test_G4_the_first_of_two_requests_decides_and_the_number_is_limited() -> None:
    repeats = Repeats().after({P0: 0}, {P0: 10}, 10, {}).after({P0: 0}, {P0: 3}, 10, {})
    assert repeats.of({P0: 0}, 10).end_offsets == {P0: 10}
    for n in range(1, 2 * MAX_REQUESTS):
        repeats = repeats.after({P0: n}, {P0: n + 1}, 1, {})
    assert len(repeats.answered) == MAX_REQUESTS


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(any), max_size=20), st.data())
def test_G4_any_cursor_of_a_chain_can_be_repeated(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    repeats, at, chain = Repeats(), {P0: 0, P1: 0}, list[tuple[dict[TopicPartition, int], dict[TopicPartition, int]]]()
    for first, second in steps:
        reached = {P0: at[P0] + first, P1: at[P1] + second}
        repeats = repeats.after(at, reached, 6, {P0: 0, P1: 0})
        chain.append((at, reached))
        at = reached
    for positions, reached in data.draw(st.permutations(chain)):
        assert {**positions, **repeats.of(positions, 6).end_offsets} == reached
