"""Carried rows: partial aggregates that several windows count, in the state of one partition.

Used by ``windows.panes``. A row has the start of the first and of the last window that counts it, and is stored once,
however many windows these are. It is added to the aggregates of a window whenever the window is emitted, and removed when
its last window has closed. Points have no carried rows. Source: SEMANTICS W19, S10.

A watermark that jumps over a long interval makes many windows due at once. A batch emits a limited number of carried rows.
The other windows stay in the state, and the next batches emit them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.event_time.windows import Hopping
from streamgroups.state.manifest import Segment
from streamgroups_operators.aggregates import add_up
from streamgroups_operators.large_tables import taken
from streamgroups_operators.operator import Numbers, Part, PartReader, State, first_to_merge, number_in
from streamgroups_operators.windows.edges import OPEN, OpenEdges
from streamgroups_operators.windows.fresh_rows import FreshRows
from streamgroups_operators.windows.grid import first_after, last_ended, spread
from streamgroups_operators.windows.window_definition import LATE, WindowDefinition, padded

#: The part of the state with the carried rows whose last window is fixed.
INTERVALS = "intervals"
#: The parts of the state that are no windows.
RESERVED = frozenset((INTERVALS, OPEN))
#: A batch emits at most this number of carried rows, each once for each window, or one window.
MAX_DUE_ROWS = 100_000
#: The last window of an edge without an end.
_FOREVER = int(np.iinfo(np.int64).max // 2)
#: The earliest end of an open window that counts a carried row, and of one that is not emitted.
_OPEN_END, _NEXT_END = "carried_open_end_ms", "carried_next_end_ms"


@dataclass(frozen=True, slots=True)
class Due:
    """The windows to emit.

    Args:
        until_ms: windows that end later wait for the next batch. The watermark, except after a jump over many windows.
        rows: the carried rows of these windows and of updated ones, each once for each window, with its ``start``.
    """

    until_ms: int
    rows: pa.Table

    def of(self, starts: Collection[int]) -> pa.Table:
        """Returns the carried rows of some windows."""
        return self.rows.filter(self._is_in(starts)) if self.rows.num_rows else self.rows

    def without(self, starts: Collection[int]) -> pa.Table:
        """Returns the carried rows of all other windows."""
        return self.rows.filter(pc.invert(self._is_in(starts))) if self.rows.num_rows else self.rows

    def _is_in(self, starts: Collection[int]) -> pa.ChunkedArray:
        return pc.is_in(self.rows["start"], pa.array(starts, pa.int64()))


class Carried:
    """The carried rows of one partition, in one batch.

    Args:
        definition: the definition of the windows.
        shape: their shape.
        state: the state before the batch.
        read: reads the rows of a part.
    """

    def __init__(self, definition: WindowDefinition, shape: Hopping, state: State, read: PartReader) -> None:
        self._definition, self._shape, self._read = definition, shape, read
        self._part: Part = state.parts.get(INTERVALS, ())
        #: The edges without an end.
        self.edges = OpenEdges(definition, state, read)
        self._open_end_ms, self._next_end_ms = (number_in(state.values, it) for it in (_OPEN_END, _NEXT_END))
        self._fresh = FreshRows()
        #: All rows, if the batch has read them, and how many of them were stored.
        self._rows: pa.Table | None = None
        self._stored = 0

    def add(self, rows: pa.Table) -> None:
        """Adds rows.

        Args:
            rows: the keys, ``first``, ``last`` and the partial aggregates.
        """
        if not rows.num_rows:
            return
        self._fresh.add(padded(rows, self._definition.schema), self._merged)
        self.expect(rows["first"])

    def expect(self, first: pa.ChunkedArray) -> None:
        """Includes the first windows of new rows, also of edges, in these ends."""
        end_ms = int(pc.min(first).as_py()) + self._shape.size_ms
        self._open_end_ms = _min(self._open_end_ms, end_ms)
        self._next_end_ms = _min(self._next_end_ms, end_ms)

    def _merged(self, rows: pa.Table) -> pa.Table:
        by = [*self._definition.key_names, "first", "last"]
        return padded(add_up(self._definition.aggregates, rows, by, (LATE,)), self._definition.schema)

    # ---- windows -----------------------------------------------------------------------------------------------------

    @property
    def open_ends_ms(self) -> list[int]:
        """The earliest end of an open window that counts a carried row; an empty list without one."""
        return [] if self._open_end_ms is None else [self._open_end_ms]

    @property
    def next_ends_ms(self) -> list[int]:
        """The earliest end of a window that counts a carried row and is not emitted; an empty list without one."""
        return [] if self._next_end_ms is None else [self._next_end_ms]

    def end_until(self, time_ms: int) -> list[int]:
        """Returns the latest end of a window that counts a carried row, at or before a time; an empty list without one."""
        if self._open_end_ms is None or time_ms < self._open_end_ms:
            return []
        first, last = _bounds(self._all())
        latest = np.minimum(last, last_ended(self._shape, time_ms))
        latest = latest[latest >= first]
        return [int(latest.max()) + self._shape.size_ms] if len(latest) else []

    def due(self, before_ms: int, watermark_ms: int, closed_ms: int, updated: Sequence[int]) -> Due:
        """Returns the windows to emit, with their carried rows.

        Args:
            before_ms: windows that end at or before this time have been emitted.
            watermark_ms: windows that end at or before this time are due.
            closed_ms: windows that end at or before this time are closed.
            updated: the starts of emitted windows that are emitted again.
        """
        nothing = self._definition.schema.empty_table().append_column("start", pa.array([], pa.int64()))
        is_empty = self._open_end_ms is None and self._next_end_ms is None
        is_due = self._next_end_ms is not None and watermark_ms >= self._next_end_ms
        is_closed = self._open_end_ms is not None and closed_ms >= self._open_end_ms
        if is_empty or not (updated or is_due or is_closed):
            return Due(watermark_ms, nothing)
        table = self._all()
        first, last = _bounds(table)
        first_due = np.maximum(first, first_after(self._shape, before_ms))
        until_ms = self._limited(first_due, last, watermark_ms)
        rows, starts = spread(first_due, np.minimum(last, last_ended(self._shape, until_ms)), self._shape.hop_ms)
        again = np.array(sorted(updated), np.int64)
        low, high = np.searchsorted(again, first), np.searchsorted(again, last, "right") - 1
        of_updated, which = spread(low, high, 1)
        chosen = taken(table, np.concatenate([rows, of_updated]))
        return Due(until_ms, chosen.append_column("start", pa.array(np.concatenate([starts, again[which]]))))

    def _limited(self, first: Numbers, last: Numbers, watermark_ms: int) -> int:
        """Returns the watermark, or the end of the latest window up to which the rows are within the limit."""
        hop_ms = self._shape.hop_ms

        def count(until: int) -> int:
            counts = (np.minimum(last, until) - first) // hop_ms + 1
            # The sum of all counts can exceed 64 bits.
            return int(np.clip(counts, 0, MAX_DUE_ROWS + 1).sum())

        latest = last_ended(self._shape, watermark_ms)
        if count(latest) <= MAX_DUE_ROWS:
            return watermark_ms
        # The first window is always emitted, so that each batch makes progress.
        below, above = int(first[first <= last].min()), latest
        while below < above:
            middle = below + ((above - below) // hop_ms + 1) // 2 * hop_ms
            below, above = (middle, above) if count(middle) <= MAX_DUE_ROWS else (below, middle - hop_ms)
        remains = np.maximum(first, below + hop_ms) <= np.minimum(last, latest)
        return below + self._shape.size_ms if remains.any() else watermark_ms

    def _all(self) -> pa.Table:
        if self._rows is None:
            stored = self._read.whole(self._part)
            self._rows, self._stored = (
                pa.concat_tables([stored, *self._fresh.tables, self.edges.rows()]),
                stored.num_rows,
            )
        return self._rows

    # ---- state -------------------------------------------------------------------------------------------------------

    def parts(self, closed_ms: int, until_ms: int) -> dict[str, Part]:
        """Returns the parts of the new state.

        Args:
            closed_ms: windows that end at or before this time count no more records.
            until_ms: windows that end at or before this time have been emitted.
        """
        gone = last_ended(self._shape, min(closed_ms, until_ms))
        fresh = [rows for it in self._fresh.tables if (rows := it.filter(pc.greater(it["last"], gone))).num_rows]
        part: list[Segment | pa.Table] = [*self._part]
        if self._rows is not None:
            first, last = _bounds(self._rows)
            self._open_end_ms = self._earliest_end(first, last, closed_ms)
            self._next_end_ms = self._earliest_end(first, last, until_ms)
            is_live = last[: self._stored] > gone
            # A part with few closed rows is not written again.
            if is_live.sum() * 2 < self._stored:
                part, live = [], self._rows.slice(0, self._stored).filter(pa.array(is_live))
                fresh = [live, *fresh] if live.num_rows else fresh
        if fresh:
            part.append(self._merged(pa.concat_tables(fresh)))
        return {name: of for name, of in ((INTERVALS, self._compact(part)), (OPEN, self.edges.part())) if of}

    def _compact(self, part: Part) -> Part:
        # Without a limit of bytes: the rows are added up, so a merge can have far fewer of them.
        if not part or (first := first_to_merge(part)) == len(part) - 1:
            return part
        return [*part[:first], self._merged(self._read.whole(part[first:]))]

    def _earliest_end(self, first: Numbers, last: Numbers, time_ms: int) -> int | None:
        """Returns the earliest end, after a time, of a window that counts a row."""
        earliest = np.maximum(first, first_after(self._shape, time_ms))
        earliest = earliest[earliest <= last]
        return int(earliest.min()) + self._shape.size_ms if len(earliest) else None

    @property
    def values(self) -> dict[str, int]:
        """The values of the new state."""
        found = {_OPEN_END: self._open_end_ms, _NEXT_END: self._next_end_ms}
        return {name: value for name, value in found.items() if value is not None} | self.edges.values


def _bounds(rows: pa.Table) -> tuple[Numbers, Numbers]:
    return rows["first"].to_numpy(), pc.fill_null(rows["last"], _FOREVER).to_numpy()


def _min(first: int | None, second: int) -> int:
    return second if first is None else min(first, second)
