"""Sessions of one partition: one part of the state, whose rows are partial sessions.

Created by ``streamgroups_operators.window_operator``. While no session ends, a batch appends the sessions of its own records.
Otherwise all sessions are merged, and those that changed are emitted. A session in the state whose end the watermark has
reached was emitted. If it then becomes part of another session, its row is retracted. So is the row of a flushed session.
Source: SEMANTICS W4, W5, W7, W17, S10; Flink's merging windows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups.event_time.violations import Why
from streamgroups.event_time.windows import PaneKind, Session
from streamgroups_operators import large_tables
from streamgroups_operators.aggregates import divided, parts_of
from streamgroups_operators.operator import (
    BEFORE_ALL,
    BatchTime,
    Numbers,
    Part,
    PartReader,
    State,
    number_in,
    row_count,
    time_in,
)
from streamgroups_operators.windows.pane_merging import FRESH, merge
from streamgroups_operators.windows.panes import FLUSHED, MAX_SEGMENTS, flushed_rows, output_rows
from streamgroups_operators.windows.window_definition import WindowDefinition
from streamgroups_operators.windows.window_time import WindowTime

_SESSIONS = "sessions"
#: No session of the state ends before this time.
_EARLIEST = "earliest_end_ms"
#: No session of the state starts before this time.
_START = "earliest_start_ms"
#: A batch with more records, or with more bytes, merges them in several steps, which limits the memory.
_MAX_RECORDS = 1_000_000


class SessionRun:
    """See :class:`streamgroups_operators.operator.Run`.

    Args:
        definition: the definition of the windows.
        shape: their shape.
        state: the state before the batch.
        read: reads the rows of a part.
        time: the time of the batch.
    """

    def __init__(
        self, definition: WindowDefinition, shape: Session, state: State, read: PartReader, time: BatchTime
    ) -> None:
        self._definition, self._shape, self._read = definition, shape, read
        self._time = WindowTime(definition, state.values, time)
        self._part: Part = state.parts.get(_SESSIONS, ())
        #: Open sessions that were flushed and have no records since then.
        self._flushed: Part = state.parts.get(f"{_SESSIONS}{FLUSHED}", ())
        self._earliest_ms = number_in(state.values, _EARLIEST)
        #: No open session starts before this time; before all times if the state does not contain it.
        self._start_ms = None if self._earliest_ms is None else time_in(state.values, _START)
        #: No session that is not emitted ends before this time.
        group = None if state.time is None else state.time.group
        self._next_end_ms = None if group is None else group.next_end_ms
        #: Records since the last merge, and the watermark and the closed time before each of them.
        self._fresh: list[tuple[pa.Table, Numbers, Numbers]] = []
        self._fresh_bytes = 0
        #: Emitted and flushed sessions of the state, after the first merge.
        self._emitted: pa.Table | None = None
        self._closed: list[pa.Table] = []

    # ---- records -----------------------------------------------------------------------------------------------------

    def add_watermarks(self, watermarks: ProducerWatermarks) -> None:
        """See :meth:`Run.add_watermarks`."""
        self._time.add_watermarks(watermarks)

    def add(self, records: pa.Table) -> None:
        """See :meth:`Run.add`."""
        timed = self._time.take(records)
        closed = timed.times_ms + self._shape.gap_ms <= timed.closed_ms
        if closed.any():
            self._time.drop(timed.where(closed), Why.LATE)
            timed = timed.where(~closed)
        count = timed.records.num_rows
        if not count:
            return
        columns = {name: timed.records[name] for name in self._definition.key_names}
        columns |= {
            "start": pa.array(timed.times_ms),
            "end": pa.array(timed.times_ms + self._shape.gap_ms),
            "late": pa.array(np.zeros(count, np.int64)),
        }
        rows = pa.table(columns | parts_of(self._definition.aggregates, timed.records))
        self._fresh.append((rows, timed.watermarks_ms, timed.closed_ms))
        first_ms = int(timed.times_ms.min()) + self._shape.gap_ms
        self._earliest_ms = first_ms if self._earliest_ms is None else min(first_ms, self._earliest_ms)
        start_ms = first_ms - self._shape.gap_ms
        self._start_ms = start_ms if self._start_ms is None else min(start_ms, self._start_ms)
        self._fresh_bytes += rows.nbytes
        if sum(it[0].num_rows for it in self._fresh) >= _MAX_RECORDS or self._fresh_bytes > large_tables.MAX_BYTES:
            sessions = self._merged()
            ended = pc.less_equal(sessions["end"], self._time.closed_until_ms)
            self._closed.append(sessions.filter(ended))
            self._keep(sessions.filter(pc.invert(ended)))

    def _merged(self) -> pa.Table:
        """Merges all sessions with the records. ``fresh`` is 0 for the sessions that are as they were flushed."""
        fresh, flushed = sum(it[0].num_rows for it in self._fresh), row_count(self._flushed)
        rows = self._read.whole([*self._flushed, *self._part, *(it[0] for it in self._fresh)])
        kept = rows.num_rows - fresh
        if self._emitted is None:
            was_emitted = rows["end"].slice(0, kept).to_numpy() <= self._time.before_ms
            was_emitted[:flushed] = True
            self._emitted = rows.slice(0, kept).filter(pa.array(was_emitted))
        nothing = np.full(kept, BEFORE_ALL)
        watermarks = np.concatenate([nothing, *(it[1] for it in self._fresh)])
        closed = np.concatenate([nothing, *(it[2] for it in self._fresh)])
        self._fresh, self._fresh_bytes = [], 0
        is_fresh = (np.arange(rows.num_rows) >= flushed).astype(np.int64)
        return merge(self._definition, rows.append_column(FRESH, pa.array(is_fresh)), watermarks, closed)

    def _keep(self, sessions: pa.Table) -> None:
        """Sets the sessions of the state. An emitted session is no longer one that was only flushed."""
        is_flushed = (sessions[FRESH].to_numpy() == 0) & (sessions["end"].to_numpy() > self._time.watermark_ms)
        parts = (sessions.filter(pa.array(mask)) for mask in (is_flushed, ~is_flushed))
        self._flushed, self._part = ([part] if part.num_rows else [] for part in parts)

    # ---- sessions ----------------------------------------------------------------------------------------------------

    def finish(self) -> tuple[State, list[pa.Table]]:
        """See :meth:`Run.finish`."""
        self._time.expire(())
        if self._earliest_ms is None:
            return self._state(), self._time.dead
        # Without records and a later watermark, only the idle timeout can end a session.
        may_end = self._fresh or self._time.watermark_ms > self._time.before_ms
        if self._only_appends(may_end=bool(may_end)):
            if may_end:
                self._next_end_ms = self._earliest_ms
            self._append()
            return self._state(), self._time.dead
        sessions = pa.concat_tables([*self._closed, self._merged()])
        ends = sessions["end"].to_numpy()
        self._time.expire([int(end) for end in ends[ends <= self._time.expired_ms]])
        to_flush = self._to_flush(sessions)
        output = list(self._output(sessions, to_flush))
        sessions = flushed_rows(sessions, pa.array(to_flush))
        is_fresh = np.where(to_flush, 0, sessions[FRESH].to_numpy())
        sessions = sessions.set_column(sessions.schema.get_field_index(FRESH), FRESH, pa.array(is_fresh))
        still_open = ends > self._time.closed_until_ms
        self._keep(sessions.filter(pa.array(still_open)))
        self._earliest_ms = int(ends[still_open].min()) if still_open.any() else None
        self._start_ms = int(sessions["start"].to_numpy()[still_open].min()) if still_open.any() else None
        not_emitted = ends[ends > self._time.watermark_ms]
        self._next_end_ms = int(not_emitted.min()) if len(not_emitted) else None
        return self._state(), [rows for rows in output if rows.num_rows] + self._time.dead

    def _only_appends(self, *, may_end: bool) -> bool:
        """Whether the batch emits nothing, so that it appends the sessions of its records to the state."""
        if self._time.is_flush or (self._flushed and self._fresh):
            return False
        assert self._earliest_ms is not None
        watermark_ms = self._time.watermark_ms if may_end else BEFORE_ALL
        ends_later = max(watermark_ms, self._time.expired_ms) < self._earliest_ms
        segments = len(self._part) + bool(self._fresh)
        return ends_later and self._emitted is None and segments <= MAX_SEGMENTS

    def _to_flush(self, sessions: pa.Table) -> Numbers:
        """Returns which sessions a flush emits: the open ones with records since the last flush."""
        if not self._time.is_flush:
            return np.zeros(sessions.num_rows, bool)
        chosen: Numbers = (sessions["end"].to_numpy() > self._time.watermark_ms) & (sessions[FRESH].to_numpy() > 0)
        return chosen

    def _append(self) -> None:
        if self._fresh:
            rows = self._read.whole([it[0] for it in self._fresh])
            # No session has ended, so no record is late.
            never = np.full(rows.num_rows, BEFORE_ALL)
            fresh = rows.append_column(FRESH, pa.array(np.ones(rows.num_rows, np.int64)))
            self._part = [*self._part, merge(self._definition, fresh, never, never)]

    def _state(self) -> State:
        if self._earliest_ms is None:
            released_ms = self._time.released_ms(self._time.watermark_ms)
            return State({}, self._time.values, time=self._time.state_time(None), released_ms=released_ms)
        assert self._start_ms is not None
        values = self._time.values | {_EARLIEST: self._earliest_ms}
        if self._start_ms != BEFORE_ALL:
            values[_START] = self._start_ms
        released_ms = self._time.released_ms(self._time.watermark_ms, self._start_ms)
        due_ms, time = self._time.due_ms(self._earliest_ms), self._time.state_time(self._next_end_ms)
        parts = {_SESSIONS: self._part, f"{_SESSIONS}{FLUSHED}": self._flushed}
        return State(
            {name: part for name, part in parts.items() if part}, values, due_ms, time, released_ms=released_ms
        )

    def _output(self, sessions: pa.Table, to_flush: Numbers) -> Iterator[pa.Table]:
        assert self._emitted is not None
        is_new, changed, gone = _compare(self._definition, self._emitted, sessions)
        yield output_rows(self._definition, gone, PaneKind.RETRACTION)
        ends = sessions["end"].to_numpy()
        time = self._time
        kinds = {
            PaneKind.ON_TIME: (ends > time.before_ms) & (ends <= time.reached_ms),
            PaneKind.IDLE: (ends > max(time.before_ms, time.reached_ms)) & (ends <= time.watermark_ms),
            PaneKind.UPDATE: (ends <= time.before_ms) & (is_new | changed),
            PaneKind.FLUSH: to_flush,
        }
        for kind, chosen in kinds.items():
            yield output_rows(self._definition, sessions.filter(pa.array(chosen)), kind)


def _compare(definition: WindowDefinition, emitted: pa.Table, sessions: pa.Table) -> tuple[Numbers, Numbers, pa.Table]:
    """Compares sessions with those that were emitted before the batch.

    Returns:
        Which sessions were not emitted with the same start and end, which of the others have more late records, and the
        retractions of emitted sessions that no longer exist.
    """
    by = [*definition.key_names, "start", "end"]
    rows = pa.concat_tables([sessions.select([*by, "late"]), emitted.select([*by, "late"])])
    rows = rows.append_column("row", pa.array(np.arange(rows.num_rows)))
    required = [("row", "min"), ("row", "max"), ("late", "min"), ("late", "max")]
    grouped = pa.concat_tables(it.group_by(by, use_threads=False).aggregate(required) for it in divided(rows, by))
    # Groups have no order, so a row identifies its group.
    first, last = grouped["row_min"].to_numpy(), grouped["row_max"].to_numpy()
    count, remains = sessions.num_rows, first < sessions.num_rows
    is_new, changed = np.zeros(count, bool), np.zeros(count, bool)
    is_new[first[remains]] = (first == last)[remains]
    changed[first[remains]] = (grouped["late_max"].to_numpy() > grouped["late_min"].to_numpy())[remains]
    gone = grouped.filter(pa.array(~remains))
    return is_new, changed, gone.select(by).append_column("late", pc.add(gone["late_max"], 1))
