"""Further ports of ``streamgroups.query.micro_batches``, so that tests run a query without Spark and Kafka.

Implemented by the clients of ``streamgroups_kafka``, ``streamgroups_spark.bridge.checkpoint_log`` and
``streamgroups_spark.source.source_options``. :class:`Resets` and :class:`Times` do nothing; subclasses serve a query that is in
a group, or tracks event time. Source: SEMANTICS S1-S6.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.event_time.explanation import StreamExplanation
from streamgroups.groups.gaps import PartitionGap
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.groups.membership import InFlight, Membership, Owned, States
from streamgroups.groups.program import OnOtherProgram
from streamgroups.groups.subscription import Subscription
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import FirstPositions, Member, Recorder
from streamgroups.positions import Positions
from streamgroups.query.alignment import EventTimes
from streamgroups.query.data_loss import LossPolicies
from streamgroups.query.packing import Packing, pack, with_empty
from streamgroups.query.trigger_limits import Limits
from streamgroups.state.figures import BatchFigures
from streamgroups.state.task_plan import TaskPlan

#: Rejects assigned positions that belong to another program.
CheckPositions: TypeAlias = Callable[[Mapping[TopicPartition, Owned]], None]
#: Creates a member from the topics to subscribe to, from the first positions, and from the check of assigned positions. Called once
#: per query.
NewMember: TypeAlias = Callable[[Callable[[], Collection[str]], FirstPositions, CheckPositions], Member]


class CommitLog(Protocol):
    """Spark's commit log of the query (``streamgroups_spark.bridge.checkpoint_log``)."""

    def has_finished(self, offset: Mapping[str, Any]) -> bool:
        """Whether the batch that ends at ``offset`` is done; ``False`` if that is not known."""
        ...

    def has_begun(self) -> bool:
        """Whether the checkpoint contains a batch; ``False`` if its location is unknown.

        Raises:
            StateUnreachable: if it cannot be read.
        """
        ...


class GroupLimit(Protocol):
    """The maximum number of groups that read a topic (``streamgroups_kafka.admin.group_limit``)."""

    def check(self, topics: Collection[str]) -> None:
        """Rejects a new group.

        Raises:
            GroupRejected: if one of the topics has reached the limit (SEMANTICS G14).
        """
        ...


class Resets:
    """The reset requests for the group of a query. A query without a group has no requests.

    ``streamgroups.query.reset_participation`` follows those of a group.
    """

    def listen(self, record: Recorder) -> Recorder:
        """Returns a recorder that forwards all events, and reacts to assignments."""
        return record

    def join(self, member: Member, partitions: Collection[TopicPartition]) -> None:
        """Sets the member of the query, whose group reads these partitions. Does not wait."""

    def due(self) -> Collection[TopicPartition]:
        """The partitions that are about to be reset. A restarted query does not read their earlier ranges again."""
        return ()

    def follow(self) -> Collection[TopicPartition]:
        """Applies reset requests as far as the other members have paused, with nothing in flight.

        Returns the partitions that must not be read yet.
        """
        return ()

    def began(self, batch: InFlight) -> None:
        """Stores the ranges of a batch that has begun, for operators. Does not wait for the write."""

    def close(self) -> None:
        """Ends the participation of the query."""


class GapRecorder(Protocol):
    """Records gaps (``streamgroups_kafka.admin.gap_records``)."""

    def now_ms(self) -> int:
        """The time to record, in milliseconds since the epoch."""
        ...

    def record(self, gaps: Collection[PartitionGap]) -> None:
        """Records gaps. Raises nothing."""
        ...


