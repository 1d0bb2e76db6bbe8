"""Queries of a group that share partitions, with windows by the watermark of the group.

Commits are metadata of offsets, as in Kafka. Each query plans with the parts of a real one: ``OperatorStates`` and
``GroupTime``. A batch that is killed commits nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from streamgroups.event_time.explanation import StreamExplanation
from streamgroups.event_time.watermark import Watermark, earliest
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.groups.membership import InFlight, Membership, Owned
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.batch_ranges import BatchAdmission
from streamgroups.query.group_time import GroupTime, watermark_of
from streamgroups.query.operator_states import OperatorStates, StateReport
from streamgroups.state.figures import StateSize
from streamgroups.state.origins import UNNAMED, New
from streamgroups.state.task_plan import TaskPlan, decode, encode
from streamgroups_operators.batch_search import BatchSearch
from streamgroups_operators.store import Operator, StateStore
from streamgroups_operators.task_states import TaskStates
from streamgroups_operators.window_operator import WindowOperator
from unit_tests.fake_state_files import FakeStateFiles
from unit_tests.streamgroups_operators.window_model import START_MS, TOPIC, Record, Row, batch


@dataclass
class GroupModel:
    """The topic, the committed offsets and the state files of a group.

    Args:
        operator: the windows.
        logs: the records of each partition.
        idle_timeout_ms: the partition idle timeout of all queries.
        passes: whether a record passes the filter before the windows.
    """

    operator: WindowOperator
    logs: Mapping[TopicPartition, list[Record]]
    idle_timeout_ms: int | None = None
    passes: Callable[[Record], bool] = lambda _: True
    now_ms: int = START_MS
    commits: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    files: FakeStateFiles = field(default_factory=FakeStateFiles)
    rows: list[tuple[TopicPartition, Row]] = field(default_factory=list)
    #: The watermark of the last batch of each partition that was committed.
    watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    attempts: int = 0
    #: The number of records of open transactions at the end of each partition.
    open_records: dict[TopicPartition, int] = field(default_factory=dict)
    #: The rows in the states of the partitions, after the last batch of each.
    state_rows: dict[TopicPartition, int] = field(default_factory=dict)

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Owned]:
        return {tp: Owned.committed(*self.commits[tp]) for tp in partitions if tp in self.commits}

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: len(self.logs[tp]) + self.open_records.get(tp, 0) for tp in partitions}

    @property
    def minimum(self) -> Watermark:
        """The minimum over the committed states of all partitions."""
        found = self.committed(self.logs)
        return earliest(*(watermark_of(found[tp].state if tp in found else UNNAMED) for tp in self.logs))

    def reset(self, tp: TopicPartition, next_offset: int) -> None:
        """Resets an offset as Kafka's tool does: without metadata."""
        self.commits[tp] = next_offset, ""
        self.watermarks.pop(tp, None)


