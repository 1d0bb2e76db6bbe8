"""One batch of a join, for one left and one right partition.

Called by ``joins.join_states``. A pair of records is emitted in the batch that reads the later one of them. The result is
a function of the records before both offsets: no record that is not late is dropped before its last possible match, and
lateness depends on the order in one partition only. Source: SEMANTICS W18, S10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups_operators.joins.join_definition import JoinOperator
from streamgroups_operators.joins.matching import Numbers, pairs
from streamgroups_operators.joins.side import Side
from streamgroups_operators.operator import ReadPart, State

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

    def __init__(self, operator: JoinOperator, states: tuple[State, State], reads: tuple[ReadPart, ReadPart]) -> None:
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
        if len(left_matches):
            lefts, rights = left.take(pa.array(left_matches)), right.take(pa.array(right_matches))
            self._emit({**self._keys(lefts), "left": lefts["record"], "right": rights["record"]})
        return left_matches, right_matches

    def _keys(self, rows: pa.Table) -> dict[str, pa.ChunkedArray]:
        return {name: rows[name] for name in self._operator.key_names}

    def _emit(self, columns: dict[str, pa.ChunkedArray]) -> None:
        rows = pa.table(columns)
        if rows.num_rows:
            self._output.append(rows)
