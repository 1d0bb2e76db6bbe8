"""Finds the pairs of records that match: equal keys, and event times that are close.

Called by ``joins.run``. Source: SEMANTICS W18; a sort-merge join.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from streamgroups_operators.keys import key_numbers

Numbers: TypeAlias = np.ndarray[Any, Any]


def pairs(by: Sequence[str], left: pa.Table, right: pa.Table, within: int) -> tuple[Numbers, Numbers]:
    """Returns the row numbers of all pairs of rows that match.

    Args:
        by: the key columns. None of them is null.
        left: rows with ``time``.
        right: rows with ``time``, in the same unit.
        within: the greatest distance of both times.

    Returns:
        The row numbers in ``left``, and those in ``right``, of the same length.

    >>> left = pa.table({"key": ["a", "b"], "time": [10, 10]})
    >>> right = pa.table({"key": ["a", "b", "a"], "time": [12, 19, 5]})
    >>> pairs(["key"], left, right, 5)
    (array([0, 0]), array([2, 0]))
    """
    nothing = np.empty(0, np.int64)
    if not left.num_rows or not right.num_rows:
        return nothing, nothing
    left_keys, right_keys = key_numbers(by, left, right)
    times, their_times = left["time"].to_numpy(), right["time"].to_numpy()
    # One number for key and time, in this order. Ranks of times are small, so the product does not overflow.
    known, ranks = np.unique(their_times, return_inverse=True)
    width = len(known) + 1
    places = right_keys * width + ranks
    order = np.argsort(places, kind="stable")
    places = places[order]
    firsts = np.searchsorted(places, left_keys * width + np.searchsorted(known, times - within, "left"), "left")
    ends = np.searchsorted(places, left_keys * width + np.searchsorted(known, times + within, "right"), "left")
    counts = ends - firsts
    chosen = np.repeat(np.arange(len(left_keys)), counts)
    steps = np.arange(len(chosen)) - np.repeat(np.cumsum(counts) - counts, counts)
    return chosen, order[np.repeat(firsts, counts) + steps]
