"""Contestants take turns, the warm-up does not count, and one that fails does not take the others with it."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.figures import Missing
from benchmarks.rounds import NotHere, Rounds, interleave


class Course:
    """Contestants that take their time on a clock that only they move."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.ran: list[str] = []

    def contestant(self, name: str, *takes_s: float) -> Callable[[], int]:
        """A contestant with these times per round (the last for all further ones); it returns the number of the round."""

        def run() -> int:
            turn = self.ran.count(name)
            self.ran.append(name)
            self.now_s += takes_s[min(turn, len(takes_s) - 1)]
            return turn

        return run

    def clock(self) -> float:
        return self.now_s


def test_they_take_turns_and_the_first_round_does_not_count() -> None:
    course = Course()
    contestants = {name: course.contestant(name, 1) for name in "abc"}
    found = interleave(contestants, Rounds(2, warm_up=1), course.clock)
    assert "".join(course.ran) == "abcabcabc"
    assert found == {name: [1, 2] for name in "abc"}


def test_no_round_begins_when_the_time_is_up_but_one_counts() -> None:
    course = Course()
    contestants = {name: course.contestant(name, 10) for name in "ab"}
    found = interleave(contestants, Rounds(5, warm_up=1, budget_s=15), course.clock)
    assert found == {"a": [1], "b": [1]}


def test_a_very_slow_one_runs_once_and_that_counts() -> None:
    course = Course()
    contestants = {"a": course.contestant("a", 1), "slow": course.contestant("slow", 100)}
    found = interleave(contestants, Rounds(3, warm_up=1, budget_s=1_000, slow_s=50), course.clock)
    assert found == {"a": [1, 2, 3], "slow": [0]}


def test_one_that_fails_takes_part_no_longer() -> None:
    course = Course()
    good, runs = course.contestant("good", 1), 0

    def bad() -> int:
        nonlocal runs
        runs += 1
        if runs == 2:
            raise ValueError("no more\nat org.apache.spark")
        return runs

    def absent() -> int:
        raise NotHere("not installed")

    found = interleave({"bad": bad, "good": good, "absent": absent}, Rounds(3, warm_up=1), course.clock)
    assert found == {
        "bad": Missing("bad: ValueError: no more"),
        "good": [1, 2, 3],
        "absent": Missing("absent: not installed", is_failure=False),
    }
    assert runs == 2


def test_it_prints_the_next_measurement() -> None:
    course, reported = Course(), []
    interleave({"a": course.contestant("a", 1)}, Rounds(1, warm_up=1), course.clock, reported.append)
    assert reported == ["a, warming up", "a, round 1"]
