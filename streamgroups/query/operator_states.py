"""The states of a query's operator: chooses them for each batch, and names them after it.

Used by ``streamgroups.query.micro_batches`` on the driver. Before a batch each range gets the state of its start. Tasks
write the states of the ends and report the names of their files. The commit of the batch names them, so a position and
its state change together. Source: SEMANTICS S9, S10.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from streamgroups.errors import StateMissing
from streamgroups.event_time.explanation import StreamExplanation
from streamgroups.event_time.watermark import At, Watermark, reached
from streamgroups.groups.membership import InFlight, Owned, States
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.printable import listed
from streamgroups.query.alignment import EventTimes
from streamgroups.query.operator_time import OperatorTime
from streamgroups.query.query_ports import BatchStates
from streamgroups.query.state_search import StateSearch
from streamgroups.state.figures import BatchFigures, StateSize, TaskFigures, sum_of_sizes, total
from streamgroups.state.file_names import StateFileName
from streamgroups.state.origins import UNNAMED, Named, New, StateOrigin
from streamgroups.state.state_lookup import Choice, Empty, OnMissingState, Position, require_not_later
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
        time: the event time of the state; ``None`` if the operator has none.
        number: the number of the operator in the order of the query, from 0.
        operators: the number of operators that write a state of the range.
    """

    range: OffsetRange
    file: StateFileName
    due_ms: int | None = None
    size: StateSize = field(default_factory=StateSize)
    work: TaskFigures = field(default_factory=TaskFigures)
    time: StateTime | None = None
    number: int = 0
    operators: int = 1


class TakeReports(Protocol):
    """Returns the reports of the tasks of a batch, latest last, and forgets them."""

    def __call__(self, run_id: str, batch: int) -> Iterable[StateReport]: ...


#: Without the time of the group.
_OWN_TIME = OperatorTime()


