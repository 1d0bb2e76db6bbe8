"""A Bloom filter of ids, as rows of a state.

Used by ``dedup.seen_ids``. A filter that does not match an id proves that the id is not in its segment. The ids are
hashes already, and a mixing step derives the place of each bit from the one before it. Double hashing, which only adds the
second half, has 200 times the rate in filters of ten ids: equal first places there lead to equal later ones. Source:
SEMANTICS X5; Dillinger and Manolios, "Bloom Filters in Probabilistic Verification" (2004); Vigna's SplitMix64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamgroups.state.id_filters import FilterShape, shape_of
from streamgroups_operators.dedup.ids import Ids
from streamgroups_operators.operator import Numbers

_HALF, _SHIFT, _FACTOR = np.uint64(32), np.uint64(29), np.uint64(0xBF58476D1CE4E5B9)


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A filter.

    Args:
        shape: its size.
        octets: its bits, eight in each element.
    """

    shape: FilterShape
    octets: Numbers

    @classmethod
    def of(cls, ids: Ids, false_positive_rate: float) -> BloomFilter:
        """The filter of a segment.

        Args:
            ids: the ids of the segment.
            false_positive_rate: see :func:`streamgroups.state.id_filters.shape_of`.
        """
        shape = shape_of(len(ids), false_positive_rate)
        bits = np.zeros(shape.bits, bool)
        steps = _Steps(shape, ids)
        for _ in range(shape.hashes):
            bits[steps.next()] = True
        return cls(shape, np.packbits(bits, bitorder="little"))

    def matches(self, ids: Ids) -> Numbers:
        """Returns whether each id can be in the segment.

        >>> ids = Ids(np.arange(1, 4, dtype=np.uint64) << 60, np.arange(4, 7, dtype=np.uint64))
        >>> BloomFilter.of(ids[:2], 1e-9).matches(ids).tolist()
        [True, True, False]
        """
        left, steps = np.arange(len(ids)), _Steps(self.shape, ids)
        for _ in range(self.shape.hashes):
            at = steps.next()
            has_bit = (self.octets[at >> 3] >> (at & 7).astype(np.uint8)) & 1 == 1
            # Half of the bits are set, so each step halves the unseen ids.
            left = left[has_bit]
            steps.keep(has_bit)
        found = np.zeros(len(ids), bool)
        found[left] = True
        return found

    def to_table(self) -> pa.Table:
        """The filter as rows of a state: the number of hashes, and then its bits."""
        head = np.array([self.shape.hashes, 0], np.uint64)
        words = np.concatenate([head, self.octets.view(np.uint64)]).reshape(-1, 2)
        return Ids(words[:, 0].copy(), words[:, 1].copy()).to_table()

    @classmethod
    def from_table(cls, table: pa.Table) -> BloomFilter:
        """The filter of rows of a state.

        >>> ids = Ids(np.array([5], np.uint64), np.array([6], np.uint64))
        >>> BloomFilter.from_table(BloomFilter.of(ids, 0.01).to_table()).shape
        FilterShape(bits=128, hashes=11)
        """
        rows = Ids.of(table)
        words = np.stack([rows.high[1:], rows.low[1:]], axis=1).reshape(-1)
        return cls(FilterShape(len(words) * 64, int(rows.high[0])), words.view(np.uint8))


class _Steps:
    """The positions of the bits of ids, one for each id at a time."""

    def __init__(self, shape: FilterShape, ids: Ids) -> None:
        self._bits = np.uint64(shape.bits)
        self._place, self._step = ids.high, ids.low

    def next(self) -> Numbers:
        # The first 32 bits of a place, as a fraction of the filter. Products exceed 64 bits, which is intended.
        at = ((self._place >> _HALF) * self._bits) >> _HALF
        self._place = (self._place ^ (self._place >> _SHIFT)) * _FACTOR + self._step
        return np.asarray(at.astype(np.int64))

    def keep(self, chosen: Numbers) -> None:
        self._place, self._step = self._place[chosen], self._step[chosen]