class Times:
    """Receives the progress of event time, if the query tracks it (``streamgroups_spark.source.source_watermark``)."""

    def check(self) -> None:
        """Checks an imported watermark before the first batch. Only the first call has an effect.

        Raises:
            InvalidOption: if the group that the query imports from has no event time.
        """

    def finished(self, membership: Membership, number: int) -> None:
        """Batch ``number`` and all earlier ones are done, and their commit follows.

        Called before each batch, with the current membership.
        """

    def polled(self, next_offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """The end offsets have been read; the last stable offsets if the query reads committed records only."""

    def event_times(self) -> EventTimes | None:
        """The event time of each partition, for ``maxDrift``; ``None`` if the query does not track it."""
        return None


class BatchStates:
    """The states of the operator of a query. This class serves a query without one.

    See :mod:`streamgroups.query.operator_states`.
    """

    #: Whether partitions that are added to a topic are rejected, because its keys could change their partition (SEMANTICS C4).
    rejects_added: bool = False

    def check(self, partitions: Collection[TopicPartition]) -> None:
        """Checks the partitions that the group reads, before the first batch.

        Raises:
            InvalidOption: if the operator does not support them.
        """

    def is_written(self, r: OffsetRange, owned: Owned) -> bool:
        """Whether a task of an earlier run has written the state of the end of a range.

        Args:
            r: the range.
            owned: its partition, at the position and the state with which the task has continued.

        Raises:
            StreamGroupsError: if the storage of states does not answer, or a state is damaged.
        """
        return True

    def complete(
        self, ranges: Collection[OffsetRange], next_offsets: Mapping[TopicPartition, int]
    ) -> Collection[OffsetRange]:
        """The ranges that a batch can read, with the ranges that must be in the same batch.

        Args:
            ranges: the ranges to read.
            next_offsets: the positions of the partitions that may be read.
        """
        return ranges

    def due(
        self, owned: Mapping[TopicPartition, Owned], next_offsets: Mapping[TopicPartition, int]
    ) -> tuple[OffsetRange, ...]:
        """The partitions whose operator must run without new records, as empty ranges at their positions.

        Args:
            owned: the partitions of the member.
            next_offsets: the positions of the partitions that may be read, and that the batch does not read.
        """
        return ()

    def to_flush(
        self, owned: Mapping[TopicPartition, Owned], next_offsets: Mapping[TopicPartition, int]
    ) -> tuple[OffsetRange, ...]:
        """The partitions whose operator emits what is still open at the end of a bounded run, as empty ranges.

        Called when everything else is read, and after :meth:`due`. Empty for partitions that this run has flushed.

        Args:
            owned: the partitions of the member.
            next_offsets: the positions of the partitions that may be read.
        """
        return ()

    def event_times(self, owned: Mapping[TopicPartition, Owned]) -> EventTimes | None:
        """The event time of each partition of the group, for ``maxDrift``; ``None`` if the operator has no group time.

        Args:
            owned: the partitions of the member.
        """
        return None

    def pack(
        self,
        ranges: Sequence[OffsetRange],
        empty: Sequence[OffsetRange],
        packing: Packing,
        record_bytes: Mapping[TopicPartition, float],
    ) -> tuple[tuple[OffsetRange, ...], ...]:
        """The tasks of a batch.

        Args:
            ranges: the ranges with offsets.
            empty: the ranges without offsets.
            packing: how ranges are packed into tasks.
            record_bytes: the average record size of a partition, where it is known.
        """
        return with_empty(pack(ranges, packing, record_bytes), empty, packing)

    def task_plans(
        self, batch: InFlight, owned: Mapping[TopicPartition, Owned], tasks: Sequence[tuple[OffsetRange, ...]]
    ) -> Sequence[TaskPlan | None]:
        """The states of each task of a batch.

        Args:
            batch: the batch.
            owned: the partitions of the member when it planned the batch.
            tasks: the ranges of each task.
        """
        return [None] * len(tasks)

    def finished(self, batch: InFlight | None) -> States:
        """The states after a batch that is done."""
        return {}

    @property
    def figures(self) -> BatchFigures | None:
        """The figures of the last batch; ``None`` before it, and without an operator. Safe to call from any thread."""
        return None

    def explain(self, member: str) -> StreamExplanation | None:
        """Explains the event time of the states, and what holds back their watermark. Safe to call from any thread.

        Args:
            member: the member of the group.

        Returns:
            The partitions. ``None`` without event time, and before the first batch.
        """
        return None


class QuerySettings(Protocol):
    """The options that the query engine uses (implemented by ``streamgroups_spark.source.source_options.SourceOptions``)."""

    @property
    def group_id(self) -> str | None: ...
    @property
    def subscription(self) -> Subscription: ...
    @property
    def starting(self) -> Positions: ...
    @property
    def mode(self) -> MembershipMode: ...
    @property
    def on_restart(self) -> OnRestart: ...
    @property
    def on_other_program(self) -> OnOtherProgram: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def on_data_loss(self) -> LossPolicies: ...
