"""Ids as two columns of 64 bits, and sets of them.

Used by all modules of this folder. An id is a hash of 128 bits of the columns that identify a record. Source: SEMANTICS
X5.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamgroups_operators.operator import Numbers

#: The columns of an id, and of a state.
HIGH, LOW = "id_high", "id_low"
SCHEMA = pa.schema([(HIGH, pa.int64()), (LOW, pa.int64())])


@dataclass(frozen=True, slots=True)
class Ids:
    """A sequence of ids.

    Args:
        high: the first 64 bits of each id.
        low: the last 64 bits of each id.
    """

    high: Numbers
    low: Numbers

    @classmethod
    def of(cls, table: pa.Table) -> Ids:
        """The ids of the rows of a table."""
        return cls(table[HIGH].to_numpy().view(np.uint64), table[LOW].to_numpy().view(np.uint64))

    def to_table(self) -> pa.Table:
        """The ids as rows of a state."""
        columns = [pa.array(it.view(np.int64)) for it in (self.high, self.low)]
        return pa.table(columns, schema=SCHEMA)

    def __len__(self) -> int:
        return len(self.high)

    def __getitem__(self, chosen: Numbers) -> Ids:
        """The ids of some rows: their numbers, or a mask."""
        return Ids(self.high[chosen], self.low[chosen])


def in_order(parts: Iterable[Ids]) -> Ids:
    """Returns the ids of all parts, ordered by their first 64 bits.

    >>> ids = Ids(np.array([7, 3], np.uint64), np.array([1, 2], np.uint64))
    >>> in_order([ids, ids]).high.tolist()
    [3, 3, 7, 7]
    """
    parts = list(parts)
    high = np.concatenate([it.high for it in parts])
    low = np.concatenate([it.low for it in parts])
    order = np.argsort(high, kind="stable")
    return Ids(high[order], low[order])


def contained(ids: Ids, ordered: Ids) -> Numbers:
    """Returns whether each id is in a set.

    Args:
        ids: the ids.
        ordered: the set, ordered by :func:`in_order`.

    >>> ids = Ids(np.array([3, 3, 9], np.uint64), np.array([1, 2, 3], np.uint64))
    >>> contained(ids, Ids(np.array([3, 3, 5], np.uint64), np.array([8, 2, 3], np.uint64))).tolist()
    [False, True, False]
    """
    found = np.zeros(len(ids), bool)
    at = np.searchsorted(ordered.high, ids.high)
    left = np.arange(len(ids))
    while len(left):
        at, left = at[at < len(ordered)], left[at < len(ordered)]
        same = ordered.high[at] == ids.high[left]
        at, left = at[same], left[same]
        equal = ordered.low[at] == ids.low[left]
        found[left[equal]] = True
        # Another id with the same first 64 bits can follow.
        at, left = at[~equal] + 1, left[~equal]
    return found
