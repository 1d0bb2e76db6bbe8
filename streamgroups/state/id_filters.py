"""The size of the Bloom filters of ``sg.dedup``.

Called by ``streamgroups_operators.dedup``. A state has one filter for each of its segments of ids. An unseen id is compared
with all of them, so the rate of each filter is a part of the rate that the user sets. Source: SEMANTICS X5; Bloom,
"Space/time trade-offs in hash coding with allowable errors" (1970).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: The number of buckets into which the horizon is divided.
BUCKETS = 8
#: The number of segments of a bucket that still grows. If it has more, the newest ones are merged.
OPEN_SEGMENTS = 7
#: The number of filters for which the rate of the user is valid: one for each closed bucket, also for the one that ends
#: within the horizon, and those of the growing one.
FILTERS = BUCKETS + 1 + OPEN_SEGMENTS
#: A filter has whole blocks of bits: one row of a segment.
BLOCK_BITS = 128
#: Positions in a filter have 32 bits. A filter of more ids has a higher rate.
_MAX_BITS = (1 << 32) - BLOCK_BITS


@dataclass(frozen=True, slots=True)
class FilterShape:
    """The size of a filter.

    Args:
        bits: its bits, a multiple of :data:`BLOCK_BITS`.
        hashes: the number of bits that each id sets.
    """

    bits: int
    hashes: int


def shape_of(ids: int, false_positive_rate: float) -> FilterShape:
    """Returns the size of one filter of a state.

    Args:
        ids: the number of ids in the filter.
        false_positive_rate: the share of unseen ids that match at least one filter of the state.

    >>> shape_of(1_000_000, 1e-5)
    FilterShape(bits=29733504, hashes=21)
    >>> shape_of(1, 0.5)
    FilterShape(bits=128, hashes=5)
    """
    rate = false_positive_rate / FILTERS
    bits_of_id = -math.log(rate) / math.log(2) ** 2
    blocks = max(1, math.ceil(ids * bits_of_id / BLOCK_BITS))
    return FilterShape(min(blocks * BLOCK_BITS, _MAX_BITS), max(1, round(bits_of_id * math.log(2))))


def bucket_length_ms(horizon_ms: int) -> int:
    """Returns the length of the buckets of a horizon, in milliseconds.

    >>> bucket_length_ms(600_000), bucket_length_ms(1)
    (75000, 1)
    """
    return max(1, -(-horizon_ms // BUCKETS))
