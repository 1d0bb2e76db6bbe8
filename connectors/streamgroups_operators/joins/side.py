"""The records of one side of a join, for one partition: those of the batch, and the stored ones.

Used by ``joins.run``. A state has one part for each slice of event time, and a batch appends its records to their slices.
So a batch reads the slices in reach of its records, and a slice is dropped without a read when the watermark of the other
partition has passed it. A match of a stored record is appended as its offset, to a part of its own. Source: SEMANTICS
W18, S10.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups.json_values import MAX_TIME_MS
from streamgroups_operators.event_times import event_times
from streamgroups_operators.joins.join_definition import JoinOperator
from streamgroups_operators.keys import rows_of_keys
from streamgroups_operators.large_tables import taken
from streamgroups_operators.merging import first_within_limit
from streamgroups_operators.operator import (
    BEFORE_ALL,
    Numbers,
    Part,
    PartReader,
    State,
    number_in,
    time_in,
)
from streamgroups_operators.producer_time import ProducerTime

_NEWEST, _DONE, _PRODUCER = "newest_us", "done_us", "producer_us"
#: The number of results of windows so far.
_RESULTS = "results"
#: After the start of a slice: the part with the offsets of its matched records.
_MATCHED = " matched"


class Side:
    """One side of a join.

    Args:
        operator: the join.
        state: the state before the batch.
        read: reads the rows of a part.
        emits_unmatched: whether records without a match are emitted.
    """

    def __init__(self, operator: JoinOperator, state: State, read: PartReader, *, emits_unmatched: bool) -> None:
        self._operator, self._state, self._read, self._emits_unmatched = operator, state, read, emits_unmatched
        self._newest_us = time_in(state.values, _NEWEST)
        self._producer = ProducerTime(time_in(state.values, _PRODUCER), units_per_ms=1_000)
        self._results = number_in(state.values, _RESULTS) or 0
        #: Records before this time can have no more matches: those without one have been emitted.
        self._done_us = time_in(state.values, _DONE)
        #: The records of the batch that can match.
        self.fresh = operator.schema.empty_table()
        self._fresh_matched = np.zeros(0, bool)
        #: Records that can never match: without event time, or without a key.
        self.unmatchable = operator.schema.empty_table()
        #: Records before the watermark of their partition, with it.
        self.late = self.fresh.append_column("watermark", pa.array([], pa.int64()))
        #: The offsets of stored records that have a match in the batch, by the start of their slice.
        self._matched: dict[int, list[Numbers]] = {}

    @property
    def watermark_us(self) -> int:
        """The watermark of the partition: the later one of its records and its producer."""
        return max(int(self._generated(np.array(self._newest_us))), self._producer.reached)

    # ---- records -----------------------------------------------------------------------------------------------------

    def add_watermarks(self, watermarks: ProducerWatermarks) -> None:
        """Adds watermarks of the producer of the partition, before :meth:`take`."""
        self._producer.add(watermarks)

    def _generated(self, newest_us: Numbers) -> Numbers:
        """The watermarks of newest event times."""
        delay_us = self._operator.delay_us
        return np.full_like(newest_us, BEFORE_ALL) if delay_us is None else newest_us - delay_us

    def take(self, records: pa.Table) -> None:
        """Advances time by all records of the batch, and divides them. Lateness is decided record by record."""
        schema, names = self._operator.schema, self._operator.key_names
        unmatched = pa.array(np.zeros(records.num_rows, bool))
        rows = records.append_column("matched", unmatched).select(schema.names).cast(schema)
        times_us = event_times(rows["time"], per_ms=1_000)
        rows = rows.set_column(rows.schema.get_field_index("time"), "time", times_us)
        has_time = rows["time"].is_valid()
        timed = _where(rows, has_time.to_numpy())
        times = timed["time"].to_numpy()
        newest = np.maximum.accumulate(np.concatenate([[self._newest_us], times]))
        self._newest_us = int(newest[-1])
        watermarks = np.maximum(self._generated(newest[:-1]), self._producer.before(timed["offset"].to_numpy()))
        if self._operator.behind is not None:
            timed = self._numbered(timed)
        late = times < watermarks
        self.late = timed.filter(pa.array(late)).append_column("watermark", pa.array(watermarks[late]))
        timed = _where(timed, ~late)
        has_key = np.ones(timed.num_rows, bool)
        for name in names:
            has_key &= timed[name].is_valid().to_numpy()
        self.fresh = _where(timed, has_key)
        self._fresh_matched = np.zeros(self.fresh.num_rows, bool)
        self.unmatchable = pa.concat_tables([rows.filter(pc.invert(has_time)), timed.filter(pa.array(~has_key))])

    def stored_near(self, others: pa.Table) -> dict[int, pa.Table]:
        """Returns the stored records that can match, by slice.

        Args:
            others: records of the other side.
        """
        if not others.num_rows:
            return {}
        times = np.sort(others["time"].to_numpy())
        keys = others.select(self._operator.key_names)
        within, length = self._operator.within_us, self._operator.slice_us
        near = []
        for start in self._starts:
            first = np.searchsorted(times, start - within, "left")
            if first == np.searchsorted(times, start + length + within, "left"):
                continue
            near.append((start, self._state.parts[str(start)]))
        # One segment at a time, because most of its rows are of other keys.
        rows = self._read.each([it for _, part in near for it in part])
        return {start: pa.concat_tables([rows_of_keys(next(rows), keys) for _ in part]) for start, part in near}

    def _numbered(self, rows: pa.Table) -> pa.Table:
        """Returns rows with a number in place of their offset, which is the same for all results of a batch."""
        numbers = pa.array(np.arange(self._results, self._results + rows.num_rows))
        self._results += rows.num_rows
        return rows.set_column(rows.schema.get_field_index("offset"), "offset", numbers)

    def match_fresh(self, rows: Numbers) -> None:
        """Marks records of the batch as matched, by their row numbers."""
        self._fresh_matched[rows] = True

    def match_stored(self, start: int, offsets: Numbers) -> None:
        """Marks stored records of a slice as matched, by their offsets."""
        if self._emits_unmatched and len(offsets):
            self._matched.setdefault(start, []).append(offsets)

    # ---- the end of a batch ------------------------------------------------------------------------------------------

    def finish(self, other_watermark_us: int) -> tuple[State, pa.Table]:
        """Returns the new state, and the records that have and get no match.

        Args:
            other_watermark_us: the watermark of the other partition after the batch.
        """
        before_us = self._done_us
        # A record of the other side that is not late has at least this watermark as its time.
        self._done_us = max(before_us, other_watermark_us - self._operator.within_us)
        unmatched = [self._operator.schema.empty_table()]
        if self._emits_unmatched:
            unmatched.append(self.unmatchable)
            unmatched += [self._unmatched(start, before_us) for start in self._starts if start < self._done_us]
            unmatched.append(self.fresh.filter(pa.array(~self._fresh_matched & self._is_done(self.fresh))))
        return State(self._parts(), self._values), pa.concat_tables(unmatched)

    def _unmatched(self, start: int, before_us: int) -> pa.Table:
        """The stored records of a slice that were not done before the batch, and have no match."""
        rows = self._read.whole(self._state.parts[str(start)])
        rows = rows.filter(pc.invert(rows["matched"]))
        times = rows["time"].to_numpy()
        rows = rows.filter(pa.array((before_us <= times) & (times < self._done_us)))
        part = self._state.parts.get(f"{start}{_MATCHED}", ())
        matched = [self._read.whole(part)["offset"].to_numpy(), *self._matched.get(start, ())]
        return rows.filter(pa.array(~np.isin(rows["offset"].to_numpy(), np.concatenate(matched))))

    def _is_done(self, rows: pa.Table) -> Numbers:
        return np.asarray(rows["time"].to_numpy() < self._done_us)

    @property
    def _starts(self) -> list[int]:
        """The starts of the stored slices."""
        return sorted(int(name) for name in self._state.parts if not name.endswith(_MATCHED))

    def _parts(self) -> dict[str, Part]:
        length = self._operator.slice_us
        open_starts = {start for start in self._starts if start + length > self._done_us}
        added: dict[str, pa.Table] = {}
        for start, offsets in self._matched.items():
            if start in open_starts:
                added[f"{start}{_MATCHED}"] = self._rows_of(np.unique(np.concatenate(offsets)))
        flags = pa.array(self._fresh_matched)
        kept = self.fresh.set_column(self.fresh.schema.get_field_index("matched"), "matched", flags)
        kept = _where(kept, ~self._is_done(kept))
        starts = kept["time"].to_numpy() // length * length
        if (np.diff(starts) < 0).any():
            order = np.argsort(starts, kind="stable")
            kept, starts = taken(kept, order), starts[order]
        slices = np.unique(starts, return_index=True, return_counts=True)
        for start, first, count in zip(*(it.tolist() for it in slices), strict=True):
            open_starts.add(start)
            added[str(start)] = kept.slice(first, count)
        parts: dict[str, Part] = {}
        for start in sorted(open_starts):
            for name in (str(start), f"{start}{_MATCHED}"):
                part = [*self._state.parts.get(name, ()), *([added[name]] if name in added else [])]
                if part:
                    parts[name] = self._merged(part) if name in added else part
        return parts

    def _rows_of(self, offsets: Numbers) -> pa.Table:
        schema = self._operator.schema
        columns = {"offset": pa.array(offsets)}
        return pa.table([columns.get(it.name, pa.nulls(len(offsets), it.type)) for it in schema], schema=schema)

    def _merged(self, part: Part) -> Part:
        first = first_within_limit(part)
        return part if first == len(part) - 1 else [*part[:first], self._read.whole(part[first:])]

    @property
    def _values(self) -> dict[str, int | str | None]:
        found = {_NEWEST: self._newest_us, _DONE: self._done_us, _PRODUCER: self._producer.reached}
        if self._operator.behind is not None:
            found[_RESULTS] = self._results
        # A duration can have been subtracted from the time before all others. Event times are later than this limit.
        return {name: value for name, value in found.items() if value > -1_000 * MAX_TIME_MS}


def _where(rows: pa.Table, mask: Numbers) -> pa.Table:
    """The rows of a mask. A filter copies them, and most batches keep all."""
    return rows if mask.all() else rows.filter(pa.array(mask))
