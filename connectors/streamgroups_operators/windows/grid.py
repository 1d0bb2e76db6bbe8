"""The grid of tumbling and hopping windows: the windows of a time span, as the start of the first and of the last one.

Used by ``windows.lifetimes``, ``windows.shared_partials`` and ``windows.edges``. Windows start at multiples of their hop since the
epoch, so the windows that overlap a time span have neighbouring starts. Source: SEMANTICS W4, W19.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from streamgroups.event_time.windows import Hopping
from streamgroups_operators.operator import Numbers

#: One time or start in milliseconds since the epoch, or many.
Times = TypeVar("Times", int, Numbers)


def first_after(shape: Hopping, time_ms: Times) -> Times:
    """Returns the start of the earliest window that ends after a time.

    >>> shape = Hopping(20, 10)
    >>> first_after(shape, 9), first_after(shape, 10), first_after(shape, 30)
    (-10, 0, 20)
    """
    return (time_ms - shape.size_ms) // shape.hop_ms * shape.hop_ms + shape.hop_ms


def last_ended(shape: Hopping, time_ms: Times) -> Times:
    """Returns the start of the latest window that ends at or before a time.

    >>> last_ended(Hopping(20, 10), 29), last_ended(Hopping(20, 10), 30)
    (0, 10)
    """
    return (time_ms - shape.size_ms) // shape.hop_ms * shape.hop_ms


def last_before(shape: Hopping, time_ms: Times) -> Times:
    """Returns the start of the latest window that starts before a time.

    >>> last_before(Hopping(20, 10), 10), last_before(Hopping(20, 10), 11)
    (0, 10)
    """
    return (time_ms - 1) // shape.hop_ms * shape.hop_ms


def counts_of(first: Numbers, last: Numbers, step: int) -> Numbers:
    """Returns the number of values of each row of :func:`spread`.

    >>> counts_of(np.array([0, 30, 50]), np.array([20, 30, 40]), 10).tolist()
    [3, 1, 0]
    """
    return np.asarray(np.maximum((last - first) // step + 1, 0))


def spread(first: Numbers, last: Numbers, step: int) -> tuple[Numbers, Numbers]:
    """Returns each value from ``first`` to ``last`` of each row, with the number of its row.

    Args:
        first: the first value of each row.
        last: the last value of each row. A row whose last value is below its first one has no values.
        step: the distance of values.

    >>> spread(np.array([0, 30, 50]), np.array([20, 30, 40]), 10)
    (array([0, 0, 0, 1]), array([ 0, 10, 20, 30]))
    """
    counts = counts_of(first, last, step)
    rows = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, first[rows] + within * step
