"""Runs an operator with state over the records of a task.

Called by ``streamgroups_spark.state.stage`` in a Python worker. The records of a task arrive in Arrow batches, in order
within each partition. Each range of the task has a state: it is loaded before the first record, and the new states of
all ranges are written into one file at the end, also those of ranges without records. Source: SEMANTICS S10.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.errors import InvalidOption, StateMismatch
from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.printable import listed
from streamgroups.state.figures import TaskFigures
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import Manifest, PartitionState
from streamgroups.state.origins import Named
from streamgroups.state.state_lookup import Position, Stored
from streamgroups.state.task_plan import RangePlan, TaskPlan
from streamgroups_operators.large_tables import taken
from streamgroups_operators.operator import BatchTime, Numbers, PartReader, Run, State, StatefulOperator
from streamgroups_operators.plain_values import in_utc
from streamgroups_operators.producer_time import PendingWatermarks
from streamgroups_operators.results import Released, positioned
from streamgroups_operators.store import NewState, StateStore
from streamgroups_operators.windows.window_definition import WindowDefinition

logger = logging.getLogger(__name__)

#: The number of a null partition: no range has it.
_NO_PARTITION = -1
#: Up to this number of partitions a filter for each of them costs less than a sort.
_MAX_FILTERS = 8


@dataclass(slots=True)
class _Range:
    """A range of the task while its records arrive."""

    plan: RangePlan
    began_offset: int
    run: Run
    #: Whether records before the range still bring the state to its start.
    is_behind: bool
    released: Released
    #: The output of the records before the range, for the next operator.
    behind: list[pa.Table] = field(default_factory=list)
    #: The watermarks of its producer that the run has not received.
    pending: PendingWatermarks = field(default_factory=PendingWatermarks)


class TaskStates:
    """The states of one task. Used by one thread.

    Args:
        operator: the operator.
        plan: the plan of the task.
        store: the states of the operator.
    """

    def __init__(self, operator: StatefulOperator, plan: TaskPlan, store: StateStore) -> None:
        self._operator, self._plan, self._store = operator, plan, store
        prefetch(store, plan)
        self._ranges = {it.range.topic_partition: self._begun(it) for it in plan.ranges}
        self._plans = plans_of(plan)
        topics = {tp.topic for tp in self._ranges}
        self._topic = topics.pop() if len(topics) == 1 else None
        self._has_next = plan.has_next(operator.name)
        self._is_chained = isinstance(operator, WindowDefinition) and operator.is_chained

    def _begun(self, plan: RangePlan) -> _Range:
        state, began_offset = stored_state(self._store, plan)
        is_behind = plan.read_from < plan.range.next_offset
        time = self._time_behind(plan) if is_behind else self._time(plan)
        read = part_reader(self._store, self._operator.schema, plan.range.topic_partition)
        run = self._operator.begin(state, read, time)
        return _Range(plan, began_offset, run, is_behind, Released(plan.range.topic_partition))

    def _time(self, plan: RangePlan) -> BatchTime:
        return BatchTime(
            self._plan.planned_ms,
            plan.idle_until_ms,
            plan.group_watermark_ms,
            plan.flush,
            closes_empty=self._plan.closes_empty(self._operator.name),
        )

    def _time_behind(self, plan: RangePlan) -> BatchTime:
        """The time of records before the range: that of their state.

        So neither the clock nor the group emits anything before the range, where the output is dropped.
        """
        planned_ms = self._plan.planned_ms
        return BatchTime(
            plan.state.file.planned_ms if isinstance(plan.state, Named) else planned_ms, planned_ms=planned_ms
        )

    @property
    def figures(self) -> TaskFigures:
        """The work of the task for its states so far."""
        return self._store.figures

    def add(self, batch: pa.RecordBatch) -> None:
        """Processes records.

        Args:
            batch: records with ``partition``, ``offset``, and with ``topic`` if the task reads several topics.

        Raises:
            StateMismatch: if a record is not of a range of the task.
            InvalidOption: if the task reads several topics, and the records have no topic.
        """
        for tp, behind, records in by_range(batch, self._topic, self._plans):
            own_range = self._ranges[tp]
            if behind.num_rows:
                self._add(own_range, behind)
            if records.num_rows:
                if own_range.is_behind:
                    self._reach(own_range)
                self._add(own_range, records)

    def add_watermarks(self, watermarks: Iterable[ProducerWatermarks]) -> None:
        """Adds watermarks of producers. It is called before :meth:`add` for the records after them.

        Args:
            watermarks: watermarks of partitions of the task.
        """
        for it in watermarks:
            self._ranges[it.topic_partition].pending.add(it)

    def _add(self, own_range: _Range, records: pa.Table) -> None:
        if own_range.pending:
            self._advance(own_range, records["offset"][-1].as_py())
        own_range.run.add(records)

    def _advance(self, own_range: _Range, next_offset: int) -> None:
        """Passes on the watermarks before an offset."""
        for it in own_range.pending.take(next_offset):
            own_range.run.add_watermarks(it)

    def _reach(self, own_range: _Range) -> None:
        """Ends the records before the range: their output was written before, and only their state counts.

        The next operator needs their output, for its own state.
        """
        tp, next_offset = own_range.plan.range.topic_partition, own_range.plan.range.next_offset
        self._advance(own_range, next_offset)
        state, rows = own_range.run.finish()
        if self._has_next:
            own_range.behind = self._positioned(rows, tp, next_offset - 1)
            own_range.released.add(next_offset - 1, state.released_ms)
        read = part_reader(self._store, self._operator.schema, tp)
        own_range.run = self._operator.begin(state, read, self._time(own_range.plan))
        own_range.is_behind = False

    def finish(self, file: StateFileName) -> tuple[Manifest, list[pa.Table]]:
        """Writes the new states of all ranges.

        Args:
            file: the name of the file.

        Returns:
            The manifest of the file, and the output rows.
        """
        states, output = [], []
        for tp, own_range in sorted(self._ranges.items()):
            if own_range.is_behind:
                self._reach(own_range)
            last_offset = own_range.plan.last_offset
            self._advance(own_range, last_offset + 1)
            state, rows = own_range.run.finish()
            output += [*own_range.behind, *self._positioned(rows, tp, last_offset)]
            own_range.released.add(last_offset, state.released_ms)
            stored = PartitionState(
                OffsetRange(tp, own_range.plan.range.next_offset, own_range.plan.range.end_offset),
                own_range.began_offset,
                own_range.plan.identity,
                values=state.values,
                due_ms=state.due_ms,
                time=state.time,
                after=own_range.plan.state.file if isinstance(own_range.plan.state, Named) else None,
            )
            states.append(NewState(stored, state.parts, state.apart))
        return self._store.write(file, states), output

    def _positioned(self, rows: list[pa.Table], tp: TopicPartition, offset: int) -> list[pa.Table]:
        return positioned(rows, self._operator.output, tp, offset) if self._is_chained else rows

    @property
    def released(self) -> list[ProducerWatermarks]:
        """The watermarks of the output, for the next operator. Complete after :meth:`finish`."""
        found = (own_range.released.watermarks for _, own_range in sorted(self._ranges.items()))
        return [it for it in found if it is not None]


# ---- common to all operators -----------------------------------------------------------------------------------------


def prefetch(store: StateStore, plan: TaskPlan) -> None:
    """Reads the files with the states of all ranges of a task at once."""
    store.prefetch(it.state.file for it in plan.ranges if isinstance(it.state, Named))


def stored_state(store: StateStore, plan: RangePlan) -> tuple[State, int]:
    """Returns the state from which a range continues, and the offset at which it was empty.

    Raises:
        StreamGroupsError: see :meth:`streamgroups_operators.store.StoredStates.find_planned`.
    """
    tp = plan.range.topic_partition
    if not isinstance(plan.state, Named):
        return State(), plan.read_from
    found = store.find_planned(Position(tp, plan.range.next_offset, plan.state, plan.identity))
    if isinstance(found, Stored):
        stored = found.state
        return State(store.parts_of(tp, found), stored.values, stored.due_ms, stored.time), stored.began_offset
    logger.warning(
        "%s: the state file '%s' does not exist, so the partition continues at %d with an empty state",
        tp,
        plan.state.file,
        plan.read_from,
    )
    return State(), plan.read_from


def part_reader(store: StateStore, schema: pa.Schema, tp: TopicPartition) -> PartReader:
    """Returns a reader of the rows of a state."""
    return PartReader(schema, lambda segments: store.each(tp, segments))


def plans_of(plan: TaskPlan) -> dict[TopicPartition, RangePlan]:
    """Returns the plan of each partition of a task, for :func:`by_range`."""
    return {it.range.topic_partition: it for it in plan.ranges}


def by_range(
    batch: pa.RecordBatch, topic: str | None, plans: Mapping[TopicPartition, RangePlan]
) -> Iterable[tuple[TopicPartition, pa.Table, pa.Table]]:
    """Yields the partition, the records before its range, and the records in its range, with timestamps in UTC.

    Args:
        batch: the records, in their order in each partition.
        topic: their topic, if the task reads one only.
        plans: the plans of the ranges of the task.

    Raises:
        InvalidOption: if the task reads several topics, and the records have no topic.
        StateMismatch: if a record is not of a range of the task.
    """
    for tp, records in by_partition(batch, topic):
        plan_of_partition = plans.get(tp)
        offsets = records["offset"].to_numpy()
        if (
            plan_of_partition is None
            or offsets[0] < plan_of_partition.to_read.next_offset
            or offsets[-1] > plan_of_partition.last_offset
        ):
            raise _foreign(tp, plans)
        behind = int((offsets < plan_of_partition.range.next_offset).sum())
        yield tp, records.slice(0, behind), records.slice(behind)


def by_partition(batch: pa.RecordBatch, topic: str | None) -> Iterable[tuple[TopicPartition, pa.Table]]:
    """Yields the records of each partition, with timestamps in UTC.

    Args:
        batch: the records, in their order in each partition.
        topic: their topic, if the task reads one only.

    Raises:
        InvalidOption: if the task reads several topics, and the records have no topic.
    """
    records = in_utc(pa.Table.from_batches([batch]))
    if not records.num_rows:
        return
    if topic is None and "topic" not in records.column_names:
        raise InvalidOption(
            "An operator with state reads several topics, and its DataFrame has no column 'topic'.",
            remedy="Keep the column 'topic' of the source: use withColumn, or add it to select.",
        )
    partitions = _numbers(records["partition"], _NO_PARTITION)
    groups, topics = partitions - partitions.min(), None
    names: list[Any] = [topic]
    if topic is None:
        encoded = records["topic"].combine_chunks().dictionary_encode()
        names = [*encoded.dictionary.to_pylist(), None]
        if len(encoded.dictionary) + encoded.null_count > 1:
            topics = _numbers(encoded.indices, len(names) - 1)
            groups += topics * (groups.max() + 1)
    for chosen, row in _by_group(records, groups):
        yield TopicPartition(names[0 if topics is None else topics[row]], int(partitions[row])), chosen


def _numbers(column: pa.Array | pa.ChunkedArray, of_null: int) -> Numbers:
    filled = pc.fill_null(column, of_null) if column.null_count else column
    return np.asarray(filled).astype(np.int64)


def _by_group(records: pa.Table, groups: Numbers) -> Iterable[tuple[pa.Table, int]]:
    """Yields the records of each group in their order, and the number of one of them."""
    if (groups == groups[0]).all():
        # Most batches have records of one partition, and a sort copies them.
        yield records, 0
        return
    is_small = groups.max() < 1 << 16
    if is_small:
        counted = np.flatnonzero(np.bincount(groups))
        if len(counted) <= _MAX_FILTERS:
            for group in counted:
                mask = groups == group
                yield records.filter(pa.array(mask)), int(mask.argmax())
            return
    # A task can have thousands of partitions: one sort costs less than a filter for each of them. NumPy sorts numbers of
    # 16 bits in linear time.
    order = np.argsort(groups.astype(np.uint16) if is_small else groups, kind="stable")
    ordered, together = taken(records, order), groups[order]
    firsts = np.flatnonzero(np.diff(together, prepend=-1))
    for first, end in pairwise([*firsts.tolist(), len(together)]):
        yield ordered.slice(first, end - first), int(order[first])


def _foreign(tp: TopicPartition, plans: Mapping[TopicPartition, RangePlan]) -> StateMismatch:
    ranges = listed(it.to_read for it in plans.values()) or "nothing"
    return StateMismatch(
        f"{tp}: a record is not in the ranges of its task ({ranges}).",
        remedy="Keep the columns 'topic', 'partition' and 'offset' as the source returns them, and do not repartition "
        "between the source and an operator with state.",
        topic=tp.topic,
        partition=tp.partition,
    )
