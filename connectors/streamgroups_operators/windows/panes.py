"""Tumbling and hopping windows of one partition: one part of the state for each open window.

Created by ``streamgroups_operators.window_operator``. A batch appends the partial aggregates of its own records to each
window. Windows are merged when they are emitted or have many segments. A flush moves their rows to a second part of each
window, so that the next flush emits only the panes with new records. Source: SEMANTICS W4-W7, W17, S10.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups.event_time.violations import Why
from streamgroups.event_time.windows import Hopping, PaneKind
from streamgroups.state.manifest import Segment
from streamgroups_operators.aggregates import add_up, arguments_of, in_windows, parts_of, results, steps
from streamgroups_operators.large_tables import slices, taken, taken_slice
from streamgroups_operators.operator import BatchTime, Numbers, Part, PartReader, State, number_in, row_count
from streamgroups_operators.windows.fresh_rows import FreshRows
from streamgroups_operators.windows.shared_partials import RESERVED, Carried
from streamgroups_operators.windows.window_definition import LATE, WindowDefinition
from streamgroups_operators.windows.window_time import Timed, WindowTime

#: A window with more segments is merged when it next changes. Each segment costs one read, each merge one write.
MAX_SEGMENTS = 8
#: After the name of a part: the part with the results of the last flush. The other one has the records since then.
FLUSHED = " flushed"
#: The end of the emitted windows, in the values of a state, if windows that are due wait for the next batch.
_EMITTED = "emitted_ms"


class PaneRun:
    """See :class:`streamgroups_operators.operator.Run`.

    Args:
        definition: the definition of the windows.
        shape: their shape.
        state: the state before the batch.
        read: reads the rows of a part.
        time: the time of the batch.
    """

    #: Columns of panes that are no aggregates, and Arrow's function to combine them.
    _also: tuple[tuple[str, str], ...] = (LATE,)

    def __init__(
        self, definition: WindowDefinition, shape: Hopping, state: State, read: PartReader, time: BatchTime
    ) -> None:
        self._definition, self._shape, self._state, self._read = definition, shape, state, read
        self._time = WindowTime(definition, state.values, time)
        self._carried = Carried(definition, shape, state, read)
        emitted_ms, self._now_ms = number_in(state.values, _EMITTED), time.now_ms
        #: Windows that end at or before these times were emitted before the batch, and after it.
        self._before_ms = self._time.before_ms if emitted_ms is None else emitted_ms
        self._until_ms = self._before_ms
        self._fresh = FreshRows()

    def add_watermarks(self, watermarks: ProducerWatermarks) -> None:
        """See :meth:`Run.add_watermarks`."""
        self._time.add_watermarks(watermarks)

    def add(self, records: pa.Table) -> None:
        """See :meth:`Run.add`."""
        timed = self._time.take(records)
        for it in steps(self._shape, timed.records.num_rows):
            self._add_step(timed.part(it))

    def _add_step(self, timed: Timed) -> None:
        count = timed.records.num_rows
        which, starts = in_windows(self._shape, timed.times_ms)
        ends = starts + self._shape.size_ms
        closed = ends <= timed.closed_ms[which]
        # The newest window of each record comes first, and closes last.
        if closed[:count].any():
            self._time.drop(timed.where(closed[:count]), Why.LATE)
        if closed.all():
            return
        late = (ends <= timed.watermarks_ms[which]).astype(np.int64)
        # Each record is copied once for each of its windows, and ``record`` has all columns of the source.
        needed = timed.records.select(["time", *self._definition.key_names, *arguments_of(self._definition.aggregates)])
        if len(which) == count and not closed.any():
            self._add_to_windows(needed, starts, late)
            return
        which, starts, late = which[~closed], starts[~closed], late[~closed]
        for it in slices((needed, which)):
            self._add_to_windows(taken_slice(needed, which[it]), starts[it], late[it])

    def _add_to_windows(self, records: pa.Table, starts: Numbers, late: Numbers) -> None:
        columns = {name: records[name] for name in self._definition.key_names}
        columns |= {"start": pa.array(starts), "late": pa.array(late)}
        self._append(pa.table(columns | parts_of(self._definition.aggregates, records)))

    def _append(self, rows: pa.Table) -> None:
        self._fresh.add(rows, self._merged)

    def _merged(self, rows: pa.Table, *also: tuple[str, str]) -> pa.Table:
        by = [*self._definition.key_names, "start"]
        return add_up(self._definition.aggregates, rows, by, (*self._also, *also))

    def finish(self) -> tuple[State, list[pa.Table]]:
        """See :meth:`Run.finish`."""
        fresh = by_start(self._merged(pa.concat_tables(self._fresh.tables))) if self._fresh.tables else {}
        starts = sorted({*(_start(part) for part in self._state.parts if part not in RESERVED), *fresh})
        size_ms, time = self._shape.size_ms, self._time
        time.expire([*(start + size_ms for start in starts), *self._carried.end_until(time.expired_ms)])
        updated = [start for start in fresh if start + size_ms <= self._before_ms]
        due = self._carried.due(self._before_ms, time.watermark_ms, time.closed_until_ms, updated)
        self._until_ms, carried = due.until_ms, by_start(due.of(starts))
        parts: dict[str, Part] = {}
        output: list[pa.Table] = self._carried_panes(due.without(starts))
        open_ends: list[int] = []
        for start in starts:
            end_ms = start + size_ms
            flushed: Part = self._state.parts.get(f"{start}{FLUSHED}", ())
            part: list[Segment | pa.Table] = [*self._state.parts.get(str(start), ())]
            new = [fresh[start]] if start in fresh else []
            part += new
            kind = self._kind(end_ms, changed=bool(new), is_flushed=not part)
            if kind is PaneKind.FLUSH:
                merged = self._whole(start, [*flushed, *part], row_count(part))
                output.append(self._rows(merged.filter(merged["changed"]), kind))
                flushed, part = [flushed_rows(merged, merged["changed"])], []
            elif kind is not None:
                beside = [carried[start]] if start in carried else []
                merged = self._whole(start, [*flushed, *beside, *part], row_count(new))
                output += self._panes(merged, kind)
                if not beside and (flushed or len(part) > MAX_SEGMENTS):
                    flushed, part = (), [merged]
            if end_ms > min(time.closed_until_ms, self._until_ms):
                part = part if len(part) <= MAX_SEGMENTS else [self._whole(start, part)]
                parts |= {name: it for name, it in ((str(start), part), (f"{start}{FLUSHED}", flushed)) if it}
                open_ends.append(end_ms)
        return self._state_after(parts, open_ends), [rows for rows in output if rows.num_rows] + time.dead

    def _state_after(self, parts: dict[str, Part], open_ends: list[int]) -> State:
        time, until_ms = self._time, self._until_ms
        carried = self._carried.parts(time.closed_until_ms, until_ms)
        next_ends = [end_ms for end_ms in open_ends if end_ms > until_ms]
        next_end_ms = min([*next_ends, *self._carried.next_ends_ms], default=None)
        values = time.values | self._carried.values
        due_ms = time.due_ms(min([*open_ends, *self._carried.open_ends_ms], default=None))
        if until_ms < time.watermark_ms:
            values[_EMITTED], due_ms = until_ms, self._now_ms
        return State(
            parts | carried, values, due_ms, time.state_time(next_end_ms), released_ms=time.released_ms(until_ms)
        )

    def _kind(self, end_ms: int, *, changed: bool, is_flushed: bool) -> PaneKind | None:
        if end_ms <= self._before_ms:
            return PaneKind.UPDATE if changed else None
        if end_ms <= self._until_ms:
            return PaneKind.ON_TIME if end_ms <= self._time.reached_ms else PaneKind.IDLE
        return PaneKind.FLUSH if self._time.is_flush and not is_flushed else None

    def _whole(self, start: int, part: Part, new: int = 0) -> pa.Table:
        """The panes of a window. ``changed`` marks those of the last ``new`` rows."""
        rows = self._read.whole(part)
        changed = np.arange(rows.num_rows) >= rows.num_rows - new
        columns = {"start": pa.array(np.full(rows.num_rows, start)), "changed": pa.array(changed)}
        for name, column in columns.items():
            rows = rows.append_column(name, column)
        return self._merged(rows, ("changed", "max"))

    def _carried_panes(self, rows: pa.Table) -> list[pa.Table]:
        """The panes of windows that count carried rows only, all at once: these can be thousands of windows."""
        if not rows.num_rows:
            return []
        merged = self._merged(rows)
        is_on_time = pc.less_equal(pc.add(merged["start"], self._shape.size_ms), self._time.reached_ms)
        kinds = {PaneKind.ON_TIME: is_on_time, PaneKind.IDLE: pc.invert(is_on_time)}
        return [self._rows(merged.filter(chosen), kind) for kind, chosen in kinds.items()]

    def _panes(self, merged: pa.Table, kind: PaneKind) -> list[pa.Table]:
        """The output rows of a window."""
        return [self._rows(merged.filter(merged["changed"]) if kind is PaneKind.UPDATE else merged, kind)]

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
    if kind is not PaneKind.RETRACTION:
        columns |= results(definition.aggregates, definition.output, panes)
    columns["pane"] = pa.repeat(kind.value, panes.num_rows)
    columns["revision"] = panes["late"]
    return pa.table(columns)


def by_start(table: pa.Table) -> dict[int, pa.Table]:
    """Returns the rows of each window, by its start."""
    if not table.num_rows:
        return {}
    starts = np.unique(table["start"].to_numpy())
    if len(starts) == 1:
        return {int(starts[0]): table}
    ordered = taken(table, np.argsort(table["start"].to_numpy(), kind="stable"))
    found, firsts = np.unique(ordered["start"].to_numpy(), return_index=True)
    ends = [*firsts[1:], ordered.num_rows]
    return {int(s): ordered.slice(a, b - a) for s, a, b in zip(found, firsts, ends, strict=True)}


def flushed_rows(panes: pa.Table, emitted: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Returns panes after a flush. The next pane of each emitted one has a higher revision.

    Args:
        panes: the panes, with ``late``.
        emitted: whether the flush has emitted each of them.
    """
    late = pc.add(panes["late"], emitted.cast(pa.int64()))
    return panes.set_column(panes.schema.get_field_index("late"), "late", late)


def _start(part: str) -> int:
    return int(part.removesuffix(FLUSHED))
