"""The messages between sources and sinks of the driver RPC (``bridge.rpc``).

A sink requests facts about its batch (``sinks.batch_info``), and the source returns them (``source.running_query``).
Before a query starts, its source requests the ledger of its group from the user's process (``sinks.ledger_registry``).
Source: SEMANTICS X2, X3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streamgroups.groups.description import GroupDescription
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.groups.membership import InFlight, Owned, States
from streamgroups.monitoring.member_reports import BatchFlight, QueryStates, WaitingPartitions
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.membership.member_state import MemberSnapshot


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """Requests the facts of the batch with this end offset.

    Args:
        end: the offset as Spark has logged it for the source.
        to_commit: whether the caller then commits the offsets of the source in its own transaction.
        confirmed: whether the broker must confirm that the member is still in its group. Without its confirmation the reply
            has no group metadata.
    """

    end: Mapping[str, Any]
    to_commit: bool = False
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class CommittedRequest:
    """Requests the committed offsets of the group that reads a batch. The reply is a :class:`CommittedReply`.

    ``streamgroups_spark.stable_input`` sends it to the source of the batch. A group of the same name can exist in another
    cluster, and have other offsets.

    Args:
        end: the end offset of the batch, as Spark has logged it for the source.
        partitions: the partitions.
    """

    end: Mapping[str, Any]
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class CommittedReply:
    """The committed offsets of a group.

    Args:
        next_offsets: the committed offset of each partition that has one.
    """

    next_offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class BatchWritten:
    """Reports that the batch with this end offset is written, and that its offsets are committed with it.

    The reply is ``True``.

    Args:
        end: the offset as Spark has logged it for the source.
    """

    end: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OutputWritten:
    """Reports a batch that is written, if it has dead letters or a sink has divided it (``bridge.task_reports``).

    It has no reply.

    Args:
        query_id: the id of the query.
        letters: the number of dead letters of each step.
        statements: the number of statements that have written a divided batch, by the way of division; empty if the
            target has written it at once.
    """

    query_id: str
    letters: Mapping[str, int]
    statements: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LedgerRequest:
    """Requests the sink that stores the ledger of a query. The reply is a :class:`LedgerReply`.

    The source sends it to the user's process (``sinks.ledger_registry``).

    Args:
        group_id: the group of the source.
        checkpoint: the checkpoint of the query, as Spark has resolved it. ``None`` if it is unknown.
        sink: the sink of the query, as in ``QueryFacts``. ``None`` if it is unknown.
    """

    group_id: str
    checkpoint: str | None
    sink: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerReply:
    """The sink that stores the ledger of a query (``bridge.pickled_ledger``).

    Args:
        pickled: the sink, pickled by ``cloudpickle``.
    """

    pickled: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class FiguresRequest:
    """Requests the figures of a query for metrics. The reply is :class:`Figures`.

    ``ops.metrics_listener`` sends it to all sources.
    """


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a query that Spark does not report, or only after a batch.

    Args:
        flight: how long its batch has been in flight. ``None`` before it has a member, and with the option ``assign``.
        states: the figures of its operators with state, if it has some.
        waiting: the partitions that wait by ``maxDrift``, if it has this option.
    """

    flight: BatchFlight | None = None
    states: QueryStates | None = None
    waiting: WaitingPartitions | None = None


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """The current state of a batch in its source.

    Args:
        end: the end offset.
        group_id: the group of the source.
        member: the name of the source in the group.
        ranges: the ranges that the batch reads. Empty for a no-data batch.
        held: those of ``ranges`` that the member still owns.
        written: those of ``ranges`` that the sink had committed before a restart.
        group_metadata: the consumer group metadata of the member. ``None`` if the member may be fenced.
        mode: the membership of the source.
        joins: whether the source joins the group. With the option ``assign`` it does not.
        states_run_id: the run under which tasks report states. ``None`` if the query has no operator with state in the
            stage that reads.
        owned: the partitions of the ranges, as the member owned them when it planned the batch.
        form: the form of the program of the source.
        marks: the metadata of the committed positions at which the ranges begin. A partition whose position has changed since
            is left out.
        query_id: Spark's id of the query. ``None`` if the source does not have it.
        may_repeat_no_data: whether a batch with records can repeat a no-data batch: Spark keeps state of the stream, or that is
            unknown, and a Kafka sink has not yet committed a batch of this run.
        tasks: the usual number of tasks of a batch; ``None`` if it is unknown.
    """

    end: Mapping[str, Any]
    group_id: str
    member: str
    ranges: tuple[OffsetRange, ...]
    held: tuple[OffsetRange, ...]
    written: tuple[OffsetRange, ...]
    group_metadata: ConsumerGroupMetadata | None
    mode: MembershipMode
    joins: bool
    states_run_id: str | None = None
    owned: Mapping[TopicPartition, Owned] = field(default_factory=dict)
    form: str = ""
    marks: Mapping[TopicPartition, str] = field(default_factory=dict)
    query_id: str | None = None
    may_repeat_no_data: bool = False
    tasks: int | None = None

    @property
    def states(self) -> States:
        """The states from which the ranges continue. Empty without an operator with state in the stage that reads."""
        return {} if self.states_run_id is None else {tp: it.state for tp, it in self.owned.items()}

    @property
    def epochs(self) -> dict[TopicPartition, int]:
        """The ownership epochs of the ranges."""
        return {tp: it.epoch for tp, it in self.owned.items()}


