"""The plan of a task with states: its ranges, their states, and the location of the new states.

Created by :mod:`streamgroups.query.operator_states` for each task, and passed to its operator as JSON. A task searches for no state:
the driver has chosen it. Source: SEMANTICS S10.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.origins import Named, New
from streamgroups.state.state_lookup import OnMissingState


@dataclass(frozen=True, slots=True)
class RangePlan:
    """A range of a task, and the state from which it continues.

    Args:
        range: the range of the batch.
        state: the state; :class:`~streamgroups.state.state_lookup.New` is an empty one.
        read_from: the first offset to read. Records before the range bring the state to its start, without output.
        identity: the topic of the partition.
        idle_until_ms: if the task reads no offsets of the partition: when it was last observed without available
            records, in milliseconds since the epoch. ``None``: it has available records, or the task reads offsets.
        group_watermark_ms: the watermark of the group when the batch was planned, in milliseconds since the epoch;
            ``None``: the group has none yet, or the operator does not use it.
        flush: whether a bounded run ends with this batch, and the operator emits what is still open.
    """

    range: OffsetRange
    state: New | Named
    read_from: int
    identity: TopicIdentity
    idle_until_ms: int | None = None
    group_watermark_ms: int | None = None
    flush: bool = False

    @property
    def to_read(self) -> OffsetRange:
        """All offsets that the task reads."""
        return OffsetRange(self.range.topic_partition, self.read_from, self.range.end_offset)

    @property
    def last_offset(self) -> int:
        """The last offset that a row can have. An empty range has no record, but an operator can have results in it."""
        return max(self.range.end_offset - 1, self.range.next_offset)


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """The states of a task.

    Args:
        location: where state files are.
        group_id: the group of the query.
        planned_ms: when the batch was planned.
        run_id: the id of the run of the query.
        batch: the number of the batch.
        ranges: the ranges of the task.
        on_missing: what happens if the file that a position names does not exist.
        operators: the operators of the query that process the ranges one after the other, each with a state of its own.
        task: the number of the task in its batch.
        is_direct: whether the reader passes the records to the first operator, and Spark has rows without them.
        with_idle_timeout: the operators whose windows have an idle timeout.
    """

    location: str
    group_id: str
    planned_ms: int
    run_id: str
    batch: int
    ranges: tuple[RangePlan, ...]
    on_missing: OnMissingState = OnMissingState.FAIL
    operators: tuple[str, ...] = ()
    task: int = 0
    is_direct: bool = False
    with_idle_timeout: tuple[str, ...] = ()

    def number_of(self, operator: str) -> int:
        """The number of an operator in the order of the query, from 0."""
        return self.operators.index(operator) if operator in self.operators else 0

    def has_next(self, operator: str) -> bool:
        """Whether another operator processes the output of an operator.

        >>> plan = TaskPlan("/state", "billing", 1732334879123, "1f3a9c2b7d10", 3, (), operators=("minutes", "peaks"))
        >>> plan.has_next("minutes"), plan.has_next("peaks")
        (True, False)
        """
        return self.number_of(operator) + 1 < len(self.operators)

    def closes_empty(self, operator: str) -> bool:
        """Whether the idle timeout of an operator also closes windows without records.

        A later operator with an idle timeout closes its windows by the clock. No later result may be in one of them.

        >>> from dataclasses import replace
        >>> plan = TaskPlan("/state", "billing", 1732334879123, "1f3a9c2b7d10", 3, (), operators=("minutes", "peaks"))
        >>> plan.closes_empty("minutes")
        False
        >>> plan = replace(plan, with_idle_timeout=("minutes", "peaks"))
        >>> plan.closes_empty("minutes"), plan.closes_empty("peaks")
        (True, False)
        """
        return any(self.number_of(it) > self.number_of(operator) for it in self.with_idle_timeout)

    def file(self, attempt: int) -> StateFileName:
        """The name of the state file of an attempt of the task.

        No other task of the batch has it: one attempt of Spark runs several tasks of a batch after a ``coalesce``.
        """
        return StateFileName(self.planned_ms, self.run_id, self.batch, attempt, task=self.task)


def encode(plan: TaskPlan) -> str:
    """The plan as JSON.

    >>> decode(encode(TaskPlan("/state", "billing", 1732334879123, "1f3a9c2b7d10", 3, ()))).batch
    3
    """
    return json.dumps(
        {
            "location": plan.location,
            "group": plan.group_id,
            "planned_ms": plan.planned_ms,
            "run": plan.run_id,
            "batch": plan.batch,
            "on_missing": plan.on_missing.value,
            "ranges": [_encoded(it) for it in plan.ranges],
            "operators": plan.operators,
            "task": plan.task,
            "direct": plan.is_direct,
            "with_idle_timeout": plan.with_idle_timeout,
        }
    )


def _encoded(it: RangePlan) -> list[Any]:
    tp, state = it.range.topic_partition, it.state
    named = [str(state.file), state.next_offset] if isinstance(state, Named) else None
    return [
        tp.topic, tp.partition, it.range.next_offset, it.range.end_offset,
        named, it.read_from, it.identity.cluster_id, it.identity.topic_id, it.idle_until_ms,
        it.group_watermark_ms, it.flush,
    ]  # fmt: skip


def decode(text: str) -> TaskPlan:
    """Parses a plan. It comes from the reader of the same task, so it is not checked."""
    fields = json.loads(text)
    ranges = tuple(
        RangePlan(
            OffsetRange(TopicPartition(topic, partition), first, end),
            New() if named is None else Named(StateFileName.parse(named[0]), named[1]),
            read_from,
            TopicIdentity(cluster_id, topic_id),
            *rest,
        )
        for topic, partition, first, end, named, read_from, cluster_id, topic_id, *rest in fields["ranges"]
    )
    return TaskPlan(
        fields["location"],
        fields["group"],
        fields["planned_ms"],
        fields["run"],
        fields["batch"],
        ranges,
        OnMissingState(fields["on_missing"]),
        tuple(fields["operators"]),
        fields["task"],
        fields["direct"],
        tuple(fields["with_idle_timeout"]),
    )
