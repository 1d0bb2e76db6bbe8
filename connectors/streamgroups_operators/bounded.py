"""Runs an operator with state over bounded data: whole partitions, without stored states.

Called by ``streamgroups_spark.state.stage`` in a Python worker. Each partition begins with an empty state in
memory and ends with a flush, as in a bounded run of a streaming query. Records are processed in steps, which limits the
memory: a window is emitted when it closes, not at the end of the partition. Source: SEMANTICS W17.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamgroups.errors import InvalidOption
from streamgroups.partitions import TopicPartition
from streamgroups_operators.operator import BatchTime, PartReader, Run, State, StatefulOperator
from streamgroups_operators.task_states import by_partition

#: The number of records of a partition after which what is complete is emitted.
_STEP_RECORDS = 100_000


@dataclass(slots=True)
class _Partition:
    """A partition while its records arrive."""

    run: Run
    #: The records of the current step.
    records: int = 0
    last_offset: int = -1


class BoundedRecords:
    """The operator over the partitions of one task. Used by one thread.

    Args:
        operator: the operator.
        topic: the topic of all records. ``None`` if several topics are read. Then the records have a column ``topic``.
        now_ms: the time of all records by the clock. A retried task has the same one.
    """

    def __init__(self, operator: StatefulOperator, topic: str | None, now_ms: int) -> None:
        self._operator, self._topic, self._now_ms = operator, topic, now_ms
        self._partitions: dict[TopicPartition, _Partition] = {}

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        """Processes records and yields output rows.

        Args:
            batch: records with ``partition`` and ``offset``, in the order of the offsets of each partition.

        Raises:
            InvalidOption: if the records of a partition are not in order, or the task reads several topics, and the
                records have no topic.
        """
        for tp, records in by_partition(batch, self._topic):
            partition = self._partitions.get(tp)
            if partition is None:
                partition = self._partitions[tp] = _Partition(self._begun(State()))
            offsets = records["offset"].to_numpy()
            if (np.diff(offsets, prepend=partition.last_offset) < 0).any():
                raise _disordered(tp)
            partition.last_offset = int(offsets[-1])
            partition.run.add(records)
            partition.records += records.num_rows
            if partition.records >= _STEP_RECORDS:
                state, output = partition.run.finish()
                partition.run, partition.records = self._begun(state), 0
                yield from output

    def finish(self) -> Iterator[pa.Table]:
        """Ends all partitions, and yields the rest of the output."""
        for _, partition in sorted(self._partitions.items()):
            state, output = partition.run.finish()
            yield from output
            yield from self._begun(state, flush=True).finish()[1]

    def _begun(self, state: State, *, flush: bool = False) -> Run:
        return self._operator.begin(state, PartReader(self._operator.schema), BatchTime(self._now_ms, flush=flush))


def _disordered(tp: TopicPartition) -> InvalidOption:
    return InvalidOption(
        f"{tp}: the records do not arrive in the order of their offsets: an operation before the operator with state "
        "moves or reorders them.",
        remedy="Apply the operator before it.",
    )
