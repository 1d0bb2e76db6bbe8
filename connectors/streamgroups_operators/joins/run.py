"""One batch of a join, for one left and one right partition.

Called by ``joins.join_states``. A pair of records is emitted in the batch that reads the later one of them. The result is
a function of the records before both offsets: no record that is not late is dropped before its last possible match, and
lateness depends on the order in one partition only. Source: SEMANTICS W18, S10; a sort-merge join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups_operators.joins.join_definition import JoinOperator
from streamgroups_operators.joins.side import Side
from streamgroups_operators.keys import key_numbers
from streamgroups_operators.large_tables import slices, taken_slice
from streamgroups_operators.operator import Numbers, PartReader, State
from streamgroups_operators.windows.grid import spread

_NAMES = ("left", "right")


@dataclass(frozen=True, slots=True)
class Input:
    """The input of one side in a batch.

    Args:
        records: the records, in the order of their offsets.
        watermarks: the watermarks of the producer of the partition.
    """

    records: Sequence[pa.Table]
    watermarks: Sequence[ProducerWatermarks] = ()

    def __bool__(self) -> bool:
        return bool(self.records or self.watermarks)


class JoinRun:
    """One batch of a join.

    Args:
        operator: the join.
        states: the states of the left and the right partition before the batch.
        reads: reads the rows of a part, for each of them.
    """

    def __init__(
        self, operator: JoinOperator, states: tuple[State, State], reads: tuple[PartReader, PartReader]
    ) -> None:
        self._operator = operator
        left, right = (
            Side(operator, state, read, emits_unmatched=emits_unmatched)
            for state, read, emits_unmatched in zip(states, reads, operator.how.emits_unmatched, strict=True)
        )
        self._sides = left, right
        self._output: list[pa.Table] = []

    def finish(self, inputs: tuple[Input, Input]) -> tuple[tuple[State, State], list[pa.Table]]:
        """Processes all records of the batch.

        Args:
            inputs: the left and the right input.

        Returns:
            The new states, and the output rows.
        """
        left, right = self._sides
        for side, read in zip(self._sides, inputs, strict=True):
            for it in read.watermarks:
                side.add_watermarks(it)
            if read.records:
                side.take(pa.concat_tables(read.records))
        left_matches, right_matches = self._match(left.fresh, right.fresh)
        left.match_fresh(left_matches)
        right.match_fresh(right_matches)
        for start, rows in right.stored_near(left.fresh).items():
            left_matches, right_matches = self._match(left.fresh, rows)
            left.match_fresh(left_matches)
            right.match_stored(start, rows["offset"].to_numpy()[right_matches])
        for start, rows in left.stored_near(right.fresh).items():
            left_matches, right_matches = self._match(rows, right.fresh)
            left.match_stored(start, rows["offset"].to_numpy()[left_matches])
            right.match_fresh(right_matches)
        watermarks_us = left.watermark_us, right.watermark_us
        left_state, left_rows = left.finish(watermarks_us[1])
        right_state, right_rows = right.finish(watermarks_us[0])
        for name, side, rows in zip(_NAMES, self._sides, (left_rows, right_rows), strict=True):
            self._emit({**self._keys(rows), name: rows["record"]})
            late = side.late
            self._emit({**self._keys(late), name: late["record"], "time": late["time"], "watermark": late["watermark"]})
        return (left_state, right_state), self._output

    def _match(self, left: pa.Table, right: pa.Table) -> tuple[Numbers, Numbers]:
        """Emits the pairs of rows that match, and returns their row numbers."""
        left_matches, right_matches = pairs(self._operator.key_names, left, right, self._operator.within_us)
        for it in slices((left, left_matches), (right, right_matches)):
            lefts, rights = taken_slice(left, left_matches[it]), taken_slice(right, right_matches[it])
            self._emit({**self._keys(lefts), "left": lefts["record"], "right": rights["record"]})
        return left_matches, right_matches

    def _keys(self, rows: pa.Table) -> dict[str, pa.ChunkedArray]:
        return {name: rows[name] for name in self._operator.key_names}

    def _emit(self, columns: dict[str, pa.ChunkedArray]) -> None:
        rows = pa.table(columns)
        if rows.num_rows:
            self._output.append(rows)


def pairs(by: Sequence[str], left: pa.Table, right: pa.Table, within: int) -> tuple[Numbers, Numbers]:
    """Returns the row numbers of all pairs of rows that match.

    Args:
        by: the key columns. None of them is null.
        left: rows with ``time``.
        right: rows with ``time``, in the same unit.
        within: the greatest distance of both times.

    Returns:
        The row numbers in ``left``, and those in ``right``, of the same length.

    >>> left = pa.table({"key": ["a", "b"], "time": [10, 10]})
    >>> right = pa.table({"key": ["a", "b", "a"], "time": [12, 19, 5]})
    >>> pairs(["key"], left, right, 5)
    (array([0, 0]), array([2, 0]))
    """
    nothing = np.empty(0, np.int64)
    if not left.num_rows or not right.num_rows:
        return nothing, nothing
    left_keys, right_keys = key_numbers(by, left, right)
    times, their_times = left["time"].to_numpy(), right["time"].to_numpy()
    # One number for key and time, in this order. Ranks of times are small, so the product does not overflow.
    known, ranks = np.unique(their_times, return_inverse=True)
    width = len(known) + 1
    places = right_keys * width + ranks
    order = np.argsort(places, kind="stable")
    places = places[order]
    firsts = np.searchsorted(places, left_keys * width + np.searchsorted(known, times - within, "left"), "left")
    ends = np.searchsorted(places, left_keys * width + np.searchsorted(known, times + within, "right"), "left")
    chosen, found = spread(firsts, ends - 1, 1)
    return chosen, order[found]