def confirmed_by(group: GroupDescription, snapshot: MemberSnapshot) -> MemberSnapshot:
    """Returns a snapshot without group metadata if its member is no longer in the group.

    If the member is in the group, no other member has owned the partitions of the snapshot before the snapshot: the group
    assigns a partition to another member only after its owner has released it, or was removed.

    Args:
        group: the description by the broker, requested after the snapshot.
        snapshot: the snapshot.

    >>> from streamgroups.groups.description import GroupMember
    >>> metadata = ConsumerGroupMetadata("board", 7, "one-1")
    >>> group = GroupDescription("board", "Stable", members=(GroupMember("one", "/10.0.0.2", member_id="one-1"),))
    >>> confirmed_by(group, MemberSnapshot(None, metadata)).group_metadata == metadata
    True
    >>> confirmed_by(GroupDescription("board", "Empty"), MemberSnapshot(None, metadata)).group_metadata is None
    True
    """
    metadata = snapshot.group_metadata
    if metadata is None or any(member.member_id == metadata.member_id for member in group.members):
        return snapshot
    return replace(snapshot, group_metadata=None)


def facts_of(
    source: BatchFacts,
    run: InFlight,
    snapshot: MemberSnapshot,
    written: InFlight,
    owned: Mapping[TopicPartition, Owned],
) -> BatchFacts:
    """Completes the facts of the batch that Spark runs.

    Args:
        source: the facts without ranges.
        run: the number of the batch, and all ranges that it reads.
        snapshot: the ranges in flight and the group metadata of the member at one moment.
        written: the batch that was already written, completely or partly, when the query was restarted.
        owned: the partitions of the member when the batch was planned.

    >>> from streamgroups.partitions import TopicPartition
    >>> r = OffsetRange(TopicPartition("flights", 0), 10, 20)
    >>> source = BatchFacts({}, "board", "a", (), (), (), None, MembershipMode.SHARED, joins=True)
    >>> facts = facts_of(source, InFlight(3, (r,)), MemberSnapshot(InFlight(3, ()), None), InFlight(0, ()), {})
    >>> facts.ranges == (r,), facts.held
    (True, ())
    """
    # After a finished batch Spark runs a no-data batch to advance the watermark.
    is_in_flight = snapshot.in_flight is not None and snapshot.in_flight.number == run.number
    planned = run.ranges if is_in_flight else ()
    done = frozenset(written.ranges if written.number == run.number else ())
    return replace(
        source,
        ranges=planned,
        held=snapshot.in_flight.ranges if snapshot.in_flight is not None and planned else (),
        written=tuple(r for r in planned if r in done),
        group_metadata=snapshot.group_metadata,
        owned={r.topic_partition: owned[r.topic_partition] for r in planned if r.topic_partition in owned},
        marks=snapshot.marks if planned else {},
    )
