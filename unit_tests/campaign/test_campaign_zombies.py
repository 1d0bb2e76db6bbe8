"""The check of a campaign with zombies: runs of the output, dead letters, and the order of turns."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration_tests.campaign.resets import LETTER_EVERY, RequestedReset, is_letter, order_of, wrong_letters
from integration_tests.campaign.turns import ZOMBIE_POINTS, needs_reset, zombie_turns
from integration_tests.campaign.windows import PARTITIONS

COUNT = 40 * PARTITIONS


def run(partition: int, first: int, end: int) -> list[tuple[int, str]]:
    """The records of one run, without its dead letters."""
    numbers = [offset * PARTITIONS + partition for offset in range(first, end)]
    return [(partition, str(number)) for number in numbers if not is_letter(number)]


def others(partition: int) -> list[tuple[int, str]]:
    """One complete run of each other partition."""
    return [it for other in range(PARTITIONS) if other != partition for it in run(other, 0, 40)]


def test_a_complete_output_has_no_differences() -> None:
    found = order_of([*run(0, 0, 40), *others(0)], COUNT, letters=True)
    assert (found.lost, found.repeated, found.unapplied) == ([], [], [])


@given(data=st.data())
def test_each_reset_begins_one_run(data: st.DataObject) -> None:
    arrived, resets, first = [], [], 0
    for _ in range(data.draw(st.integers(0, 4))):
        # A run has two records at least, so that one of them is no dead letter.
        end = data.draw(st.integers(first + 2, 40))
        arrived += run(1, first, end)
        first = data.draw(st.integers(0, end - 2))
        resets.append(RequestedReset(1, first))
    arrived += [*run(1, first, 40), *others(1)]
    found = order_of(arrived, COUNT, resets, letters=True)
    assert (found.lost, found.repeated, found.unapplied) == ([], [], [])
    for number in (1, 45, 101):
        times = sum(it.next_offset <= number // PARTITIONS for it in resets)
        assert found.times_read(number) <= 1 + times


def test_a_reset_is_applied_once() -> None:
    once = [*run(1, 0, 20), *run(1, 5, 40), *others(1)]
    twice = [*run(1, 0, 20), *run(1, 5, 30), *run(1, 5, 40), *others(1)]
    reset = [RequestedReset(1, 5)]
    assert order_of(once, COUNT, reset, letters=True).repeated == []
    assert order_of(once, COUNT, letters=True).repeated == [value for _, value in run(1, 5, 20)]
    assert order_of(twice, COUNT, reset, letters=True).repeated == [value for _, value in run(1, 5, 30)]
    never = order_of([*run(1, 0, 40), *others(1)], COUNT, reset, letters=True)
    assert never.unapplied == ["partition 1 to 5"]


def test_a_batch_of_a_zombie_in_the_middle_of_a_run_is_repeated() -> None:
    late = [*run(2, 0, 20), *run(2, 5, 9), *run(2, 20, 25), *run(2, 9, 40), *others(2)]
    found = order_of(late, COUNT, [RequestedReset(2, 5)], letters=True)
    assert found.lost == [value for _, value in run(2, 9, 20)]
    assert found.repeated == [value for _, value in run(2, 9, 25)]


@pytest.mark.parametrize(("first", "end"), [(0, 3), (7, 9), (38, 40)])
def test_a_gap_is_lost(first: int, end: int) -> None:
    cut = [*run(3, 0, first), *run(3, end, 40), *others(3)]
    assert order_of(cut, COUNT, letters=True).lost == [value for _, value in run(3, first, end)]


def test_a_row_of_a_dead_letter_is_repeated() -> None:
    found = order_of([(0, "0"), *run(0, 0, 40), *others(0)], COUNT, letters=True)
    assert found.repeated == ["0"]


def test_a_dead_letter_is_there_once_for_each_run_at_most() -> None:
    count = 2 * LETTER_EVERY + 1
    numbers = range(count)
    arrived = [(number % PARTITIONS, str(number)) for number in numbers if not is_letter(number)]
    found = order_of(arrived, count, letters=True)
    letters = [str(number) for number in numbers if is_letter(number)]
    assert wrong_letters(found, letters, count) == ([], [])
    assert wrong_letters(found, letters[1:], count) == (["0"], [])
    assert wrong_letters(found, [*letters, letters[1]], count) == ([], [letters[1]])
    assert wrong_letters(found, [*letters, "7"], count) == ([], ["7"])
    # Letter 101 is offset 25 of partition 1.
    again = [(1, str(number)) for number in numbers if number % PARTITIONS == 1 and not is_letter(number)]
    twice = order_of([*arrived, *again[20:]], count, [RequestedReset(1, 20)], letters=True)
    assert wrong_letters(twice, [*letters, letters[1]], count) == ([], [])
    assert wrong_letters(twice, [*letters, letters[0]], count) == ([], ["0"])
    # The reset to offset 20 follows a run to offset 22. A batch after it has written the letter of offset 25, but no output.
    early = [it for it in arrived if it[0] != 1] + [(1, str(4 * offset + 1)) for offset in range(22)]
    unfinished = order_of([*early, *again[20:]], count, [RequestedReset(1, 20)], letters=True)
    assert (unfinished.repeated, unfinished.lost) == ([], [])
    assert wrong_letters(unfinished, [*letters, letters[1]], count) == ([], [])
    assert wrong_letters(unfinished, [*letters, letters[1], letters[1]], count) == ([], [letters[1]])


@pytest.mark.parametrize("sink", ["kafka", "postgres", "delta"])
def test_zombies_are_at_every_point_and_have_the_number_of_resets(sink: str) -> None:
    points = ZOMBIE_POINTS["kafka" if sink == "kafka" else "ledger"]
    turns = zombie_turns(sink, len(points), len(points))
    assert Counter(point for point, _ in turns) == Counter(points)
    assert {fault for _, fault in turns} == {"zombie-reset"}
    for n_resets in (0, 3, 10):
        some = zombie_turns(sink, 10, n_resets, seed=7)
        assert len(some) == 10
        assert sum(fault == "zombie-reset" for _, fault in some) == n_resets
        assert all(fault == "zombie-reset" for point, fault in some if needs_reset(sink, point))


def test_both_protocols_together_have_more_points() -> None:
    first, second = (zombie_turns("postgres", 10, 5, skipped=skipped) for skipped in (0, 10))
    assert len({point for point, _ in first + second}) >= 15
