"""Tumbling and hopping windows of one partition: one part of the state for each open window.

Created by ``streamgroups_state.window_operator``. A batch appends the partial aggregates of its own records to each
window. Windows are merged when they are emitted or have many segments. Source: SEMANTICS W4-W7, S10.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.event_time.panes import PaneKind
from streamgroups.event_time.violations import Why
from streamgroups.event_time.windows import Hopping
from streamgroups.state.manifest import Segment
from streamgroups_state.aggregates import add_up, in_windows, parts_of, results
from streamgroups_state.operator import BatchTime, Part, ReadPart, State
from streamgroups_state.windows.definition import WindowDefinition
from streamgroups_state.windows.window_time import WindowTime

#: A window with more segments is merged when it next changes. Each segment costs one read, each merge one write.
MAX_SEGMENTS = 8
#: The number of rows from which the records of a batch are merged before its end. One merge of many records is cheaper
#: than a merge of each of Spark's Arrow batches, and this limits their memory.
_MERGE_ROWS = 100_000
#: The number of late records of a pane: its revision.
LATE = ("late", "sum")


class PaneRun:
    """See :class:`streamgroups_state.operator.Run`.

    Args:
        definition: the definition of the windows.
        shape: their shape.
        state: the state before the batch.
        read: reads the rows of a part.
        time: the time of the batch.
    """

    def __init__(
        self, definition: WindowDefinition, shape: Hopping, state: State, read: ReadPart, time: BatchTime
    ) -> None:
        self._definition, self._shape, self._state, self._read = definition, shape, state, read
        self._time = WindowTime(definition, state.values, time)
        self._fresh: list[pa.Table] = []
        self._fresh_rows, self._merge_rows = 0, _MERGE_ROWS

    def add(self, records: pa.Table) -> None:
        """See :meth:`Run.add`."""
        timed = self._time.take(records)
        count = timed.records.num_rows
        if not count:
            return
        which, starts = in_windows(self._shape, timed.times_ms)
        ends = starts + self._shape.size_ms
        closed = ends <= timed.closed_ms[which]
        # The newest window of each record comes first, and closes last.
        if closed[:count].any():
            self._time.drop(timed.where(closed[:count]), Why.LATE)
        if closed.all():
            return
        late = (ends <= timed.watermarks_ms[which]).astype(np.int64)
        chosen = timed.records
        if closed.any() or len(which) > count:
            chosen, starts, late = chosen.take(pa.array(which[~closed])), starts[~closed], late[~closed]
        columns = {name: chosen[name] for name in self._definition.key_names}
        columns |= {"start": pa.array(starts), "late": pa.array(late)}
        self._append(pa.table(columns | parts_of(self._definition.aggregates, chosen)))

    def _append(self, rows: pa.Table) -> None:
        self._fresh.append(rows)
        self._fresh_rows += rows.num_rows
        if self._fresh_rows >= self._merge_rows:
            merged = self._merged(pa.concat_tables(self._fresh))
            self._fresh, self._fresh_rows = [merged], merged.num_rows
            # With many keys a merge removes few rows, so the next one waits for as many new ones.
            self._merge_rows = max(_MERGE_ROWS, 2 * merged.num_rows)

    def _merged(self, rows: pa.Table, also: tuple[tuple[str, str], ...] = (LATE,)) -> pa.Table:
        return add_up(self._definition.aggregates, rows, [*self._definition.key_names, "start"], also)

    def finish(self) -> tuple[State, list[pa.Table]]:
        """See :meth:`Run.finish`."""
        fresh = _by_start(self._merged(pa.concat_tables(self._fresh))) if self._fresh else {}
        starts = sorted({*map(int, self._state.parts), *fresh})
        self._time.expire(start + self._shape.size_ms for start in starts)
        parts: dict[str, Part] = {}
        output: list[pa.Table] = []
        for start in starts:
            part: list[Segment | pa.Table] = [*self._state.parts.get(str(start), ())]
            new = fresh.get(start)
            if new is not None:
                part.append(new)
            kind = self._kind(start + self._shape.size_ms, changed=new is not None)
            if kind is not None:
                merged = self._whole(start, part, 0 if new is None else new.num_rows)
                emitted = merged.filter(merged["changed"]) if kind is PaneKind.REFINEMENT else merged
                output.append(self._rows(emitted, kind))
                part = [merged] if len(part) > MAX_SEGMENTS else part
            elif len(part) > MAX_SEGMENTS:
                part = [self._whole(start, part)]
            if start + self._shape.size_ms > self._time.closed_until_ms:
                parts[str(start)] = part
        ends = [int(start) + self._shape.size_ms for start in parts]
        next_end_ms = min((end_ms for end_ms in ends if end_ms > self._time.watermark_ms), default=None)
        due_ms = self._time.due_ms(min(ends, default=None))
        state = State(parts, self._time.values, due_ms, self._time.state_time(next_end_ms))
        return state, [rows for rows in output if rows.num_rows] + self._time.dead

    def _kind(self, end_ms: int, *, changed: bool) -> PaneKind | None:
        if end_ms <= self._time.before_ms:
            return PaneKind.REFINEMENT if changed else None
        if end_ms <= self._time.reached_ms:
            return PaneKind.ON_TIME
        return PaneKind.IDLE if end_ms <= self._time.watermark_ms else None

    def _whole(self, start: int, part: Part, new: int = 0) -> pa.Table:
        """The panes of a window. ``changed`` marks those of the last ``new`` rows, which are the records of this batch."""
        rows = self._read(part)
        changed = np.arange(rows.num_rows) >= rows.num_rows - new
        columns = {"start": pa.array(np.full(rows.num_rows, start)), "changed": pa.array(changed)}
        for name, column in columns.items():
            rows = rows.append_column(name, column)
        return self._merged(rows, (LATE, ("changed", "max")))

    def _rows(self, panes: pa.Table, kind: PaneKind) -> pa.Table:
        ended = panes.append_column("end", pc.add(panes["start"], self._shape.size_ms))
        return output_rows(self._definition, ended, kind)


def output_rows(definition: WindowDefinition, panes: pa.Table, kind: PaneKind) -> pa.Table:
    """Returns the output rows of panes.

    Args:
        definition: the definition of the windows.
        panes: the keys, ``start``, ``end``, ``late`` and the partial aggregates.
        kind: the kind of the rows. A retraction has no results.
    """
    columns = {name: panes[name] for name in (*definition.key_names, "start", "end")}
    if kind is not PaneKind.WITHDRAWN:
        columns |= results(definition.aggregates, definition.output, panes)
    columns["pane"] = pa.repeat(kind.value, panes.num_rows)
    columns["revision"] = panes["late"]
    return pa.table(columns)


def _by_start(table: pa.Table) -> dict[int, pa.Table]:
    starts = np.unique(table["start"].to_numpy())
    if len(starts) == 1:
        return {int(starts[0]): table}
    ordered = table.sort_by("start")
    found, firsts = np.unique(ordered["start"].to_numpy(), return_index=True)
    ends = [*firsts[1:], ordered.num_rows]
    return {int(s): ordered.slice(a, b - a) for s, a, b in zip(found, firsts, ends, strict=True)}
