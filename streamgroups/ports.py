"""The ports of the library: its external dependencies as Protocols.

Used by the decisions in ``streamgroups``. Implemented by ``streamgroups_kafka`` and the sinks, and in memory by
:mod:`streamgroups.fakes`; one suite of contract tests covers both. Source: KIP-396, KIP-709 (offsets), KIP-496
(deletion of offsets), KIP-734, KIP-429 and KIP-848 (membership).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, TypeAlias, TypeVar

from streamgroups.errors import StreamGroupsError
from streamgroups.groups.description import GroupDescription, GroupListing
from streamgroups.groups.history import MemberEvent
from streamgroups.groups.lag import CountedLag, FirstOfLag, PartitionError
from streamgroups.groups.membership import InFlight, Membership, NewPosition, Owned, States
from streamgroups.identity import TopicIdentity
from streamgroups.message import Message
from streamgroups.partitions import Bounds, LogEnds, OffsetRange, StampedOffset, TopicDescription, TopicPartition

#: The output of a sink for one batch: a staging table, files, rows.
_Output = TypeVar("_Output", contravariant=True)
_T = TypeVar("_T")

#: Records events of a member. Safe to call from any thread.
Recorder: TypeAlias = Callable[[MemberEvent], None]

#: Returns positions of partitions without a committed offset. A member calls it during an assignment, on its thread.
FirstPositions: TypeAlias = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Owned]]


class Clock(Protocol):
    """Milliseconds since the epoch."""

    def __call__(self) -> int: ...


class SerialExecutor(Protocol):
    """Runs jobs one after the other. Safe to call from any thread."""

    def start(self, job: Callable[[], None]) -> None:
        """Runs a job in the background."""

    def run(self, job: Callable[[], _T]) -> _T:
        """Runs a job in the thread of the caller, and returns its result."""

    def finish(self, last: Callable[[], None]) -> None:
        """Runs the last job in the background. Later jobs do not run. Callers call it once."""


class Cluster(Protocol):
    """The topics and groups of a cluster, as queries and cursors use them. Safe to call from any thread.

    Every method raises :class:`~streamgroups.errors.BrokerUnreachable` when no broker answers,
    :class:`~streamgroups.errors.NotAuthorized` when the broker denies access, and
    :class:`~streamgroups.errors.UnknownTopic` for a partition that does not exist. The error of one partition, topic or
    group in a response is raised too, and never counts as its absence (SEMANTICS G17).
    """

    def check_reachable(self) -> None:
        """Raises :class:`~streamgroups.errors.BrokerUnreachable` after a short timeout if no broker answers."""
        ...

    def topics(self) -> Mapping[str, int]:
        """The number of partitions of every topic, without internal topics."""
        ...

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The earliest offset of each partition."""
        ...

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record that a reader may read (the last stable offset under ``read_committed``)."""
        ...

    def log_ends(self, partitions: Collection[TopicPartition]) -> LogEnds:
        """The same offsets as :meth:`end_offsets`, and the epochs of the leaders that returned them."""
        ...

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition, including those of open transactions."""
        ...

    def epoch_ends(
        self, leader_epochs: Mapping[TopicPartition, int], current: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The end of each leader epoch in the current log: no record before it has a greater leader epoch (KIP-320).

        If the log has no record of the epoch, it is the end of the greatest earlier epoch.

        Args:
            leader_epochs: the leader epochs.
            current: the current leader epochs, as far as they are known. A leader of an earlier epoch does not respond.

        Returns:
            The ends. Partitions whose brokers cannot compare leader epochs are left out.
        """
        ...

    def offsets_at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset whose timestamp is at or after a time; ``None`` if no such record exists."""
        ...

    def identities(self, topics: Collection[str]) -> dict[str, TopicIdentity]:
        """The ids of the cluster and of each topic.

        Topics that do not exist are left out. Ids that the brokers do not provide are ``None``.
        """
        ...

    def stored_bytes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The size of each partition on the disk of its leader, in bytes.

        Partitions of unknown size are left out. Raises nothing.
        """
        ...

    def describe(self, group_id: str) -> GroupDescription:
        """The current state of the group. A group without members is ``Empty``, also if it does not exist."""
        ...

    def committed(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        """The committed offsets of the group. Partitions without a committed offset are left out."""
        ...


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset and the metadata beside it."""

    next_offset: int
    metadata: str = ""


class GroupAdmin(Protocol):
    """The groups of a cluster, for operators. Each request covers many groups.

    Safe to call from any thread. Raises the errors of :class:`Cluster`. A method that changes something returns the errors
    of single partitions or groups. For all others the change succeeded.
    """

    def list_groups(self) -> list[GroupListing]:
        """All groups that this user may describe, by name."""
        ...

    def describe_groups(self, group_ids: Collection[str]) -> dict[str, GroupDescription]:
        """The current state of the groups. A group that does not exist is ``Dead``."""
        ...

    def committed_offsets(
        self,
        group_ids: Collection[str],
        partitions: Collection[TopicPartition] | None = None,
        *,
        optional: Collection[str] = (),
    ) -> dict[str, dict[TopicPartition, Committed]]:
        """The committed offsets of each group.

        Args:
            group_ids: the groups.
            partitions: the partitions; ``None`` for all of topics that this user may describe.
            optional: those groups that are left out of the result if this user may not describe them. Without it, that is
                an error.
        """
        ...

    def alter_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, Committed]
    ) -> dict[TopicPartition, StreamGroupsError]:
        """Commits offsets for a group without members. Creates the group if it does not exist.

        Too many for one commit are divided. The error of a later commit is returned with its partitions and the rest.
        """
        ...

    def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, StreamGroupsError]:
        """Deletes the committed offsets of these partitions. No member may read their topics."""
        ...

    def delete_groups(self, group_ids: Collection[str]) -> dict[str, StreamGroupsError]:
        """Deletes groups without members, including their committed offsets."""
        ...


