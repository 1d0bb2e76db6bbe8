"""Runs a join over the records of a task, with the states of both partitions of each pair.

Created by ``streamgroups_spark.state.stage`` in a Python worker. The task reads whole pairs of partitions. The states of
a pair are written into the same file, each under the offset of its own partition. Source: SEMANTICS W18, S10;
``streamgroups_operators.task_states`` for other operators.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from streamgroups.errors import StateMismatch
from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.figures import TaskFigures
from streamgroups.state.file_names import StateFileName
from streamgroups.state.joined_topics import PARTNER
from streamgroups.state.manifest import Manifest, PartitionState
from streamgroups.state.origins import Named
from streamgroups.state.task_plan import RangePlan, TaskPlan
from streamgroups_operators.joins.join_definition import JoinOperator
from streamgroups_operators.joins.run import Input, JoinRun
from streamgroups_operators.operator import State
from streamgroups_operators.producer_time import PendingWatermarks
from streamgroups_operators.store import NewState, StateStore
from streamgroups_operators.task_states import by_range, part_reader, plans_of, prefetch, stored_state


@dataclass(slots=True)
class _Range:
    plan: RangePlan
    #: The records before the range, which bring the state to its start.
    behind: list[pa.Table] = field(default_factory=list)
    records: list[pa.Table] = field(default_factory=list)
    #: The watermarks of its producer that no run has received.
    pending: PendingWatermarks = field(default_factory=PendingWatermarks)

    @property
    def topic_partition(self) -> TopicPartition:
        return self.plan.range.topic_partition

    def before_range(self) -> Input:
        """Returns the input before the range."""
        return Input(self.behind, self.pending.take(self.plan.range.next_offset))

    def in_range(self) -> Input:
        """Returns the input in the range."""
        return Input(self.records, self.pending.take(self.plan.last_offset + 1))


class JoinTaskStates:
    """The states of one task. Used by one thread.

    Args:
        operator: the join.
        plan: the plan of the task.
        store: the states of the join.

    Raises:
        StateMismatch: if the task reads a partition without its partner.
    """

    def __init__(self, operator: JoinOperator, plan: TaskPlan, store: StateStore) -> None:
        self._operator, self._plan, self._store = operator, plan, store
        self._ranges = {it.range.topic_partition: _Range(it) for it in plan.ranges}
        self._plans = plans_of(plan)
        for tp in self._ranges:
            if operator.topics.partner(tp) not in self._ranges:
                raise StateMismatch(
                    f"{tp}: a task of the join '{operator.name}' reads the partition without "
                    f"{operator.topics.partner(tp)}.",
                    remedy="Do not use coalesce between the source and sg.join.",
                    topic=tp.topic,
                    partition=tp.partition,
                )

    @property
    def figures(self) -> TaskFigures:
        """The work of the task for its states so far."""
        return self._store.figures

    def add(self, batch: pa.RecordBatch) -> None:
        """Processes records.

        Args:
            batch: records with ``topic``, ``partition`` and ``offset``.

        Raises:
            StateMismatch: if a record is not of a range of the task.
        """
        for tp, behind, records in by_range(batch, None, self._plans):
            own_range = self._ranges[tp]
            if behind.num_rows:
                own_range.behind.append(behind)
            if records.num_rows:
                own_range.records.append(records)

    def add_watermarks(self, watermarks: Iterable[ProducerWatermarks]) -> None:
        """See :meth:`streamgroups_operators.task_states.TaskStates.add_watermarks`."""
        for it in watermarks:
            self._ranges[it.topic_partition].pending.add(it)

    @property
    def released(self) -> list[ProducerWatermarks]:
        """The watermarks of the output: none, because no operator can be behind a join."""
        return []

    def finish(self, file: StateFileName) -> tuple[Manifest, list[pa.Table]]:
        """Writes the new states of all ranges.

        Args:
            file: the name of the file.

        Returns:
            The manifest of the file, and the output rows.
        """
        prefetch(self._store, self._plan)
        new, output = [], []
        for tp in sorted(self._ranges):
            if tp.topic != self._operator.topics.left:
                continue
            left, right = (self._ranges[it] for it in self._operator.topics.pair(tp))
            states, rows = self._joined(left, right)
            new += states
            output += rows
        return self._store.write(file, new), output

    def _joined(self, left: _Range, right: _Range) -> tuple[list[NewState], list[pa.Table]]:
        sides = left, right
        (left_state, left_began), (right_state, right_began) = (stored_state(self._store, it.plan) for it in sides)
        schema = self._operator.schema
        first, second = (part_reader(self._store, schema, it.topic_partition) for it in sides)
        states = left_state, right_state
        behind = left.before_range(), right.before_range()
        if behind[0] or behind[1]:
            # Their output was written before, and only their state counts.
            states, _ = JoinRun(self._operator, states, (first, second)).finish(behind)
        inputs = left.in_range(), right.in_range()
        states, output = JoinRun(self._operator, states, (first, second)).finish(inputs)
        began = left_began, right_began
        return [self._new(*it) for it in zip(sides, began, states, strict=True)], output

    def _new(self, own_range: _Range, began_offset: int, state: State) -> NewState:
        whole = own_range.plan.range
        partner = self._operator.topics.partner(whole.topic_partition)
        stored = PartitionState(
            OffsetRange(whole.topic_partition, whole.next_offset, whole.end_offset),
            began_offset,
            own_range.plan.identity,
            values={**state.values, PARTNER: partner.topic},
            after=own_range.plan.state.file if isinstance(own_range.plan.state, Named) else None,
        )
        return NewState(stored, state.parts)
