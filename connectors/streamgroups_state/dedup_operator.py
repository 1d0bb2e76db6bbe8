"""``sg.dedup`` as an operator with state: the ids that a partition has seen.

Created by ``streamgroups_spark.state.dedup`` and run by ``task_states``. ``dedup.decisions`` decides about records, and
``dedup.seen_ids`` stores the ids. The length of the horizon and the rate of the filters are no part of the definition: a
state has the end of each bucket and the size of each filter. Source: SEMANTICS X5, S10.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from streamgroups_state.dedup.ids import SCHEMA
from streamgroups_state.dedup.run import DedupRun
from streamgroups_state.operator import BatchTime, ReadPart, Run, State


@dataclass(frozen=True, slots=True)
class DedupOperator:
    """See :class:`streamgroups_state.operator.StatefulOperator`.

    Args:
        name: the name of the operator in its query.
        form: the columns of the id with their types, and the column of the time, as text.
        horizon_ms: how long an id is seen, in milliseconds of the time of the partition.
        output: the columns of the records, and those of the counts (:data:`streamgroups_state.dedup.run.COUNTS`).
        false_positive_rate: the share of unseen ids for which the ids of a bucket are read.
        keeps_on_reset: whether ids of records after the target of a reset stay seen.
    """

    name: str
    form: str
    horizon_ms: int
    output: pa.Schema
    false_positive_rate: float = 1e-5
    keeps_on_reset: bool = False

    @property
    def schema(self) -> pa.Schema:
        """See :attr:`StatefulOperator.schema`."""
        return SCHEMA

    def begin(self, state: State, read: ReadPart, time: BatchTime) -> Run:
        """See :meth:`StatefulOperator.begin`."""
        return DedupRun(self, state, read, time)
