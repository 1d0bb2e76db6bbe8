"""A steady time: it never jumps, never goes back, and becomes that of the wall clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamgroups.steady_time import SteadyTime

_HOUR_NS = 3_600 * 10**9
_DURATIONS_NS = st.integers(0, 100 * _HOUR_NS)
_WALL_NS = st.integers(0, 2**62)


@given(_WALL_NS, st.lists(st.tuples(_DURATIONS_NS, _WALL_NS)))
def test_a_jump_of_the_wall_clock_changes_a_duration_by_a_tenth_at_most(
    start_ns: int, steps: list[tuple[int, int]]
) -> None:
    monotonic_ns, time = 7, SteadyTime(start_ns, 7)
    for elapsed_ns, wall_ns in steps:
        monotonic_ns += elapsed_ns
        before, time = time, time.after(wall_ns, monotonic_ns)
        assert abs(time.now_ns - before.now_ns - elapsed_ns) <= elapsed_ns / 10


@given(_WALL_NS, st.integers(-10 * _HOUR_NS, 10 * _HOUR_NS), st.lists(st.floats(0, 1), max_size=20))
def test_after_ten_times_a_jump_it_is_the_wall_clock(start_ns: int, jump_ns: int, moments: list[float]) -> None:
    time, end_ns = SteadyTime(start_ns, 0), 10 * abs(jump_ns) + 1_000
    for monotonic_ns in sorted([*(int(it * end_ns) for it in moments), end_ns]):
        wall_ns = start_ns + jump_ns + monotonic_ns
        time = time.after(wall_ns, monotonic_ns)
        assert min(start_ns, start_ns + jump_ns) <= time.now_ns - monotonic_ns <= max(start_ns, start_ns + jump_ns)
    # A tenth is rounded down at each moment.
    assert abs(time.now_ns - wall_ns) <= len(moments) + 1


def test_a_monotonic_clock_that_goes_back_moves_it_neither_back_nor_twice() -> None:
    time = SteadyTime(0, 100).after(0, 50)
    assert (time.now_ns, time.monotonic_ns) == (0, 100)
    assert time.after(10, 110).now_ns == 10
