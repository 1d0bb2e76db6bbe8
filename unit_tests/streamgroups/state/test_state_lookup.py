"""S10, S11: which state a batch continues from, row by row of the table in ``streamgroups.state.state_lookup``."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.errors import StateMismatch, StateMissing
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import Manifest, PartitionState
from streamgroups.state.origins import Earlier, Named, New, Unnamed
from streamgroups.state.state_lookup import (
    Choice,
    Empty,
    OnMissingState,
    Position,
    Stored,
    choose,
    is_continued,
    require_not_later,
)

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
TOPIC = TopicIdentity("c1", "t1")
FAIL, EMPTY = OnMissingState.FAIL, OnMissingState.EMPTY


def file(number: int) -> StateFileName:
    return StateFileName(1732334000000 + number, "1f3a9c2b7d10", number, number)


def stored(
    number: int,
    offset: int,
    *,
    tp: TopicPartition = P0,
    began: int = 0,
    first: int | None = None,
    identity: TopicIdentity = TOPIC,
    after: int | None = None,
) -> Manifest:
    """A state of a batch that read from ``first``: just before ``offset`` unless given. It continued from a file."""
    state = PartitionState(
        OffsetRange(tp, max(began, offset - 1) if first is None else first, offset),
        began,
        identity,
        after=None if after is None else file(after),
    )
    return Manifest(file(number), "billing", "windows", "", (state,))


def offset_of(choice: Choice) -> int | None:
    return choice.state.next_offset if isinstance(choice, Stored) else None


def at(offset: int, origin: New | Named | Earlier | Unnamed) -> Position:
    return Position(P0, offset, origin, TOPIC)


def test_C3_a_position_that_names_an_earlier_state_reads_again_from_there() -> None:
    choice = choose(at(9, Earlier(file(1), 5)), [stored(1, 5), stored(2, 8)], FAIL)
    assert isinstance(choice, Stored)
    assert (choice.file, choice.read_from) == (file(1), 5)
    with pytest.raises(StateMismatch, match="has its state at 4"):
        choose(at(9, Earlier(file(1), 5)), [stored(1, 4)], FAIL)


@pytest.mark.parametrize("origin", [Named(file(1), 6), Earlier(file(1), 6)])
def test_S11_a_position_that_names_a_later_state_is_rejected(origin: Named | Earlier) -> None:
    with pytest.raises(StateMismatch, match="'windows', 'counts'") as rejected:
        require_not_later(at(5, origin), ["windows", "counts"])
    assert "flights-0: the position 5 names the state of the later offset 6" in rejected.value.what
    assert str(file(1)) in rejected.value.what
    assert (rejected.value.topic, rejected.value.partition) == ("flights", 0)
    for offset in (6, 9):
        require_not_later(at(offset, origin), ["windows"])


def test_S10_a_starting_position_has_an_empty_state_whatever_is_stored() -> None:
    assert choose(at(5, New()), [stored(1, 5)], FAIL) == Empty(5)


def test_S10_a_position_continues_with_the_state_that_it_names() -> None:
    choice = choose(at(5, Named(file(1), 5)), [stored(1, 5)], FAIL)
    assert isinstance(choice, Stored)
    assert choice.file == file(1)
    assert choice.read_from == 5


@pytest.mark.parametrize(
    ("manifest", "text"),
    [
        (stored(1, 4), "has its state at 4"),
        (stored(1, 5, tp=P1), "has no state of the partition"),
        (stored(1, 5, identity=TopicIdentity("c1", "t2")), "another topic or cluster"),
        (stored(1, 5, identity=TopicIdentity("c2", "t1")), "another topic or cluster"),
    ],
)
@pytest.mark.parametrize("policy", [FAIL, EMPTY])
def test_S11_a_named_state_that_does_not_belong_to_the_position_is_an_error(
    manifest: Manifest, text: str, policy: OnMissingState
) -> None:
    with pytest.raises(StateMismatch, match=text) as rejected:
        choose(at(5, Named(file(1), 5)), [manifest], policy)
    assert (rejected.value.topic, rejected.value.partition) == ("flights", 0)


def test_S10_a_position_after_lost_records_continues_with_the_state_before_them() -> None:
    choice = choose(at(9, Named(file(1), 5)), [stored(1, 5)], FAIL)
    assert offset_of(choice) == 5


def test_S10_a_position_of_a_tool_continues_with_the_newest_state_of_its_offset() -> None:
    choice = choose(at(5, Unnamed()), [stored(2, 5), stored(1, 5), stored(3, 4), stored(4, 6)], FAIL)
    assert isinstance(choice, Stored)
    assert choice.file == file(2)


@pytest.mark.parametrize(
    ("states", "chosen"),
    [
        # A batch without records was killed, and the next one has read records.
        ([(1, 5, None), (2, 5, 1), (3, 9, 1)], 1),
        # It was committed.
        ([(1, 5, None), (2, 5, 1), (3, 9, 2)], 2),
        # It is the last batch. Whether it was committed is not known.
        ([(1, 5, None), (2, 5, 1)], 2),
        # A killed batch, and one that closed the same windows.
        ([(1, 5, None), (2, 5, 1), (3, 5, 1), (4, 9, 3)], 3),
        ([(1, 5, None), (2, 5, 1), (3, 5, 1)], 3),
        # After a reset the state of the offset was replaced by others.
        ([(1, 3, None), (2, 5, 1), (3, 4, 1), (4, 9, 3)], 3),
        # None of the others leads to the offset.
        ([(1, 3, None), (2, 5, 1), (3, 9, None)], 2),
    ],
)
def test_S10_a_state_that_does_not_lead_to_the_newest_one_is_chosen_only_if_there_is_no_other(
    states: list[tuple[int, int, int | None]], chosen: int
) -> None:
    known = [stored(number, offset, after=after) for number, offset, after in states]
    for manifests in (known, known[::-1]):
        choice = choose(at(5, Unnamed()), manifests, FAIL)
        assert isinstance(choice, Stored)
        assert choice.file == file(chosen)


#: A savepoint at 500, two batches of a wrong program, and two of the right one after the restore.
RESTORED = [(1, 400, None), (2, 500, 1), (3, 640, 2), (4, 900, 3), (5, 600, 2), (6, 700, 5)]


@pytest.mark.parametrize(("offset", "chosen"), [(650, 5), (599, 2), (640, 5), (900, 6), (950, 6), (450, 1)])
def test_C3_after_a_restore_no_state_of_the_abandoned_program_is_chosen(offset: int, chosen: int) -> None:
    choice = choose(at(offset, Unnamed()), [stored(*it[:2], after=it[2]) for it in RESTORED], FAIL)
    assert isinstance(choice, Stored)
    assert choice.file == file(chosen)


def test_C3_the_first_state_after_a_restore_of_an_empty_one_replaces_all_states_before_it() -> None:
    known = [stored(1, 640, first=0), stored(2, 900, after=1), stored(3, 700, first=0)]
    assert choose(at(650, Unnamed()), known, FAIL) == Empty(0)


def test_S10_a_deleted_state_does_not_hide_the_states_before_it() -> None:
    known = [stored(1, 400, after=0), stored(3, 600, after=2), stored(4, 700, after=3)]
    assert offset_of(choose(at(450, Unnamed()), known, FAIL)) == 400


def test_S10_a_position_between_two_states_reads_again_from_the_earlier_one() -> None:
    choice = choose(at(5, Unnamed()), [stored(1, 1), stored(2, 3), stored(3, 9)], FAIL)
    assert isinstance(choice, Stored)
    assert choice.read_from == 3


def test_S10_before_the_first_record_of_a_state_it_is_empty() -> None:
    assert choose(at(10, Unnamed()), [stored(1, 20, began=10)], FAIL) == Empty(10)
    assert choose(at(7, Unnamed()), [stored(1, 20, began=10)], FAIL) == Empty(7)


def test_S10_within_the_first_batch_of_a_state_its_records_are_read_again() -> None:
    known = [stored(1, 20, began=10, first=10), stored(2, 30, began=10)]
    assert choose(at(15, Unnamed()), known, FAIL) == Empty(10)


def test_S10_an_offset_whose_state_was_deleted_is_an_error_unless_an_empty_state_is_chosen() -> None:
    known = [stored(1, 20, began=10)]
    with pytest.raises(StateMissing, match="the oldest stored state is at 20") as rejected:
        choose(at(15, Unnamed()), known, FAIL)
    assert "onMissingState=empty" in rejected.value.remedy
    assert choose(at(15, Unnamed()), known, EMPTY) == Empty(15)


def test_S10_a_later_empty_start_does_not_hide_that_an_earlier_state_was_deleted() -> None:
    with pytest.raises(StateMissing):
        choose(at(600, Unnamed()), [stored(1, 1_000), stored(2, 6_000, began=5_000)], FAIL)


def test_S10_a_group_without_states_is_an_error_unless_an_empty_state_is_chosen() -> None:
    with pytest.raises(StateMissing, match="no state of the partition is stored"):
        choose(at(5, Unnamed()), [], FAIL)
    assert choose(at(5, Unnamed()), [], EMPTY) == Empty(5)


def test_S10_the_state_of_offset_0_is_empty_also_if_no_batch_has_read_the_partition() -> None:
    for known in ([], [stored(1, 20, began=10)], [stored(1, 5, identity=TopicIdentity("c1", "t0"))]):
        assert choose(at(0, Unnamed()), known, FAIL) == Empty(0)


def test_S11_states_of_an_earlier_topic_are_not_used() -> None:
    with pytest.raises(StateMissing):
        choose(at(5, Unnamed()), [stored(1, 5, identity=TopicIdentity("c1", "t0"))], FAIL)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 10), st.integers(0, 10)), max_size=8), st.integers(0, 40))
def test_S10_no_state_after_the_position_is_ever_chosen(known: list[tuple[int, int, int]], here: int) -> None:
    states = [(began, began + before, began + before + length) for began, before, length in known]
    manifests = [
        stored(i, end, began=began, first=first, after=i - 1 if i else None)
        for i, (began, first, end) in enumerate(states)
    ]
    reachable = {end for _, _, end in states if end <= here}
    beginnings = {began for began, first, _ in states if began == first <= here}
    try:
        choice = choose(at(here, Unnamed()), manifests, FAIL)
    except StateMissing:
        assert not reachable | beginnings
        assert not states or here > min(began for began, _, _ in states)
        return
    if reachable:
        assert offset_of(choice) == max(reachable)
    else:
        assert choice == Empty(max(beginnings, default=here))


@pytest.mark.parametrize(
    ("origin", "found", "is_written"),
    [
        (New(), stored(1, 9), True),
        (New(), stored(1, 8), False),
        (Named(file(1), 5), stored(2, 9, after=1), True),
        (Named(file(1), 5), stored(2, 9, after=7), False),
        (Named(file(1), 5), stored(2, 9), False),
        (Named(file(1), 5), stored(1, 5), False),
        (Unnamed(), stored(2, 9, after=7), True),
        (New(), stored(1, 9, identity=TopicIdentity("c1", "t0")), False),
    ],
)
def test_S10_a_batch_has_written_its_state_if_it_continues_the_state_before(
    origin: New | Named | Unnamed, found: Manifest, is_written: bool
) -> None:
    assert is_continued(at(9, Unnamed()), origin, [stored(0, 3).states[0], found.states[0]]) == is_written