class TopicAdmin(Protocol):
    """The topics of a cluster, for operators. Safe to call from any thread. Raises the errors of :class:`Cluster`."""

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> bool:
        """Creates a topic, and waits until it is visible. An existing topic stays as it is.

        Args:
            name: its name.
            partitions: its number of partitions; ``None`` for the default of the cluster.
            replication_factor: its number of replicas; ``None`` for the default of the cluster.
            settings: its settings, such as ``retention.ms``.

        Returns:
            Whether it was created; ``False`` if it existed.

        Raises:
            InvalidOption: if the cluster rejects an argument.
        """
        ...

    def describe_topics(
        self, names: Collection[str] | None = None, *, operation: str = "Describe"
    ) -> dict[str, TopicDescription]:
        """These topics, or all that this user may describe. Topics that do not exist are left out.

        Args:
            names: the topics; ``None`` for all.
            operation: the operation that the user needs, for the remedy of an error. It includes Describe.

        Raises:
            NotAuthorized: if this user may not describe one of these topics.
        """
        ...

    def identities(self, topics: Collection[str]) -> dict[str, TopicIdentity]:
        """The ids of these topics, as :meth:`Cluster.identities`. Topics that do not exist are left out."""
        ...

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds | PartitionError]:
        """The earliest offset and the end of each partition, or the reason why they are unknown."""
        ...

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, StampedOffset | None]:
        """The first offset whose timestamp is at or after a time; ``None`` if no such record exists.

        Raises:
            BrokerUnreachable: if a partition has no leader. Whether it has such a record is unknown then.
        """
        ...

    def newest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StampedOffset | None]:
        """The record with the latest timestamp of each partition; ``None`` for an empty partition (KIP-734).

        Partitions whose :meth:`bounds` are unknown are left out.
        """
        ...

    def first_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, FirstOfLag]:
        """The first record at or after an offset of each partition.

        Partitions that could not be read in time are left out.
        """
        ...

    def count_lag(self, ranges: Collection[OffsetRange], limit_bytes: int) -> dict[TopicPartition, CountedLag]:
        """The number of records in each of these ranges, with at most one range of each partition.

        Args:
            ranges: the ranges.
            limit_bytes: how many bytes to read from each broker. A count that needs more is an upper bound.

        Returns:
            The counts. Partitions that cannot be read are left out.
        """
        ...

    def read(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int] | None,
    ) -> Iterator[Message]:
        """The records of each partition from a start offset to before an end offset.

        Args:
            starts: the start offset of each partition.
            ends: the end offset of each partition. Without them it does not end.
        """
        ...


