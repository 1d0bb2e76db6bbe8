"""Edges in the state of one partition: events that one record starts and another one ends.

Used by ``windows.shared_partials`` and ``windows.lifetimes``. The part contains a row for each start without an end. An end
appends a row that removes the row of its start, so a write follows the batch and not the state. An end and a start belong
together if their keys and their ``begin`` are equal. Of several such starts the earliest one ends first. Source: SEMANTICS
W19; edge events of StreamInsight, whose end contains the start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups_operators.keys import key_numbers, newest_rows, rows_of_keys
from streamgroups_operators.large_tables import taken
from streamgroups_operators.merging import merged_newest
from streamgroups_operators.operator import Numbers, Part, PartReader, State, number_in
from streamgroups_operators.windows.window_definition import WindowDefinition, padded

#: The part of the state with the edges without an end.
OPEN = "open"
#: The number of edges without an end, in the values of a state.
OPEN_EDGES = "open_edges"


@dataclass(frozen=True, slots=True)
class Ended:
    """The ends of a batch with their starts.

    Args:
        has_start: whether an end has a start.
        starts: the rows of these starts, in the order of the ends that have one.
    """

    has_start: Numbers
    starts: pa.Table


class OpenEdges:
    """The edges of one partition without an end, in one batch.

    Args:
        definition: the definition of the windows.
        state: the state before the batch.
        read: reads the rows of a part.
    """

    def __init__(self, definition: WindowDefinition, state: State, read: PartReader) -> None:
        self._schema, self._read = definition.schema, read
        self._by = [*definition.key_names, "begin"]
        self._part: Part = state.parts.get(OPEN, ())
        self._count = number_in(state.values, OPEN_EDGES) or 0
        self._fresh: list[pa.Table] = []

    def start(self, rows: pa.Table) -> None:
        """Adds starts.

        Args:
            rows: the keys, ``begin``, ``offset``, ``first`` and the partial aggregates.
        """
        self._fresh.append(padded(rows, self._schema))
        self._count += rows.num_rows

    def end(self, ends: pa.Table) -> Ended:
        """Ends edges, after all starts of the batch are added.

        Args:
            ends: the keys, ``begin`` and ``offset`` of the ends, in the order of offsets.
        """
        columns = [*self._by, "offset"]
        ends = ends.select(columns).cast(pa.schema([self._schema.field(name) for name in columns]))
        keys = ends.select(self._by)
        found = [rows_of_keys(rows, keys) for rows in self._read.each(self._part)]
        stored = _live(pa.concat_tables([self._schema.empty_table(), *found]))
        starts = pa.concat_tables([stored, *self._fresh])
        of_starts, of_ends = key_numbers(self._by, starts, ends)
        offsets = np.concatenate([starts["offset"].to_numpy(), ends["offset"].to_numpy()])
        # In the order of offsets within each event.
        order = np.lexsort((offsets, np.concatenate([of_starts, of_ends])))
        matched = np.full(ends.num_rows, -1)
        pairs = match(np.concatenate([of_starts, of_ends])[order], order >= starts.num_rows)
        is_matched = pairs >= 0
        matched[order[is_matched] - starts.num_rows] = order[pairs[is_matched]]
        has_start = matched >= 0
        self._remove(stored, starts, matched[has_start])
        return Ended(has_start, taken(starts, matched[has_start]))

    def _remove(self, stored: pa.Table, starts: pa.Table, ended: Numbers) -> None:
        still_open = np.ones(starts.num_rows, bool)
        still_open[ended] = False
        fresh = starts.slice(stored.num_rows).filter(pa.array(still_open[stored.num_rows :]))
        removed = stored.filter(pa.array(~still_open[: stored.num_rows]))
        at = self._schema.get_field_index("first")
        removed = removed.set_column(at, self._schema.field(at), pa.nulls(removed.num_rows, pa.int64()))
        self._fresh = [it for it in (removed, fresh) if it.num_rows]
        self._count -= len(ended)

    def rows(self) -> pa.Table:
        """Returns the edges without an end. Their ``last`` is null."""
        if not (self._part or self._fresh):
            return self._schema.empty_table()
        return _live(pa.concat_tables([self._read.whole(self._part), *self._fresh]))

    def part(self) -> Part:
        """Returns the part of the new state."""
        if not self._count:
            return ()
        part = [*self._part, *([pa.concat_tables(self._fresh)] if self._fresh else [])]
        return merged_newest(self._read, part, ["offset"], _is_live)

    @property
    def values(self) -> dict[str, int]:
        """The values of the new state."""
        return {OPEN_EDGES: self._count} if self._count else {}


def _live(rows: pa.Table) -> pa.Table:
    rows = newest_rows(rows, ["offset"])
    return rows.filter(_is_live(rows))


def _is_live(rows: pa.Table) -> pa.ChunkedArray:
    return pc.is_valid(rows["first"])


def match(events: Numbers, is_end: Numbers) -> Numbers:
    """Returns the start of each end: -1 for an end without a start, and for starts.

    Starts wait in a queue for each event, and an end takes the first one. An end at an empty queue has no start.

    Args:
        events: the number of the event of each record, ascending. Records of an event are in their order.
        is_end: whether a record is an end.

    >>> match(np.array([0, 0, 0, 0, 1]), np.array([True, False, False, True, True])).tolist()
    [-1, -1, -1, 1, -1]
    """
    count = len(events)
    if not count:
        return np.zeros(0, np.int64)
    begins = np.concatenate([[True], events[1:] != events[:-1]])
    number = np.cumsum(begins) - 1
    total = np.cumsum(np.where(is_end, -1, 1))
    before = np.concatenate([[0], total[:-1]])
    balance = total - before[begins][number]
    # Lower numbers for later events, so that the minimum begins again with each event.
    lowest = np.minimum.accumulate(balance - number * (2 * count + 1)) + number * (2 * count + 1)
    lowest_before = np.where(begins, 0, np.minimum(0, np.concatenate([[0], lowest[:-1]])))
    has_start = is_end & (balance >= lowest_before)
    found = np.full(count, -1)
    starts, ends = np.flatnonzero(~is_end), np.flatnonzero(has_start)
    # The number of starts of earlier events, and the number of the end in its event.
    earlier = np.searchsorted(number[starts], number[ends])
    among = np.arange(len(ends)) - np.searchsorted(number[ends], number[ends])
    found[ends] = starts[earlier + among]
    return found
