"""Further ports of ``streamgroups.query.micro_batches``, so that tests run a query without Spark and Kafka.

Implemented by ``streamgroups_spark.source.running_query`` (with the clients of ``streamgroups_kafka``),
``streamgroups_spark.internals.checkpoint_log``, ``streamgroups.query.reset_participation`` and
``streamgroups_spark.source.options``. Source: SEMANTICS S1-S6.
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
    """The part of the Kafka cluster that a query uses."""

    def check_reachable(self) -> None:
        """Raises :class:`~streamgroups.errors.BrokerUnreachable` after a short timeout if no broker answers."""
        ...


class NewMember(Protocol):
    """Creates a member. Called once per query."""

    def __call__(
        self,
        *,
        topics: Callable[[], Collection[str]],
        first_positions: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Owned]],
    ) -> Member: ...


class CommitLog(Protocol):
    """Spark's commit log of the query (``streamgroups_spark.internals.checkpoint_log``)."""

    def has_finished(self, offset: Mapping[str, Any]) -> bool:
        """Whether the batch that ends at ``offset`` is done; ``False`` if that is not known."""
        ...


class Resets(Protocol):
    """The reset requests for the group of a query (``streamgroups.query.reset_participation``)."""

    def join(self, member: Member, partitions: Collection[TopicPartition]) -> None:
        """Sets the member of the query, whose group reads these partitions."""
        ...

    def due(self) -> Collection[TopicPartition]:
        """The partitions that are about to be reset."""
        ...

    def follow(self) -> Collection[TopicPartition]:
        """Applies reset requests as far as the other members have paused, with nothing in flight.

        Returns the partitions that must not be read yet.
        """
        ...

    def began(self, batch: InFlight) -> None:
        """Stores the ranges of a batch that has begun, for operators."""
        ...

    def close(self) -> None:
        """Ends the participation of the query."""
        ...


class SkippedRangeStore(Protocol):
    """The skipped ranges of a query, stored for its later runs (``streamgroups.query.skipped_range_store``)."""

    def note(self, batch: BatchOffset, left: Collection[TopicPartition]) -> None:
        """Stores the partitions of a replayed batch that the query does not read.

        Called before Spark can finish the batch.
        """
        ...

    def among(self, batch: BatchOffset, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Those of the partitions that a finished batch has not read, or for which that is unknown."""
        ...


class GapRecorder(Protocol):
    """Records gaps (``streamgroups_kafka.admin.gap_records``)."""

    def now_ms(self) -> int:
        """The time to record, in milliseconds since the epoch."""
        ...

    def record(self, gaps: Collection[PartitionGap]) -> None:
        """Records gaps. Raises nothing."""
        ...


class Times(Protocol):
    """Receives the progress of event time (``streamgroups_spark.event_time.query_time``)."""

    def finished(self, membership: Membership, number: int) -> None:
        """Batch ``number`` and all earlier ones are done, and their commit follows.

        Called before each batch, with the current membership.
        """
        ...

    def looked(self, next_offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """The end offsets have been read; the last stable offsets if the query reads committed records only."""
        ...


class QuerySettings(Protocol):
    """The options that the query engine uses (implemented by ``streamgroups_spark.source.options.SourceOptions``)."""

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