class MetadataStore(Protocol):
    """Metadata entries of partitions, stored as committed offsets of groups without members.

    See :mod:`streamgroups.coordination.reset_protocol`. Safe to call from any thread. Raises the errors of
    :class:`Cluster`.
    """

    def read(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        """The metadata entries of these partitions. Partitions without an entry are left out."""
        ...

    def write(self, group_id: str, entries: Mapping[TopicPartition, Committed]) -> None:
        """Replaces the metadata entries of these partitions. After an error, some of many entries can be replaced.

        Raises:
            GroupRejected: if the group has members, because only they may commit then.
        """
        ...

    def close(self) -> None:
        """Closes connections. Call it once."""
        ...


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of one read request.

    Args:
        messages: in the order of their offsets within a partition.
        reached: the next offset of each partition. Gaps after the last message count as read (SEMANTICS G13).
    """

    messages: tuple[Message, ...]
    reached: Mapping[TopicPartition, int]


class Records(Protocol):
    """Reads records from given positions. Used by one thread."""

    def read(
        self, positions: Mapping[TopicPartition, int], limit: int, until: Mapping[TopicPartition, int] = ...
    ) -> Batch:
        """Up to ``limit`` messages of these partitions, from these offsets on, in the order of partitions and offsets.

        Args:
            positions: the next offset of each partition.
            limit: the maximum number of messages.
            until: the end offsets of an earlier request from these positions, to read its messages again: only the
                messages before them. Empty for a new request.

        Raises:
            DataLoss: if a position is not, or no longer, in its partition.
            ReadTimedOut: if records exist, and none arrives in time.
            StreamGroupsError: see :class:`Cluster`.
        """
        ...

    def close(self) -> None:
        """Closes connections. Idempotent."""
        ...


class Member(Protocol):
    """One member of a group, used by one query.

    Only :meth:`join` and :meth:`close` wait, and :meth:`move` for the ledger of a sink.
    """

    def join(self, timeout_ms: int) -> None:
        """Joins the group and waits for the first assignment.

        Raises:
            StreamGroupsError: if the group rejects the member, or no assignment arrives in time.
        """
        ...

    @property
    def member_id(self) -> str:
        """The id that the group has assigned to the member; empty before it has joined."""
        ...

    @property
    def membership(self) -> Membership:
        """The current membership.

        Raises:
            StreamGroupsError: if the member has failed permanently. Every later call raises the same error.
        """
        ...

    def finish(self, number: int, states: States = MappingProxyType({})) -> None:
        """Commits batch ``number``, which is done, as soon as the group permits it.

        The broker rejects the commit of a fenced member.

        Args:
            number: the number of the batch.
            states: the states after the batch. The commit names them.
        """
        ...

    def move(self, decided: Mapping[TopicPartition, NewPosition], *, detail: str) -> frozenset[TopicPartition]:
        """Sets and commits positions of owned partitions that were not reached by reading.

        Args:
            decided: the positions. A decision of an earlier ownership epoch changes nothing, in the group or in a ledger
                (SEMANTICS F3).
            detail: the reason, for the log.

        Returns:
            The partitions whose position was set.

        Raises:
            StreamGroupsError: if the ledger of a sink cannot move to these positions. Then no position changes.
        """
        ...

    def identify(self, found: Mapping[TopicPartition, Owned]) -> None:
        """Sets the topics, states and leader epochs of positions that have not changed. Later commits contain them.

        Args:
            found: the owned partitions, as they were when these were determined.
        """
        ...

    def rewind(self, decided: Mapping[TopicPartition, NewPosition]) -> None:
        """Sets positions of owned partitions and does not commit them: the output of their records is already written."""
        ...

    def clear_form(self) -> None:
        """Commits the positions again without the form of the program, before the member leaves the group to another program."""
        ...

    def plan(self, number: int, ranges: Collection[OffsetRange]) -> InFlight:
        """Begins a batch with those ranges that may be read at this moment.

        See :meth:`streamgroups.groups.membership.Membership.readable`.
        """
        ...

    def close(self) -> None:
        """Commits finished batches and leaves the group. Idempotent. Ends within a bounded time."""
        ...


class LedgerTransaction(Protocol[_Output]):
    """A transaction of a sink that changes output and positions together. Used by one thread."""

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The positions of the ledger. Partitions without a position are left out.

        The transaction commits only if the returned positions are still valid at its end. The sink locks the rows,
        checks them again, or fences every other client that could change them.
        """
        ...

    def write(self, output: _Output) -> None:
        """Adds the output of a batch. It is visible after the transaction has committed."""
        ...

    def identities(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, TopicIdentity]:
        """The topics of the ledger's positions. Partitions without a known id are left out.

        Args:
            partitions: some of the partitions of the last call of :meth:`positions`.
        """
        ...

    def advance(
        self,
        next_offsets: Mapping[TopicPartition, int],
        identities: Mapping[TopicPartition, TopicIdentity] = MappingProxyType({}),
    ) -> None:
        """Sets positions, also of new partitions. They are visible after the transaction has committed.

        Args:
            next_offsets: the positions.
            identities: the topics of the positions, as far as they are known.
        """
        ...

    def of(self, group_id: str) -> LedgerTransaction[_Output]:
        """The positions of another group in the same transaction. A query that joins two streams reads for two groups.

        Args:
            group_id: the group. Request several groups in the order of their names: then transactions with locks do not
                deadlock.
        """
        ...


class Ledger(Protocol[_Output]):
    """The positions that a sink stores beside its output, for one group: :mod:`streamgroups.ledgers.compare_and_swap`."""

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The current positions of the ledger. Partitions without a position are left out.

        Raises:
            SinkUnreachable: if the sink does not answer.
        """
        ...

    def transaction(self) -> AbstractContextManager[LedgerTransaction[_Output]]:
        """Begins a transaction. It commits at the end of the block, and is rolled back if the block raises.

        Raises:
            LedgerConflict: at the end of the block, if another transaction has changed a position that was read.
                Nothing is written.
            SinkUnreachable: if the sink does not answer. At the end of the block the transaction may have committed or
                not; the next check of the batch against the ledger shows it.
        """
        ...
