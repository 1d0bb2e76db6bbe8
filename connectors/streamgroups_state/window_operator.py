"""Tumbling and hopping windows as an operator with state: one part for each open window.

Created by ``streamgroups_spark.state.windows`` and run by ``task_states``. Whether a record is late is decided record by
record, against the newest event time before it in its partition. So the result does not depend on how batches cut the
records. A batch appends the partial aggregates of its own records to each window, and windows are merged when they are
emitted or have many segments. Source: SEMANTICS W4, W5, W7, S10.

For a record at time ``t``, a window ``[start, end)`` that contains it, and the watermark ``w`` before the record:

==================================  ============================================================================
``end`` is                          the record
==================================  ============================================================================
after ``w``                         is counted, and the window is emitted when the watermark reaches its end
not after ``w``, within lateness    is counted, and the batch emits an update of its pane
before ``w`` minus the lateness     is not counted in this window. If its newest window is such, it is a dead
                                    letter
==================================  ============================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.event_time.aggregates import PythonAggregate, SqlAggregate
from streamgroups.event_time.panes import PaneKind
from streamgroups.event_time.violations import Why
from streamgroups.event_time.windows import Hopping
from streamgroups.state.manifest import Segment
from streamgroups_state.aggregates import add_up, in_windows, parts_of, results
from streamgroups_state.operator import BatchTime, Part, ReadPart, Run, State

#: A window with more segments is merged when it next changes. Each segment costs one read, each merge one write.
_MAX_SEGMENTS = 8
_NEWEST = "newest_ms"
#: The number of late records of a pane: its revision.
_LATE = ("late", "sum")


@dataclass(frozen=True, slots=True)
class WindowOperator:
    """See :class:`streamgroups_state.operator.StatefulOperator`.

    The records have the columns ``time`` (milliseconds since the epoch), ``k0``, ``k1`` and so on, the arguments ``a0``,
    ``a1`` and so on, and ``record`` with dead letters.

    Args:
        name: the name of the operator in its query.
        shape: the windows.
        delay_ms: the watermark is the newest event time minus this delay.
        lateness_ms: how long a window accepts records after the watermark has reached its end.
        keys: the number of key columns.
        aggregates: the aggregates.
        schema: the columns of the state: the keys, ``late`` and the partial aggregates.
        output: the columns of the output.
        dead_letters: whether records that no window counts are emitted.
    """

    name: str
    shape: Hopping
    delay_ms: int
    lateness_ms: int
    keys: int
    aggregates: tuple[SqlAggregate | PythonAggregate, ...]
    schema: pa.Schema
    output: pa.Schema
    dead_letters: bool = False

    @property
    def form(self) -> str:
        """See :attr:`StatefulOperator.form`."""
        aggregates = (
            f"{'python' if isinstance(a, PythonAggregate) else a.function.value}({a.argument or '*'})"
            for a in self.aggregates
        )
        types = ", ".join(str(self.schema.field(key).type) for key in self.key_names)
        return (
            f"{self.shape} of {', '.join(aggregates)} by ({types}), watermark delay {self.delay_ms} ms, "
            f"allowed lateness {self.lateness_ms} ms"
        )

    @property
    def key_names(self) -> list[str]:
        """The key columns."""
        return [f"k{i}" for i in range(self.keys)]

    def begin(self, state: State, read: ReadPart, time: BatchTime) -> Run:
        """See :meth:`StatefulOperator.begin`."""
        return _WindowRun(self, state, read)


class _WindowRun:
    def __init__(self, operator: WindowOperator, state: State, read: ReadPart) -> None:
        self._operator, self._state, self._read = operator, state, read
        newest_ms = state.values.get(_NEWEST)
        self._first_ms = self._newest_ms = newest_ms if isinstance(newest_ms, int) else None
        self._fresh: list[pa.Table] = []
        self._dead: list[pa.Table] = []

    # ---- records -----------------------------------------------------------------------------------------------------

    def add(self, records: pa.Table) -> None:
        """See :meth:`Run.add`."""
        unreadable = pc.is_null(records["time"])
        if pc.any(unreadable).as_py():
            self._give_up(records.filter(unreadable), Why.UNREADABLE, None)
            records = records.filter(pc.invert(unreadable))
        if not records.num_rows:
            return
        operator = self._operator
        times = records["time"].to_numpy()
        watermarks = self._watermarks(times)
        which, starts = in_windows(operator.shape, times)
        ends, at = starts + operator.shape.size_ms, watermarks[which]
        closed = ends + operator.lateness_ms <= at
        # The newest window of each record comes first, and closes last.
        missed = closed[: len(times)]
        if missed.any():
            self._give_up(records.filter(pa.array(missed)), Why.LATE, watermarks[missed], starts[: len(times)][missed])
        if closed.all():
            return
        chosen = records.take(pa.array(which[~closed]))
        columns = {name: chosen[name] for name in operator.key_names}
        columns |= {"start": pa.array(starts[~closed]), "late": pa.array((ends <= at)[~closed].astype(np.int64))}
        self._fresh.append(self._merged(pa.table(columns | parts_of(operator.aggregates, chosen))))

    def _watermarks(self, times: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The watermark before each record. The first record of a partition has none, so that it is never late."""
        before = np.iinfo(np.int64).min // 2 if self._newest_ms is None else self._newest_ms
        newest = np.maximum.accumulate(np.concatenate([[before], times]))
        self._newest_ms = int(newest[-1])
        return np.asarray(newest[:-1] - self._operator.delay_ms)

    def _merged(self, rows: pa.Table, also: tuple[tuple[str, str], ...] = (_LATE,)) -> pa.Table:
        return add_up(self._operator.aggregates, rows, [*self._operator.key_names, "start"], also)

    def _give_up(
        self,
        records: pa.Table,
        why: Why,
        watermarks: np.ndarray[Any, Any] | None,
        starts: np.ndarray[Any, Any] | None = None,
    ) -> None:
        count = records.num_rows
        columns = {
            name: records[name] for name in (*self._operator.key_names, "record") if name in records.column_names
        }
        columns |= {
            "pane": pa.array([PaneKind.DEAD_LETTER.value] * count, pa.string()),
            "why": pa.array([why.value] * count, pa.string()),
            "event_time": records["time"],
            "watermark": pa.nulls(count, pa.int64()) if watermarks is None else pa.array(watermarks),
        }
        if starts is not None:
            columns |= {"start": pa.array(starts), "end": pa.array(starts + self._operator.shape.size_ms)}
        self._dead.append(pa.table(columns))

    # ---- windows -----------------------------------------------------------------------------------------------------

    def finish(self) -> tuple[State, list[pa.Table]]:
        """See :meth:`Run.finish`."""
        operator = self._operator
        fresh = _by_start(self._merged(pa.concat_tables(self._fresh))) if self._fresh else {}
        before, after = self._watermark(self._first_ms), self._watermark(self._newest_ms)
        parts: dict[str, Part] = {}
        output: list[pa.Table] = []
        for start in sorted({*map(int, self._state.parts), *fresh}):
            end = start + operator.shape.size_ms
            part: list[Segment | pa.Table] = [*self._state.parts.get(str(start), ())]
            new = fresh.get(start)
            if new is not None:
                part.append(new)
            if end <= after and (end > before or new is not None):
                merged = self._whole(start, part)
                kind = PaneKind.ON_TIME if end > before else PaneKind.REFINEMENT
                output.append(self._rows(merged if end > before else self._changed(merged, new), kind))
                part = [merged] if len(part) > _MAX_SEGMENTS else part
            elif len(part) > _MAX_SEGMENTS:
                part = [self._whole(start, part)]
            if end + operator.lateness_ms > after:
                parts[str(start)] = part
        values = {} if self._newest_ms is None else {_NEWEST: self._newest_ms}
        return State(parts, values), [rows for rows in (*output, *self._dead) if rows.num_rows]

    def _watermark(self, newest_ms: int | None) -> int:
        return np.iinfo(np.int64).min if newest_ms is None else newest_ms - self._operator.delay_ms

    def _whole(self, start: int, part: Part) -> pa.Table:
        rows = self._read(part)
        return self._merged(rows.append_column("start", pa.array(np.full(rows.num_rows, start))))

    def _changed(self, merged: pa.Table, new: pa.Table | None) -> pa.Table:
        """The panes with records of this batch."""
        assert new is not None
        keys = [*self._operator.key_names, "start"]
        marks = [table.select(keys).append_column("changed", pa.array(np.full(table.num_rows, mark)))
                 for table, mark in ((merged, 0), (new, 1))]  # fmt: skip
        changed = pa.concat_tables(marks).group_by(keys, use_threads=False).aggregate([("changed", "max")])
        # Both group the same keys in the order of their first row, and all keys of ``new`` are in ``merged``.
        return merged.filter(pc.equal(changed["changed_max"], 1))

    def _rows(self, panes: pa.Table, kind: PaneKind) -> pa.Table:
        columns = {name: panes[name] for name in (*self._operator.key_names, "start")}
        columns["end"] = pc.add(panes["start"], self._operator.shape.size_ms)
        columns |= results(self._operator.aggregates, self._operator.output, panes)
        columns["pane"] = pa.array([kind.value] * panes.num_rows, pa.string())
        columns["revision"] = panes["late"]
        return pa.table(columns)


def _by_start(table: pa.Table) -> dict[int, pa.Table]:
    ordered = table.sort_by("start")
    found, firsts = np.unique(ordered["start"].to_numpy(), return_index=True)
    ends = [*firsts[1:], ordered.num_rows]
    return {int(s): ordered.slice(a, b - a) for s, a, b in zip(found, firsts, ends, strict=True)}