class GroupQuery:
    """A query of the group."""

    def __init__(self, group: GroupModel, number: int) -> None:
        self.group, self.number = group, 0
        self.member = Membership()
        self._run_id = f"{number:012x}"
        self._reports: list[StateReport] = []
        self._scope = Operator("billing", group.operator.name, group.operator.form, group.operator.schema)
        self._time = GroupTime(
            lambda: list(group.logs),
            group.committed,
            lambda topics: dict.fromkeys(topics, TOPIC),
            group.high_watermarks,
            lambda: group.now_ms,
            group.idle_timeout_ms,
        )
        self._states = OperatorStates(
            "memory",
            "billing",
            self._run_id,
            BatchSearch(lambda: StateStore(self._scope, group.files)),
            lambda run_id, number: self._reports,
            lambda: group.now_ms,
            high_watermarks=group.high_watermarks,
            time=self._time,
            flushes=True,
        )

    def explain(self) -> StreamExplanation | None:
        """The event time of its partitions after the next poll, for people."""
        owned = self.member.owned
        self._states.due(owned, {})
        return self._states.explain(f"query-{self._run_id[-1]}")

    def take(self, *partitions: TopicPartition) -> None:
        """Receives partitions, with the committed offsets of the group. Starting positions are committed at once."""
        for tp in partitions:
            self.group.commits.setdefault(tp, (0, CommitMark(False, identity=TOPIC, state=New()).encode()))
        known = self.group.committed(partitions)
        self.member = self.member.assign(known)

    def release(self, tp: TopicPartition) -> None:
        self.member, _ = self.member.release([tp])

    def step(
        self, records: Mapping[TopicPartition, int], *, is_killed: bool = False, ends: bool = False
    ) -> list[TaskPlan]:
        """Runs a batch.

        Args:
            records: the number of records to read from partitions.
            is_killed: whether the batch ends before its commit, and its output is dropped.
            ends: whether a bounded run ends: without anything else to run, the batch is a flush.

        Returns:
            The plans of its tasks; none if there is nothing to run.
        """
        owned = self.member.owned
        reads = [
            OffsetRange(tp, it.next_offset, min(it.next_offset + records.get(tp, 0), len(self.group.logs[tp])))
            for tp, it in owned.items()
        ]
        return self._batch([r for r in reads if len(r)], is_killed=is_killed, ends=ends)

    def admit(self, admission: BatchAdmission, *, is_bounded: bool = False) -> list[TaskPlan]:
        """Runs a batch with the records that it may read, as ``MicroBatches`` does."""
        owned = self.member.owned
        admission.finished({}, self.number)
        available = {tp: (it.next_offset, len(self.group.logs[tp])) for tp, it in owned.items()}
        times = self._states.event_times(owned)
        ranges = admission.ranges(available, times, is_limited=True, is_bounded=is_bounded)
        plans = self._batch(ranges)
        if plans:
            admission.planned(self.number, ranges)
        return plans

    def _batch(self, reads: Sequence[OffsetRange], *, is_killed: bool = False, ends: bool = False) -> list[TaskPlan]:
        owned = self.member.owned
        rest = owned.keys() - {r.topic_partition for r in reads}
        due = self._states.due(owned, {tp: owned[tp].next_offset for tp in rest})
        if ends and not (reads or due):
            due = self._states.to_flush(owned, {tp: it.next_offset for tp, it in owned.items()})
        if not (reads or due):
            return []
        self.number += 1
        running = InFlight(self.number, tuple(sorted((*reads, *due))))
        self.member = self.member.plan(running)
        plans = [it for it in self._states.task_plans(running, owned, [(r,) for r in running.ranges]) if it is not None]
        self._reports = []
        output = [found for plan in plans for found in self._run(plan)]
        if is_killed:
            self.member, _ = self.member.release(running.topic_partitions)
            self.take(*running.topic_partitions)
            return plans
        self.member, to_commit = self.member.finish(running.number, self._states.finished(running))
        for tp, next_offset in to_commit.items():
            mark = CommitMark(False, identity=TOPIC, state=self.member.owned[tp].state)
            self.group.commits[tp] = next_offset, mark.encode()
        self.group.rows += output
        return plans

    def _run(self, plan: TaskPlan) -> list[tuple[TopicPartition, Row]]:
        self.group.attempts += 1
        task = TaskStates(self.group.operator, decode(encode(plan)), StateStore(self._scope, self.group.files))
        [it] = plan.ranges
        tp, read = it.range.topic_partition, it.to_read
        if len(read):
            records = self.group.logs[tp][read.next_offset : read.end_offset]
            passed = pa.array([self.group.passes(it) for it in records], pa.bool_())
            task.add(batch(records, read.next_offset, tp.partition).filter(passed))
        manifest, output = task.finish(plan.file(self.group.attempts))
        self.group.state_rows |= {s.range.topic_partition: StateSize.of(s).rows for s in manifest.states}
        self._reports += [StateReport(s.range, manifest.file, s.due_ms, time=s.time) for s in manifest.states]
        return [(tp, row) for table in output for row in table.to_pylist()]
