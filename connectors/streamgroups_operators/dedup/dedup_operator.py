"""The operator of ``sg.dedup``, and one batch of it for one partition.

Created by ``streamgroups_spark.state.dedup``, and run by ``streamgroups_operators.task_states`` in tasks. It decides in the order of
offsets which records are duplicates. The time of a partition at a record is the latest timestamp up to this record. It defines
the watermark before which records are too old, and which ids have expired. It does not depend on batches. Source: SEMANTICS X5,
S10.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups.state.id_filters import bucket_length_ms
from streamgroups_operators.dedup.ids import HIGH, LOW, SCHEMA, Ids
from streamgroups_operators.dedup.seen_ids import IDS, SeenIds
from streamgroups_operators.event_times import event_times
from streamgroups_operators.operator import BEFORE_ALL, BatchTime, Numbers, PartReader, Run, State, time_in

#: The column with the timestamp of a record, in milliseconds since the epoch.
TIME = "id_time_ms"
#: The columns of the row of counts that a batch adds to its output. They are null in all other rows.
COUNTS = ("dedup_duplicates", "dedup_too_old", "dedup_filtered", "dedup_false_positives")
_NEWEST = "newest_ms"
#: The timestamp of a record without one.
_NO_TIMESTAMP_MS = -1
#: If the ids have more records than this on average, the expiries of each id are found alone: a pass over all would remove few records.
_RECORDS_OF_ID = 16


@dataclass(frozen=True, slots=True)
class DedupOperator:
    """See :class:`streamgroups_operators.operator.StatefulOperator`.

    Args:
        name: the name of the operator in its query.
        form: the columns of the id with their types, and the column of the time, as text.
        horizon_ms: how long an id is seen, in milliseconds of the time of the partition.
        output: the columns of the records, and those of the counts (:data:`COUNTS`).
        false_positive_rate: the share of unseen ids for which the ids of a bucket are read.
        keeps_on_reset: whether ids of records after the target of a reset stay seen.
    """

    name: str
    form: str
    horizon_ms: int
    output: pa.Schema
    false_positive_rate: float = 1e-5
    keeps_on_reset: bool = False

    @property
    def schema(self) -> pa.Schema:
        """See :attr:`StatefulOperator.schema`."""
        return SCHEMA

    def begin(self, state: State, read: PartReader, time: BatchTime) -> Run:
        """See :meth:`StatefulOperator.begin`."""
        return DedupRun(self, state, read, time)


class DedupRun:
    """See :class:`streamgroups_operators.operator.Run`.

    Args:
        operator: the operator.
        state: the state before the batch.
        read: reads the rows of a part.
        time: the time of the batch.
    """

    def __init__(self, operator: DedupOperator, state: State, read: PartReader, time: BatchTime) -> None:
        self._operator, self._state, self._read, self._time = operator, state, read, time
        self._newest_ms = time_in(state.values, _NEWEST)
        self._records: list[pa.Table] = []

    def add_watermarks(self, watermarks: ProducerWatermarks) -> None:
        """See :meth:`Run.add_watermarks`. Ids expire by the timestamps of records only."""

    def add(self, records: pa.Table) -> None:
        """See :meth:`Run.add`."""
        self._records.append(records)

    def finish(self) -> tuple[State, list[pa.Table]]:
        """See :meth:`Run.finish`."""
        if not self._records:
            return replace(self._state, due_ms=None), []
        times = self._times()
        has_id = np.concatenate([it[HIGH].is_valid().to_numpy() for it in self._records])
        judged = np.flatnonzero(has_id & ~times.too_old)
        ids = self._ids()[judged]
        seen = SeenIds(self._state.parts, self._read, self._operator.false_positive_rate)
        seen.drop_until(int(times.watermarks_ms[0]))
        groups = grouped(ids)
        found = seen.find(ids[groups.firsts])
        is_kept = kept(groups, found.ends_ms, times, judged)
        newest_ms = int(times.reached_ms[-1])
        self._add(seen, ids[is_kept], times.bucket_ends_ms[judged][is_kept], newest_ms)
        returned = ~has_id
        returned[judged[is_kept]] = True
        too_old = int((has_id & times.too_old).sum())
        counts = (len(returned) - int(returned.sum()) - too_old, too_old, found.filtered, found.false_positives)
        parts = seen.parts()
        values = {_NEWEST: newest_ms} if newest_ms > BEFORE_ALL else {}
        # A batch without records proves that this one was committed (``streamgroups.state.state_lookup``).
        due_ms = self._time.now_ms if self._operator.keeps_on_reset else None
        state = State(parts, values, due_ms, apart=frozenset(it for it in parts if it.endswith(IDS)))
        return state, [*self._returned(returned), pa.table({name: [n] for name, n in zip(COUNTS, counts, strict=True)})]

    def _times(self) -> Times:
        times_ms = np.concatenate([_longs(event_times(it[TIME]), _NO_TIMESTAMP_MS) for it in self._records])
        # A record without a timestamp has the time of its partition.
        times_ms = np.where(times_ms == _NO_TIMESTAMP_MS, BEFORE_ALL, times_ms)
        return times_of(times_ms, self._newest_ms, self._time.clock_ms, self._operator.horizon_ms)

    def _ids(self) -> Ids:
        columns = (np.concatenate([_longs(it[name], 0) for it in self._records]) for name in (HIGH, LOW))
        return Ids(*(it.view(np.uint64) for it in columns))

    def _add(self, seen: SeenIds, ids: Ids, ends_ms: Numbers, newest_ms: int) -> None:
        seen.drop_until(newest_ms - self._operator.horizon_ms)
        for end_ms in np.unique(ends_ms).tolist():
            if end_ms > newest_ms - self._operator.horizon_ms:
                seen.add(end_ms, ids[ends_ms == end_ms])
        seen.close_until(newest_ms)

    def _returned(self, returned: Numbers) -> list[pa.Table]:
        names = [it for it in self._operator.output.names if it not in COUNTS]
        ends = np.cumsum([it.num_rows for it in self._records])
        chosen = np.split(returned, ends[:-1])
        return [it.select(names).filter(pa.array(of_table)) for it, of_table in zip(self._records, chosen, strict=True)]


def _longs(column: pa.ChunkedArray, null: int) -> Numbers:
    return np.asarray(pc.fill_null(column, null).to_numpy())


# ---- decisions -------------------------------------------------------------------------------------------------------


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
    found = np.zeros(len(groups.order), bool)
    left = np.flatnonzero(seen_ends_ms[groups.numbers] <= watermarks_ms)
    while len(left):
        # A watermark never decreases, so records before one that was kept stay duplicates.
        starts, sizes = _runs(groups.numbers[left])
        found[left[starts]] = True
        left = left[np.repeat(ends_ms[left[starts]], sizes) <= watermarks_ms[left]]
        if len(starts) * _RECORDS_OF_ID < len(left):
            break
    starts, sizes = _runs(groups.numbers[left])
    found[left[_chains(watermarks_ms[left], ends_ms[left], starts, starts + sizes)]] = True
    result = np.zeros(len(found), bool)
    result[groups.order] = found
    return result


def _runs(numbers: Numbers) -> tuple[Numbers, Numbers]:
    """The first index of each run of equal numbers, and the length of each run."""
    is_first = np.ones(len(numbers), bool)
    is_first[1:] = numbers[1:] != numbers[:-1]
    starts = np.flatnonzero(is_first)
    return starts, np.diff(starts, append=len(numbers))


def _chains(watermarks_ms: Numbers, ends_ms: Numbers, starts: Numbers, stops: Numbers) -> list[int]:
    """The records that are kept of each id, from its first one on: each is the first after the end of the bucket before it.

    An id can expire with each of its records, so the next one is found by a binary search.

    >>> _chains(np.array([0, 5, 9, 10, 30]), np.array([10, 15, 19, 20, 40]), np.array([0]), np.array([5]))
    [0, 3, 4]
    """
    watermarks, ends, chosen = watermarks_ms.tolist(), ends_ms.tolist(), []
    for at, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        while at < stop:
            chosen.append(at)
            at = bisect_left(watermarks, ends[at], at + 1, stop)
    return chosen
