"""The states of a query's operator: chooses them for each batch, and names them after it.

Used by ``streamgroups.query.micro_batches`` on the driver. Before a batch each range gets the state of its start. Tasks
write the states of the ends and report the names of their files. The commit of the batch names them, so a position and
its state change together. Source: SEMANTICS S9, S10.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from streamgroups.errors import StateMissing
from streamgroups.event_time.watermark import NOT_YET, At, Watermark, reached
from streamgroups.groups.membership import InFlight, Owned, States
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.query_ports import BatchStates
from streamgroups.state.figures import BatchFigures, StateSize, TaskFigures, total
from streamgroups.state.lookup import Choice, Empty, OnMissingState, Position
from streamgroups.state.names import StateFileName
from streamgroups.state.origins import Named, New, StateOrigin
from streamgroups.state.state_time import StateTime
from streamgroups.state.task_plan import RangePlan, TaskPlan

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StateReport:
    """The report of a task about one state that it has written.

    Args:
        range: the range.
        file: the file that contains the state of its end.
        due_ms: when the operator must run without new records; ``None``: never.
        size: the size of the state.
        work: the work of the task for all states in the file.
        time: the event time of the state; ``None`` if the operator does not use the watermark of the group.
    """

    range: OffsetRange
    file: StateFileName
    due_ms: int | None = None
    size: StateSize = field(default_factory=StateSize)
    work: TaskFigures = field(default_factory=TaskFigures)
    time: StateTime | None = None


class TakeReports(Protocol):
    """Returns the reports of the tasks of a batch, latest last, and forgets them."""

    def __call__(self, run_id: str, batch: int) -> Iterable[StateReport]: ...


class GroupWatermark(Protocol):
    """Returns the watermark of the group (:class:`streamgroups.query.group_time.GroupTime`)."""

    def __call__(self, owned: Mapping[TopicPartition, Owned], read: Collection[TopicPartition] = ()) -> Watermark: ...


def no_group_watermark(owned: Mapping[TopicPartition, Owned], read: Collection[TopicPartition] = ()) -> Watermark:
    """The watermark for operators that do not use the time of the group."""
    return NOT_YET


class OperatorStates(BatchStates):
    """See :mod:`streamgroups.query.operator_states`.

    Args:
        location: where state files are.
        group_id: the group of the query.
        run_id: the id of the run.
        find: finds the state of a position that names none (:func:`streamgroups.state.lookup.choose`).
        take_reports: returns the reports of the tasks of a batch.
        now_ms: the time in milliseconds since the epoch.
        on_missing: what happens if no state leads to a position.
        collect: deletes old states from time to time; called with the partitions of the member.
        high_watermarks: the offset after the last record of each partition, including those of open transactions.
        group_watermark: the watermark of the group.
    """

    def __init__(
        self,
        location: str,
        group_id: str,
        run_id: str,
        find: Callable[[Position], Choice],
        take_reports: TakeReports,
        now_ms: Callable[[], int],
        on_missing: OnMissingState = OnMissingState.FAIL,
        collect: Callable[[Collection[TopicPartition]], None] = lambda _: None,
        high_watermarks: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]] = lambda _: {},
        group_watermark: GroupWatermark = no_group_watermark,
    ) -> None:
        self._location, self._group_id, self._run_id = location, group_id, run_id
        self._find, self._take_reports, self._now_ms = find, take_reports, now_ms
        self._on_missing, self._collect = on_missing, collect
        self._figures: BatchFigures | None = None
        self._high_watermarks, self._group_watermark = high_watermarks, group_watermark
        #: When the partitions that are due were seen without available records.
        self._idle_until_ms = 0

    @property
    def figures(self) -> BatchFigures | None:
        """See :attr:`BatchStates.figures`."""
        return self._figures

    def due(
        self, owned: Mapping[TopicPartition, Owned], next_offsets: Mapping[TopicPartition, int]
    ) -> tuple[OffsetRange, ...]:
        """See :meth:`BatchStates.due`. A partition with available records is not due: they come first.

        Raises:
            StreamGroupsError: see :class:`streamgroups.ports.Cluster`.
        """
        now_ms, watermark = self._now_ms(), self._group_watermark(owned)
        due = sorted(tp for tp in next_offsets if tp in owned and _is_due(owned[tp].state, now_ms, watermark))
        if not due:
            return ()
        self._idle_until_ms = now_ms
        ends = self._high_watermarks(due)
        return tuple(OffsetRange(tp, next_offsets[tp], next_offsets[tp]) for tp in due if ends[tp] <= next_offsets[tp])

    def task_plans(
        self, batch: InFlight, owned: Mapping[TopicPartition, Owned], tasks: Sequence[tuple[OffsetRange, ...]]
    ) -> Sequence[TaskPlan | None]:
        """The states of the tasks of a batch.

        Args:
            batch: the batch.
            owned: the partitions of the member.
            tasks: the ranges of each task. No range is split.

        Raises:
            StateMissing: if no state leads to a position.
            StateUnreachable: if the storage does not answer.
        """
        planned_ms = self._now_ms()
        if self._figures is not None:
            sizes = {tp: size for tp, size in self._figures.sizes.items() if tp in owned}
            self._figures = replace(self._figures, sizes=sizes)
        self._collect(owned.keys())
        watermark = self._group_watermark(owned, {r.topic_partition for r in batch.ranges if len(r)})
        group_ms = watermark.time_ms if isinstance(watermark, At) else None
        return [
            TaskPlan(
                self._location,
                self._group_id,
                planned_ms,
                self._run_id,
                batch.number,
                tuple(replace(it, group_watermark_ms=group_ms) for it in self._range_plans(task, owned)),
                self._on_missing,
            )
            for task in tasks
        ]

    def _range_plans(self, task: Sequence[OffsetRange], owned: Mapping[TopicPartition, Owned]) -> tuple[RangePlan, ...]:
        return tuple(self._range_plan(r, owned[r.topic_partition]) for r in task)

    def _range_plan(self, r: OffsetRange, owned: Owned) -> RangePlan:
        if isinstance(owned.state, New | Named):
            idle_until_ms = None if len(r) else self._idle_until_ms
            return RangePlan(r, owned.state, r.next_offset, owned.identity, idle_until_ms)
        choice = self._find(Position(r.topic_partition, r.next_offset, owned.state, owned.identity))
        return self._plan_of(r, owned, choice)

    def _plan_of(self, r: OffsetRange, owned: Owned, choice: Choice) -> RangePlan:
        idle_until_ms = None if len(r) else self._idle_until_ms
        if isinstance(choice, Empty):
            if choice.read_from == r.next_offset:
                logger.warning(
                    "Group '%s': %s continues at %d with an empty state",
                    self._group_id,
                    r.topic_partition,
                    r.next_offset,
                )
            return RangePlan(r, New(), choice.read_from, owned.identity, idle_until_ms)
        if choice.read_from < r.next_offset:
            logger.info(
                "Group '%s': %s reads %d offsets again, to bring the state of offset %d to offset %d",
                self._group_id,
                r.topic_partition,
                r.next_offset - choice.read_from,
                choice.read_from,
                r.next_offset,
            )
        return RangePlan(r, choice.origin, choice.read_from, owned.identity, idle_until_ms)

    def finished(self, batch: InFlight | None) -> States:
        """The states after a batch that is done.

        Raises:
            StateMissing: if a task has not reported the state of a range.
        """
        if batch is None:
            return {}
        reports = list(self._take_reports(self._run_id, batch.number))
        states = states_after(batch, reports, self._group_id)
        self._figures = figures_after(self._figures, reports)
        return states


def states_after(batch: InFlight, reports: Iterable[StateReport], group_id: str) -> States:
    """The states after a batch, from the reports of its tasks, latest last.

    Raises:
        StateMissing: if no task has reported the state of a range.
    """
    reported = {it.range: it for it in reports}
    missing = [r for r in batch.ranges if r not in reported]
    if missing:
        raise StateMissing(
            f"Batch {batch.number} of group '{group_id}' is done, but no task has written the states of "
            f"{', '.join(map(str, missing))}.",
            remedy="The sink must read all rows of each batch: a foreachBatch function that ignores its batch, or a "
            "limit, leaves records out. Restart the query: it reads the batch again.",
        )
    return {
        r.topic_partition: Named(reported[r].file, r.end_offset, reported[r].due_ms, reported[r].time)
        for r in batch.ranges
    }


def figures_after(before: BatchFigures | None, reports: Iterable[StateReport]) -> BatchFigures:
    """The figures after a batch.

    Args:
        before: the figures of the batch before; ``None`` for the first batch.
        reports: the reports of its tasks, latest last.
    """
    latest = {it.range.topic_partition: it for it in reports}
    sizes = {tp: it.size for tp, it in latest.items()}
    # The reports about all states of one file contain the work of its task.
    work = {it.file: it.work for it in latest.values()}
    return BatchFigures({**(before.sizes if before else {}), **sizes}, total(work.values()))


def _is_due(state: StateOrigin, now_ms: int, watermark: Watermark) -> bool:
    """A position that names no state is due once: its state can be due, and is named afterwards."""
    if isinstance(state, Named):
        next_end_ms = None if state.time is None else state.time.next_end_ms
        is_closed = next_end_ms is not None and reached(watermark, next_end_ms)
        return is_closed or (state.due_ms is not None and state.due_ms <= now_ms)
    return not isinstance(state, New)
