"""Decides which records of a batch are duplicates, in the order of their offsets.

Used by ``dedup.run``. The time of a partition at a record is the latest timestamp up to this record. It defines the
watermark before which records are too old, and which ids have expired. It does not depend on batches. Source: SEMANTICS
X5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamgroups.state.id_filters import bucket_length_ms
from streamgroups_operators.dedup.ids import Ids, Numbers
from streamgroups_operators.operator import BEFORE_ALL


@dataclass(frozen=True, slots=True)
class Times:
    """The times of the records of a batch, in milliseconds since the epoch.

    Args:
        reached_ms: the time of the partition at each record.
        watermarks_ms: the watermark at each record.
        bucket_ends_ms: the end of the bucket of each record.
        too_old: whether each record is older than its watermark.
    """

    reached_ms: Numbers
    watermarks_ms: Numbers
    bucket_ends_ms: Numbers
    too_old: Numbers


def times_of(times_ms: Numbers, newest_ms: int, clock_ms: int, horizon_ms: int) -> Times:
    """Returns the times of the records of a batch.

    Args:
        times_ms: the timestamp of each record; :data:`BEFORE_ALL` for a record without one, which is never too old.
        newest_ms: the time of the partition before the batch; :data:`BEFORE_ALL` before its first timestamp.
        clock_ms: the clock when the batch was planned. The time of the partition does not exceed it: a producer with a
            wrong clock would make the records of all others too old.
        horizon_ms: how long an id is seen.

    >>> times_of(np.array([100, 260, 150]), newest_ms=0, clock_ms=1_000, horizon_ms=100).too_old
    array([False, False,  True])
    """
    reached_ms = np.maximum.accumulate(np.concatenate([[newest_ms], np.minimum(times_ms, clock_ms)]))[1:]
    watermarks_ms = reached_ms - horizon_ms
    bucket_ms = bucket_length_ms(horizon_ms)
    too_old = (times_ms < watermarks_ms) & (times_ms != BEFORE_ALL)
    return Times(reached_ms, watermarks_ms, (reached_ms // bucket_ms + 1) * bucket_ms, too_old)


@dataclass(frozen=True, slots=True)
class Groups:
    """The records of a batch by id.

    Args:
        order: the numbers of the records, ordered by id and then by offset.
        numbers: the number of the id of each record in this order.
        firsts: the number of the first record of each id.
    """

    order: Numbers
    numbers: Numbers
    firsts: Numbers


def grouped(ids: Ids) -> Groups:
    """Groups records by their ids.

    >>> groups = grouped(Ids(np.array([7, 3, 7], np.uint64), np.array([1, 1, 1], np.uint64)))
    >>> groups.order.tolist(), groups.numbers.tolist(), groups.firsts.tolist()
    ([1, 0, 2], [0, 1, 1], [1, 0])
    """
    order = np.argsort(ids.high, kind="stable")
    high, low = ids.high[order], ids.low[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = high[1:] != high[:-1]
    if (low[1:] != low[:-1])[~is_first[1:]].any():
        # Different ids with the same first 64 bits, which are very rare.
        order = np.lexsort((ids.low, ids.high))
        high, low = ids.high[order], ids.low[order]
        is_first[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    return Groups(order, np.cumsum(is_first) - 1, order[is_first])


def kept(groups: Groups, seen_ends_ms: Numbers, times: Times, records: Numbers) -> Numbers:
    """Returns which records are no duplicates.

    A record is a duplicate if the last record of its id that was kept is in a bucket that ends after the watermark.

    Args:
        groups: the records by id.
        seen_ends_ms: for each id the end of the bucket in which it was seen before the batch.
        times: the times of all records of the batch.
        records: the numbers of the grouped records in the batch.
    """
    watermarks_ms, ends_ms = times.watermarks_ms[records][groups.order], times.bucket_ends_ms[records][groups.order]
    seen_ends_ms = seen_ends_ms.copy()
    found = np.zeros(len(groups.order), bool)
    while True:
        # A watermark never decreases, so records before one that was kept stay duplicates.
        expired = np.flatnonzero(seen_ends_ms[groups.numbers] <= watermarks_ms)
        if not len(expired):
            break
        numbers, first = np.unique(groups.numbers[expired], return_index=True)
        chosen = expired[first]
        found[chosen] = True
        seen_ends_ms[numbers] = ends_ms[chosen]
    result = np.zeros(len(found), bool)
    result[groups.order] = found
    return result
