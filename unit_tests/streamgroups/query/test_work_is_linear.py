"""The work of a query grows at most linearly with its partitions, and that of a member not with the other members.

Counts the calls of functions, so the result does not depend on the machine. ``benchmarks.simulated_scale`` measures the same in
seconds, with larger sizes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from benchmarks.growth import Growth
from benchmarks.simulated_scale import of_members, of_partitions

#: A quadratic growth has an exponent of 2. A sort adds a few percent to 1.
MAX_EXPONENT = 1.1


def calls(action: Callable[[], object]) -> float:
    """The number of calls of an action, of functions in Python and in C, such as the hash of a partition."""
    count = 0

    def profile(_frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def _too_steep(found: list[Growth], exponent: float) -> list[Growth]:
    assert all(min(it.values) > 0 for it in found)
    return [it for it in found if it.exponent > exponent]


def test_the_counter_notices_quadratic_work() -> None:
    def quadratic(size: int) -> float:
        return calls(lambda: [hash(it) for _ in range(size) for it in range(size)])

    assert _too_steep([Growth("a", "calls", "n", (50, 100), (quadratic(50), quadratic(100)))], MAX_EXPONENT)


def test_the_work_of_a_query_is_linear_in_its_partitions() -> None:
    assert _too_steep(of_partitions((100, 400), calls), MAX_EXPONENT) == []


def test_the_work_of_a_member_grows_less_than_the_group() -> None:
    assert _too_steep(of_members((4, 16), 64, calls), 0.9) == []