class OperatorStates(BatchStates):
    """See :mod:`streamgroups.query.operator_states`.

    Args:
        location: where state files are.
        group_id: the group of the query.
        run_id: the id of the run.
        search: finds the states of positions that name none.
        take_reports: returns the reports of the tasks of a batch.
        now_ms: the time in milliseconds since the epoch.
        on_missing: what happens if no state leads to a position.
        collect: deletes old states from time to time; called with the partitions of the member.
        high_watermarks: the offset after the last record of each partition, including those of open transactions.
        time: the event time by which batches are planned.
        flushes: whether the operator emits what is still open at the end of a bounded run.
        operators: the operators of the query, in the order in which they process the records.
        with_idle_timeout: the operators whose windows have an idle timeout.
    """

    def __init__(
        self,
        location: str,
        group_id: str,
        run_id: str,
        search: StateSearch,
        take_reports: TakeReports,
        now_ms: Callable[[], int],
        on_missing: OnMissingState = OnMissingState.FAIL,
        collect: Callable[[Collection[TopicPartition]], None] = lambda _: None,
        high_watermarks: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]] = lambda _: {},
        time: OperatorTime = _OWN_TIME,
        *,
        flushes: bool = False,
        operators: tuple[str, ...] = (),
        with_idle_timeout: tuple[str, ...] = (),
    ) -> None:
        self._location, self._group_id, self._run_id = location, group_id, run_id
        self._search, self._take_reports, self._now_ms = search, take_reports, now_ms
        self._operators, self._with_idle_timeout = operators, with_idle_timeout
        self._on_missing, self._collect = on_missing, collect
        self._figures: BatchFigures | None = None
        self._high_watermarks, self._time = high_watermarks, time
        #: When each partition that is due was observed without available records.
        self._idle_until_ms: Mapping[TopicPartition, int] = {}
        #: The partitions of the member at the last poll.
        self._owned: Mapping[TopicPartition, Owned] = {}
        self._flushes = flushes
        #: The partitions that the planned batch flushes, and the positions up to which this run has flushed partitions.
        self._flushing: frozenset[TopicPartition] = frozenset()
        self._flushed: dict[TopicPartition, int] = {}
        #: The last batch, its tasks and their plans.
        self._planned: tuple[InFlight, tuple[tuple[OffsetRange, ...], ...], Sequence[TaskPlan | None]] | None = None

    @property
    def figures(self) -> BatchFigures | None:
        """See :attr:`BatchStates.figures`."""
        return self._figures

    def check(self, partitions: Collection[TopicPartition]) -> None:
        """See :meth:`BatchStates.check`.

        Raises:
            InvalidOption: if the query imports the watermark of a group without event time.
        """
        self._time.check()

    def is_written(self, r: OffsetRange, owned: Owned) -> bool:
        """See :meth:`BatchStates.is_written`."""
        return self._search.is_written(Position(r.topic_partition, r.end_offset, UNNAMED, owned.identity), owned.state)

    def due(
        self, owned: Mapping[TopicPartition, Owned], next_offsets: Mapping[TopicPartition, int]
    ) -> tuple[OffsetRange, ...]:
        """See :meth:`BatchStates.due`.

        The idle timeout of a partition does not expire while records are available: those that a limit leaves for a
        later batch, and those of open transactions. The clock and the watermark of the group do not wait for them.

        Raises:
            StreamGroupsError: see :class:`streamgroups.ports.Cluster`.
        """
        self._owned, self._idle_until_ms, self._flushing = owned, {}, frozenset()
        now_ms, watermark = self._now_ms(), self._time.watermark(owned)
        found = {tp: _due(owned[tp].state, now_ms, watermark) for tp in next_offsets if tp in owned}
        due = {tp: it for tp, it in found.items() if it is not Due.NO}
        if not due:
            return ()
        ends = self._high_watermarks(due)
        idle = {tp for tp in due if ends[tp] <= next_offsets[tp]}
        self._idle_until_ms = dict.fromkeys(idle, now_ms)
        return tuple(
            OffsetRange(tp, next_offsets[tp], next_offsets[tp])
            for tp, it in sorted(due.items())
            if it is Due.NOW or tp in idle
        )

    def to_flush(
        self, owned: Mapping[TopicPartition, Owned], next_offsets: Mapping[TopicPartition, int]
    ) -> tuple[OffsetRange, ...]:
        """See :meth:`BatchStates.to_flush`. A partition without a state has nothing to emit."""
        if not self._flushes:
            return ()
        self._flushing = frozenset(
            tp
            for tp, next_offset in next_offsets.items()
            if tp in owned and not isinstance(owned[tp].state, New) and self._flushed.get(tp) != next_offset
        )
        return tuple(OffsetRange(tp, next_offsets[tp], next_offsets[tp]) for tp in sorted(self._flushing))

    def event_times(self, owned: Mapping[TopicPartition, Owned]) -> EventTimes | None:
        """See :meth:`BatchStates.event_times`.

        Raises:
            StreamGroupsError: see :class:`streamgroups.ports.Cluster`.
        """
        return self._time.event_times(owned)

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
            StateMismatch: if a position names the state of a later offset.
            StateUnreachable: if the storage does not answer.
        """
        # Two branches of a query over one operator read its plans one after the other, and report one state.
        if self._planned is not None and self._planned[:2] == (batch, tuple(tasks)):
            return self._planned[2]
        plans = self._new_task_plans(batch, owned, tasks)
        self._planned = (batch, tuple(tasks), plans)
        return plans

    def _new_task_plans(
        self, batch: InFlight, owned: Mapping[TopicPartition, Owned], tasks: Sequence[tuple[OffsetRange, ...]]
    ) -> Sequence[TaskPlan | None]:
        planned_ms = self._now_ms()
        if self._figures is not None:
            sizes = {tp: size for tp, size in self._figures.sizes.items() if tp in owned}
            self._figures = replace(self._figures, sizes=sizes)
        self._collect(owned.keys())
        watermark = self._time.watermark(owned, {r.topic_partition for r in batch.ranges if len(r)})
        group_ms = watermark.time_ms if isinstance(watermark, At) else None
        with self._search.searching():
            return [
                TaskPlan(
                    self._location,
                    self._group_id,
                    planned_ms,
                    self._run_id,
                    batch.number,
                    tuple(replace(it, group_watermark_ms=group_ms) for it in self._range_plans(task, owned)),
                    self._on_missing,
                    self._operators,
                    number,
                    with_idle_timeout=self._with_idle_timeout,
                )
                for number, task in enumerate(tasks)
            ]

    def _range_plans(self, task: Sequence[OffsetRange], owned: Mapping[TopicPartition, Owned]) -> tuple[RangePlan, ...]:
        return tuple(self._range_plan(r, owned[r.topic_partition]) for r in task)

    def _range_plan(self, r: OffsetRange, owned: Owned) -> RangePlan:
        position = Position(r.topic_partition, r.next_offset, owned.state, owned.identity)
        require_not_later(position, self._operators)
        if isinstance(owned.state, New | Named):
            return self._timed(RangePlan(r, owned.state, r.next_offset, owned.identity))
        return self._plan_of(r, owned, self._search.find(position))

    def _plan_of(self, r: OffsetRange, owned: Owned, choice: Choice) -> RangePlan:
        if isinstance(choice, Empty):
            if choice.read_from == r.next_offset:
                logger.warning(
                    "Group '%s': %s continues at %d with an empty state",
                    self._group_id,
                    r.topic_partition,
                    r.next_offset,
                )
            return self._timed(RangePlan(r, New(), choice.read_from, owned.identity))
        if choice.read_from < r.next_offset:
            logger.info(
                "Group '%s': %s reads %d offsets again, to bring the state of offset %d to offset %d",
                self._group_id,
                r.topic_partition,
                r.next_offset - choice.read_from,
                choice.read_from,
                r.next_offset,
            )
        # After a reset with ids that stay seen, the state is that of a later offset.
        read_from = min(choice.read_from, r.next_offset)
        return self._timed(RangePlan(r, choice.origin, read_from, owned.identity))

    def _timed(self, plan: RangePlan) -> RangePlan:
        tp = plan.range.topic_partition
        if len(plan.range):
            return plan
        if tp in self._flushing:
            return replace(plan, flush=True)
        # Records that are read again have arrived at an unknown time since the batch of the state.
        return plan if len(plan.to_read) else replace(plan, idle_until_ms=self._idle_until_ms.get(tp))

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
        # A range can begin before the position of the flush, after a reset. Its end is flushed again.
        read = {r.topic_partition for r in batch.ranges if len(r)}
        self._flushed = {tp: n for tp, n in self._flushed.items() if tp not in read}
        self._flushed |= {r.topic_partition: r.end_offset for r in batch.ranges if r.topic_partition in self._flushing}
        return states

    def explain(self, member: str) -> StreamExplanation | None:
        """See :meth:`BatchStates.explain`."""
        return self._time.explain(self._group_id, member, self._owned)


def states_after(batch: InFlight, reports: Iterable[StateReport], group_id: str) -> States:
    """The states after a batch, from the reports of its tasks, latest last.

    Raises:
        StateMissing: if no task has reported the state of a range.
    """
    reported = _latest(reports)
    missing = [r for r in batch.ranges if r not in reported]
    if missing:
        raise StateMissing(
            f"Batch {batch.number} of group '{group_id}' is done, but no task has written the states of "
            f"{listed(missing)}.",
            remedy="The sink must read all rows of each batch: a foreachBatch function that ignores its batch, or a "
            "limit, leaves records out. Restart the query: it reads the batch again.",
        )
    return {r.topic_partition: _named(r, reported[r]) for r in batch.ranges}


def _latest(reports: Iterable[StateReport]) -> dict[OffsetRange, list[StateReport]]:
    """The reports of all operators about the same file, of the latest attempt, by their range."""
    by_file: dict[tuple[OffsetRange, StateFileName], dict[int, StateReport]] = {}
    for it in reports:
        attempt = by_file.pop((it.range, it.file), {})
        by_file[it.range, it.file] = attempt | {it.number: it}
    found: dict[OffsetRange, list[StateReport]] = {}
    for (r, _), attempt in by_file.items():
        ordered = [attempt[number] for number in sorted(attempt)]
        if len(ordered) == ordered[0].operators:
            found[r] = ordered
    return found


def _named(r: OffsetRange, reports: Sequence[StateReport]) -> Named:
    """The state of all operators. The time is that of the first one, which reads the records of the source."""
    due = [it.due_ms for it in reports if it.due_ms is not None]
    return Named(reports[0].file, r.end_offset, min(due, default=None), reports[0].time)


def figures_after(before: BatchFigures | None, reports: Iterable[StateReport]) -> BatchFigures:
    """The figures after a batch.

    Args:
        before: the figures of the batch before; ``None`` for the first batch.
        reports: the reports of its tasks, latest last.
    """
    latest = _latest(reports)
    sizes = {r.topic_partition: sum_of_sizes(it.size for it in found) for r, found in latest.items()}
    # The reports about all states of one file contain the work of its task for one operator.
    work = {(it.file, it.number): it.work for found in latest.values() for it in found}
    return BatchFigures({**(before.sizes if before else {}), **sizes}, total(work.values()))


class Due(Enum):
    """Whether an operator must run without new records."""

    NO = "no"
    #: If the partition has no available records.
    IF_IDLE = "if idle"
    NOW = "now"


def _due(state: StateOrigin, now_ms: int, watermark: Watermark) -> Due:
    """Decides whether a state is due.

    A position that names no state is due once: its state can be due, and is named afterwards. Without event time a state
    is due by the clock. With event time it is due by the idle timeout, or by the watermark of the group.
    """
    if isinstance(state, Named):
        time = state.time
        next_end_ms = None if time is None or time.group is None else time.group.next_end_ms
        if next_end_ms is not None and reached(watermark, next_end_ms):
            return Due.NOW
        if state.due_ms is None or state.due_ms > now_ms:
            return Due.NO
        return Due.NOW if time is None else Due.IF_IDLE
    return Due.NO if isinstance(state, New) else Due.IF_IDLE
