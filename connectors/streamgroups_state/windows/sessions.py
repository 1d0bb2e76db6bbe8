"""Sessions of one partition: one part of the state, whose rows are partial sessions.

Created by ``streamgroups_state.window_operator``. While no session ends, a batch appends the sessions of its own records.
Otherwise all sessions are merged, and those that changed are emitted. A session in the state whose end the watermark has
reached was emitted. If it then becomes part of another session, its row is retracted. Source: SEMANTICS W4, W5, W7, S10;
Flink's merging windows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.event_time.panes import PaneKind
from streamgroups.event_time.violations import Why
from streamgroups.event_time.windows import Session
from streamgroups_state.aggregates import parts_of
from streamgroups_state.operator import BatchTime, Part, ReadPart, State
from streamgroups_state.windows.definition import WindowDefinition
from streamgroups_state.windows.merging import merge
from streamgroups_state.windows.panes import MAX_SEGMENTS, output_rows
from streamgroups_state.windows.window_time import BEFORE_ALL_MS, Numbers, WindowTime

_SESSIONS = "sessions"
#: No session of the state ends before this time.
_EARLIEST = "earliest_end_ms"
#: A batch with more records merges them in several steps, which limits the memory.
_MAX_RECORDS = 1_000_000


class SessionRun:
    """See :class:`streamgroups_state.operator.Run`.

    Args:
        definition: the definition of the windows.
        shape: their shape.
        state: the state before the batch.
        read: reads the rows of a part.
        time: the time of the batch.
    """

    def __init__(
        self, definition: WindowDefinition, shape: Session, state: State, read: ReadPart, time: BatchTime
    ) -> None:
        self._definition, self._shape, self._read = definition, shape, read
        self._time = WindowTime(definition, state.values, time)
        self._part: Part = state.parts.get(_SESSIONS, ())
        earliest_ms = state.values.get(_EARLIEST)
        self._earliest_ms = earliest_ms if isinstance(earliest_ms, int) else None
        #: No session that is not emitted ends before this time.
        self._next_end_ms = None if state.time is None else state.time.next_end_ms
        #: Records since the last merge, and the watermark and the closed time before each of them.
        self._fresh: list[tuple[pa.Table, Numbers, Numbers]] = []
        #: Emitted sessions of the state, after the first merge.
        self._emitted: pa.Table | None = None
        self._closed: list[pa.Table] = []

    # ---- records -----------------------------------------------------------------------------------------------------

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
        if sum(it[0].num_rows for it in self._fresh) >= _MAX_RECORDS:
            sessions = self._merged()
            ended = pc.less_equal(sessions["end"], self._time.closed_until_ms)
            self._closed.append(sessions.filter(ended))
            self._part = [sessions.filter(pc.invert(ended))]

    def _merged(self) -> pa.Table:
        """Merges all sessions with the records."""
        fresh = sum(it[0].num_rows for it in self._fresh)
        rows = self._read([*self._part, *(it[0] for it in self._fresh)])
        kept = rows.num_rows - fresh
        if self._emitted is None:
            self._emitted = rows.slice(0, kept).filter(pc.less_equal(rows["end"].slice(0, kept), self._time.before_ms))
        nothing = np.full(kept, BEFORE_ALL_MS)
        watermarks = np.concatenate([nothing, *(it[1] for it in self._fresh)])
        closed = np.concatenate([nothing, *(it[2] for it in self._fresh)])
        self._fresh = []
        return merge(self._definition, rows, watermarks, closed)

    # ---- sessions ----------------------------------------------------------------------------------------------------

    def finish(self) -> tuple[State, list[pa.Table]]:
        """See :meth:`Run.finish`."""
        if self._earliest_ms is None:
            return self._state(), self._time.dead
        # Without records and a later watermark, only the idle timeout can end a session.
        may_end = self._fresh or self._time.watermark_ms > self._time.before_ms
        watermark_ms = self._time.watermark_ms if may_end else BEFORE_ALL_MS
        ends_later = max(watermark_ms, self._time.expired_ms) < self._earliest_ms
        segments = len(self._part) + bool(self._fresh)
        if ends_later and self._emitted is None and segments <= MAX_SEGMENTS:
            if may_end:
                self._next_end_ms = self._earliest_ms
            self._append()
            return self._state(), self._time.dead
        sessions = pa.concat_tables([*self._closed, self._merged()])
        ends = sessions["end"].to_numpy()
        self._time.expire([int(end) for end in ends[ends <= self._time.expired_ms]])
        output = list(self._output(sessions))
        still_open = ends > self._time.closed_until_ms
        self._part = [sessions.filter(pa.array(still_open))]
        self._earliest_ms = int(ends[still_open].min()) if still_open.any() else None
        not_emitted = ends[ends > self._time.watermark_ms]
        self._next_end_ms = int(not_emitted.min()) if len(not_emitted) else None
        return self._state(), [rows for rows in output if rows.num_rows] + self._time.dead

    def _append(self) -> None:
        if self._fresh:
            rows = self._read([it[0] for it in self._fresh])
            # No session has ended, so no record is late.
            never = np.full(rows.num_rows, BEFORE_ALL_MS)
            self._part = [*self._part, merge(self._definition, rows, never, never)]

    def _state(self) -> State:
        if self._earliest_ms is None:
            return State({}, self._time.values, time=self._time.state_time(None))
        values = self._time.values | {_EARLIEST: self._earliest_ms}
        due_ms, time = self._time.due_ms(self._earliest_ms), self._time.state_time(self._next_end_ms)
        return State({_SESSIONS: self._part}, values, due_ms, time)

    def _output(self, sessions: pa.Table) -> Iterator[pa.Table]:
        assert self._emitted is not None
        is_new, changed, gone = _compare(self._definition, self._emitted, sessions)
        yield output_rows(self._definition, gone, PaneKind.WITHDRAWN)
        ends = sessions["end"].to_numpy()
        time = self._time
        kinds = {
            PaneKind.ON_TIME: (ends > time.before_ms) & (ends <= time.reached_ms),
            PaneKind.IDLE: (ends > max(time.before_ms, time.reached_ms)) & (ends <= time.watermark_ms),
            PaneKind.REFINEMENT: (ends <= time.before_ms) & (is_new | changed),
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
    wanted = [("row", "min"), ("row", "max"), ("late", "min"), ("late", "max")]
    grouped = rows.group_by(by, use_threads=False).aggregate(wanted)
    # Groups have no order, so a row identifies its group.
    first, last = grouped["row_min"].to_numpy(), grouped["row_max"].to_numpy()
    count, remains = sessions.num_rows, first < sessions.num_rows
    is_new, changed = np.zeros(count, bool), np.zeros(count, bool)
    is_new[first[remains]] = (first == last)[remains]
    changed[first[remains]] = (grouped["late_max"].to_numpy() > grouped["late_min"].to_numpy())[remains]
    gone = grouped.filter(pa.array(~remains))
    return is_new, changed, gone.select(by).append_column("late", pc.add(gone["late_max"], 1))
