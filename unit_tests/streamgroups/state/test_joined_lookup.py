"""S10, W18: the states of both partitions of a pair come from one file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamgroups.errors import StateMissing
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.joined_lookup import choose_together, is_together
from streamgroups.state.manifest import Manifest, PartitionState
from streamgroups.state.origins import UNNAMED, Earlier, Fingerprinted, Named, New, StateOrigin
from streamgroups.state.state_lookup import Empty, OnMissingState, Position, Stored

LEFT, RIGHT = TopicPartition("orders", 0), TopicPartition("payments", 0)
TOPIC, RECREATED = TopicIdentity("c1", "t1"), TopicIdentity("c1", "t2")
FAIL = OnMissingState.FAIL


def file(attempt: int) -> StateFileName:
    return StateFileName(1732334879123 + attempt, "1f3a9c2b7d10", attempt, 1)


def manifest(attempt: int, left: tuple[int, int], right: tuple[int, int], identity: TopicIdentity = TOPIC) -> Manifest:
    ranges = OffsetRange(LEFT, *left), OffsetRange(RIGHT, *right)
    states = (PartitionState(it, began, identity) for it, began in zip(ranges, (3, 5), strict=True))
    return Manifest(file(attempt), "billing", "paid", "", tuple(states))


#: The first batch, and later ones.
FILES = [manifest(1, (3, 10), (5, 5)), manifest(2, (10, 10), (5, 40)), manifest(3, (10, 30), (40, 50))]


def positions(
    left: int, right: int, origins: tuple[StateOrigin, StateOrigin] = (UNNAMED, UNNAMED)
) -> tuple[Position, Position]:
    return Position(LEFT, left, origins[0], TOPIC), Position(RIGHT, right, origins[1], TOPIC)


@pytest.mark.parametrize(
    ("origins", "together"),
    [
        ((New(), New()), True),
        ((Named(file(1), 10), Named(file(1), 5)), True),
        ((Named(file(1), 10), Named(file(2), 40)), False),
        ((New(), Named(file(1), 5)), False),
        ((UNNAMED, UNNAMED), False),
        ((Fingerprinted(1), Fingerprinted(1)), False),
    ],
)
def test_S10_positions_of_one_batch_need_no_search(origins: tuple[StateOrigin, StateOrigin], together: bool) -> None:
    assert is_together(*positions(10, 5, origins)) is together


def test_C3_states_that_a_savepoint_names_are_used_although_later_ones_lead_to_the_positions() -> None:
    named = Earlier(file(1), 10), Earlier(file(1), 5)
    choices = choose_together(*positions(30, 50, named), FILES, FAIL)
    assert [it.file for it in choices if isinstance(it, Stored)] == [file(1), file(1)]


@pytest.mark.parametrize(
    ("at", "attempt"),
    [((30, 50), 3), ((99, 99), 3), ((29, 50), 2), ((30, 49), 2), ((10, 40), 2), ((99, 39), 1), ((10, 5), 1)],
)
def test_W18_both_states_are_the_latest_of_one_file_that_are_not_after_the_positions(
    at: tuple[int, int], attempt: int
) -> None:
    left, right = choose_together(*positions(*at), FILES, FAIL)
    assert isinstance(left, Stored)
    assert isinstance(right, Stored)
    assert (left.file, right.file) == (file(attempt), file(attempt))


def test_C3_W18_after_a_restore_no_states_of_the_abandoned_program_are_chosen() -> None:
    made = [(1, 10, 5, None), (2, 30, 50, 1), (3, 20, 40, 1), (4, 35, 60, 3)]
    known = []
    for attempt, left, right, after in made:
        states = manifest(attempt, (3, left), (5, right)).states
        name = None if after is None else file(after)
        known.append(Manifest(file(attempt), "billing", "paid", "", tuple(replace(it, after=name) for it in states)))
    choices = choose_together(*positions(32, 55), known, FAIL)
    assert [it.file for it in choices if isinstance(it, Stored)] == [file(3), file(3)]


def test_S10_W18_older_states_lead_to_positions_before_a_lost_state() -> None:
    """A state was lost, and the query began with an empty one."""
    began = (
        PartitionState(OffsetRange(LEFT, 90, 95), 90, TOPIC),
        PartitionState(OffsetRange(RIGHT, 95, 99), 95, TOPIC),
    )
    lost = Manifest(file(9), "billing", "paid", "", tuple(replace(it, after=file(8)) for it in began))
    choices = choose_together(*positions(30, 50), [*FILES, lost], FAIL)
    assert [it.file for it in choices if isinstance(it, Stored)] == [file(3), file(3)]


@pytest.mark.parametrize(
    ("at", "read_from"),
    [((9, 40), (3, 5)), ((2, 40), (2, 5)), ((9, 4), (3, 4)), ((1, 1), (1, 1))],
)
def test_S10_before_the_first_batch_both_states_are_empty(at: tuple[int, int], read_from: tuple[int, int]) -> None:
    assert choose_together(*positions(*at), FILES, FAIL) == (Empty(read_from[0]), Empty(read_from[1]))


def test_S10_positions_before_all_states_begin_empty_also_if_the_first_batch_is_deleted() -> None:
    assert choose_together(*positions(3, 5), FILES[1:], FAIL) == (Empty(3), Empty(5))


def test_S7_W18_a_recreated_topic_begins_empty_and_the_other_one_continues() -> None:
    def recreated(origin: StateOrigin) -> tuple[Position, Position]:
        return Position(LEFT, 0, New(), RECREATED), Position(RIGHT, 50, origin, TOPIC)

    named = Named(file(3), 50)
    state = FILES[2].state_of(RIGHT)
    assert state is not None
    left, right = recreated(named)
    assert choose_together(left, right, FILES, FAIL) == (Empty(0), Stored(file(3), state))
    # Its unmatched records are not lost, whatever the policy is.
    assert choose_together(left, right, FILES, OnMissingState.EMPTY) == (Empty(0), Stored(file(3), state))
    other = Position(LEFT, 30, Named(file(3), 30), TOPIC), Position(RIGHT, 0, New(), RECREATED)
    found = FILES[2].state_of(LEFT)
    assert found is not None
    assert choose_together(*other, FILES, FAIL) == (Stored(file(3), found), Empty(0))
    for missing in (Named(file(9), 50), UNNAMED):
        with pytest.raises(StateMissing, match="no states of these partitions are stored") as raised:
            choose_together(*recreated(missing), FILES, FAIL)
        assert "Reset" not in str(raised.value)


def test_W18_a_partition_of_the_same_topic_without_an_offset_continues_with_both_states_of_one_file() -> None:
    left, right = positions(30, 50, (New(), Named(file(3), 50)))
    assert [it.file for it in choose_together(left, right, FILES, FAIL) if isinstance(it, Stored)] == [file(3), file(3)]


def test_S10_no_states_are_an_error_or_empty_as_the_user_chooses() -> None:
    with pytest.raises(StateMissing, match=r"orders-0 and payments-0: .*the oldest stored states are at 10 and 40"):
        choose_together(*positions(9, 40), FILES[1:], FAIL)
    with pytest.raises(StateMissing, match="no states of these partitions are stored"):
        choose_together(*positions(9, 40), [manifest(1, (3, 9), (5, 40), RECREATED)], FAIL)
    assert choose_together(*positions(9, 40), FILES[1:], OnMissingState.EMPTY) == (Empty(9), Empty(40))
