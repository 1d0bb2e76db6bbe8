"""Fewer faults of a failed campaign, by delta debugging. Used by ``integration_tests.campaign``.

Source: Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002: the algorithm ``ddmin``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def shrunk(items: Sequence[_T], fails: Callable[[Sequence[_T]], bool], *, max_runs: int) -> list[_T]:
    """Removes items of a failing list as long as it still fails.

    A campaign is not deterministic: a list that fails can pass in one run, and is then kept longer than necessary. The result has
    failed at least once.

    Args:
        items: a list that fails.
        fails: runs a shorter list, and returns whether it fails.
        max_runs: the maximum number of runs.

    Returns:
        A part of the list, in its order. Without the limit of runs, it does not fail without any single item of it.

    >>> shrunk(range(8), lambda it: {2, 5} <= set(it), max_runs=100)
    [2, 5]
    """
    found, n_parts, n_runs = list(items), 2, 0
    while len(found) > 1:
        size = -(-len(found) // n_parts)
        parts = [found[i : i + size] for i in range(0, len(found), size)]
        rests = [found[:i] + found[i + size :] for i in range(0, len(found), size)]
        # With two parts, the rest of one is the other.
        for candidate in parts if len(parts) == 2 else [*parts, *rests]:
            if n_runs == max_runs:
                return found
            n_runs += 1
            if fails(candidate):
                n_parts = 2 if len(candidate) <= size else max(n_parts - 1, 2)
                found = candidate
                break
        else:
            if n_parts >= len(found):
                return found
            n_parts = min(2 * n_parts, len(found))
    return found
