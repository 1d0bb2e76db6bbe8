"""The operator of ``sg.dedup``, and one batch of it for one partition.

Created by ``streamgroups_spark.state.dedup``, and run by ``streamgroups_operators.task_states`` in tasks. Source: SEMANTICS X5, S10.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups_operators.dedup.decisions import Times, grouped, kept, times_of
from streamgroups_operators.dedup.ids import HIGH, LOW, SCHEMA, Ids, Numbers
from streamgroups_operators.dedup.seen_ids import IDS, SeenIds
from streamgroups_operators.event_times import event_times
from streamgroups_operators.operator import BEFORE_ALL, BatchTime, ReadPart, Run, State, time_in

#: The column with the timestamp of a record, in milliseconds since the epoch.
TIME = "id_time_ms"
#: The columns of the row of counts that a batch adds to its output. They are null in all other rows.
COUNTS = ("dedup_duplicates", "dedup_too_old", "dedup_filtered", "dedup_false_positives")
_NEWEST = "newest_ms"
#: The timestamp of a record without one.
_NO_TIMESTAMP_MS = -1


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

    def begin(self, state: State, read: ReadPart, time: BatchTime) -> Run:
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

    def __init__(self, operator: DedupOperator, state: State, read: ReadPart, time: BatchTime) -> None:
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
        # A batch without records proves that this one was committed (``streamgroups.state.dedup_lookup``).
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
