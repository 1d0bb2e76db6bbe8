"""What ``micro_batches`` needs of the world, beside the ports of the library: so that a query can be tested without Spark or Kafka.

Implemented by ``source`` (with what ``streamgroups_kafka`` has), ``checkpoint_log``, ``participation`` and ``options``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from streamgroups.checkpoints.offset import BatchOffset
from streamgroups.checkpoints.restart import OnRestart
from streamgroups.groups.gaps import PartitionGap
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.groups.membership import InFlight, Membership, Owned
from streamgroups.groups.subscription import Subscription
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Groups, Log, Member
from streamgroups.positions import Positions
from streamgroups.query.admission import Limits
from streamgroups.query.data_loss import LossPolicies


class Cluster(Log, Groups, Protocol):
    """What a query needs of the cluster."""

    def check_reachable(self) -> None:
        """Raises :class:`~streamgroups.errors.BrokerUnreachable`, quickly, if no broker answers."""
        ...


class NewMember(Protocol):
    """Makes a member; called once per query."""

    def __call__(
        self,
        *,
        topics: Callable[[], Collection[str]],
        first_positions: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Owned]],
    ) -> Member: ...


class CommitLog(Protocol):
    """Spark's record of the query's batches (``streamgroups_spark.internals.checkpoint_log``)."""

    def has_finished(self, offset: Mapping[str, Any]) -> bool:
        """Whether the batch that ends at ``offset`` is done, if that can be known."""
        ...


class Resets(Protocol):
    """The orders of whoever moves the group (``streamgroups.query.reset_participation``)."""

    def join(self, member: Member, partitions: Collection[TopicPartition]) -> None:
        """From now on this is the query's member, of a group that reads these partitions."""
        ...

    def due(self) -> Collection[TopicPartition]:
        """The partitions that are about to move."""
        ...

    def follow(self) -> Collection[TopicPartition]:
        """Moves as far as all others let it, with nothing in flight; returns what must not be read yet."""
        ...

    def began(self, batch: InFlight) -> None:
        """A batch has begun, which others may want to see."""
        ...

    def close(self) -> None:
        """The query has ended."""
        ...


class SkippedRangeStore(Protocol):
    """What a query has left to its group, for its later runs (``streamgroups.query.skipped_range_store``)."""

    def note(self, batch: BatchOffset, left: Collection[TopicPartition]) -> None:
        """Notes which of its partitions a batch that runs again does not read. Before Spark can finish it."""
        ...

    def among(self, batch: BatchOffset, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Those of the partitions that a finished batch has not read, or for which that cannot be known."""
        ...


class GapRecorder(Protocol):
    """Where gaps are recorded (``streamgroups_kafka.admin.gap_records``)."""

    def now_ms(self) -> int:
        """The time to record, in milliseconds since the epoch."""
        ...

    def record(self, gaps: Collection[PartitionGap]) -> None:
        """Records gaps. Raises nothing."""
        ...


class Times(Protocol):
    """How far event time has come (``streamgroups_spark.event_time.query_time``)."""

    def finished(self, membership: Membership, number: int) -> None:
        """Batch ``number`` and all before it are done, and will be committed next. Asked before each batch, what is owned with it."""
        ...

    def looked(self, next_offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """The log was asked where partitions end, for readers of committed records if that is what the query reads."""
        ...


class QuerySettings(Protocol):
    """The part of the options that decides here (``streamgroups_spark.source.options.SourceOptions`` has it)."""

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
    def limits(self) -> Limits: ...
    @property
    def on_data_loss(self) -> LossPolicies: ...
