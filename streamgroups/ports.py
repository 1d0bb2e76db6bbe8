"""What the domain needs from outside, as Protocols.

Implemented by ``streamgroups_kafka`` for real and by :mod:`streamgroups.fakes` in memory; one contract suite runs on both.
Source: KIP-396, KIP-709 (offsets), KIP-496 (forgetting them), KIP-734, KIP-429 and KIP-848 (membership).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, TypeVar

from streamgroups.errors import StreamGroupsError
from streamgroups.groups.description import GroupDescription, GroupListing
from streamgroups.groups.history import Kind
from streamgroups.groups.join_policy import LiveGroup
from streamgroups.groups.lag import FirstUnread, PartitionError, UnreadRecords
from streamgroups.groups.membership import InFlight, Membership
from streamgroups.identity import TopicIdentity
from streamgroups.message import Message
from streamgroups.partitions import Bounds, OffsetRange, TopicDescription, TopicPartition

#: What a sink writes for one batch: a staging table, files, rows.
_Output = TypeVar("_Output", contravariant=True)
_T = TypeVar("_T")


class Clock(Protocol):
    """Milliseconds since the epoch."""

    def __call__(self) -> int: ...


class SerialExecutor(Protocol):
    """Runs jobs one after the other, in one thread of its own: the owner of Kafka consumers."""

    def start(self, job: Callable[[], _T]) -> Future[_T]:
        """Queues a job behind the earlier ones."""

    def run(self, job: Callable[[], _T]) -> _T:
        """Queues a job, waits for it, and returns its result."""

    def finish(self, last: Callable[[], None]) -> Future[None]:
        """Queues the last job and does not wait. Callers call it once."""


class Recorder(Protocol):
    """Takes note of what happens to a member. Safe to call from any thread."""

    def __call__(
        self,
        kind: Kind,
        *,
        offsets: Mapping[TopicPartition, int] | None = None,
        ranges: Iterable[OffsetRange] = (),
        batch: int | None = None,
        note: str = "",
    ) -> None: ...


class Log(Protocol):
    """The topics of a cluster. Safe to call from any thread.

    Every method raises :class:`~streamgroups.errors.BrokerUnreachable` when no broker answers,
    :class:`~streamgroups.errors.NotAuthorized` when the broker refuses, and
    :class:`~streamgroups.errors.UnknownTopic` for a partition that does not exist.
    """

    def topics(self) -> Mapping[str, int]:
        """The number of partitions of every topic, internal ones left out."""
        ...

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The oldest offset of each partition that is still there."""
        ...

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record a reader may see (the last stable one under ``read_committed``)."""
        ...

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition, those of open transactions included."""
        ...

    def offsets_at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset whose timestamp is at or after a time, ``None`` if there is no such record."""
        ...

    def identities(self, topics: Collection[str]) -> dict[str, TopicIdentity]:
        """The ids of the cluster and of each topic. Topics that do not exist are left out; ids that the brokers do not give are ``None``."""
        ...

    def stored_bytes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """What each partition takes on its leader's disk. Those of which the broker does not say are left out; raises nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset and the metadata beside it."""

    next_offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class StampedOffset:
    """An offset and the timestamp of its record, in milliseconds since the epoch."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record as it is stored.

    Args:
        topic_partition: where.
        offset: its offset.
        timestamp_ms: its timestamp, in milliseconds since the epoch.
        key: its key.
        value: its value; ``None`` is a tombstone.
        headers: its headers, in order; a name may repeat.
    """

    topic_partition: TopicPartition
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Groups(Protocol):
    """The groups of a cluster, seen from outside. Safe to call from any thread; raises as :class:`Log` does."""

    def describe(self, group_id: str) -> LiveGroup:
        """The group as it is now; one without members if it does not exist."""
        ...

    def committed(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        """What the group has committed of these partitions; those without a committed offset are left out."""
        ...


class GroupAdmin(Protocol):
    """The groups of a cluster, for operating them: many at a time. Safe to call from any thread; raises as :class:`Log` does.

    What changes something answers with the failures of single partitions or groups; what is not in the answer was done.
    """

    def list_groups(self) -> list[GroupListing]:
        """All groups this user may see, by name."""
        ...

    def describe_groups(self, group_ids: Collection[str]) -> dict[str, GroupDescription]:
        """The groups as they are now; one that does not exist is ``Dead``."""
        ...

    def committed_offsets(self, group_ids: Collection[str]) -> dict[str, dict[TopicPartition, Committed]]:
        """Everything each group has committed."""
        ...

    def alter_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, Committed]
    ) -> dict[TopicPartition, StreamGroupsError]:
        """Commits in the group's name; it must have no members. A group that does not exist is made."""
        ...

    def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, StreamGroupsError]:
        """Forgets what the group has committed of these partitions; no member may read their topics."""
        ...

    def delete_groups(self, group_ids: Collection[str]) -> dict[str, StreamGroupsError]:
        """Deletes groups, their committed offsets included; they must have no members."""
        ...


class TopicAdmin(Protocol):
    """The topics of a cluster, for operating them. Safe to call from any thread; raises as :class:`Log` does."""

    def describe_topics(self, names: Collection[str] | None = None) -> dict[str, TopicDescription]:
        """These topics, or all; those that do not exist (or may not be seen) are left out."""
        ...

    def identities(self, topics: Collection[str]) -> dict[str, TopicIdentity]:
        """The ids of these topics, as :meth:`Log.identities`; those that do not exist are left out."""
        ...

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds | PartitionError]:
        """Where each partition begins and ends, or why nobody knows."""
        ...

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, StampedOffset | None]:
        """The first offset whose timestamp is at or after a time, ``None`` if there is no such record."""
        ...

    def newest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StampedOffset | None]:
        """The record with the latest timestamp of each partition, ``None`` if it holds none (KIP-734)."""
        ...

    def first_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, FirstUnread]:
        """The first record at or after an offset of each partition; those that could not be read in time are left out."""
        ...

    def count_unread(self, ranges: Collection[OffsetRange], limit_bytes: int) -> dict[TopicPartition, UnreadRecords]:
        """How many records lie in each of these ranges, at most one of each partition.

        What could not be counted with ``limit_bytes`` from each broker is an upper bound; of what cannot be read there is no answer.
        """
        ...

    def read(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int] | None
    ) -> Iterator[StoredRecord]:
        """The records of each partition from an offset to before another one; for ever if there is none."""
        ...


class MetadataStore(Protocol):
    """Notes beside partitions, kept as committed offsets of groups that nobody joins: :mod:`streamgroups.coordination.reset_protocol`.

    Safe to call from any thread; raises as :class:`Log` does.
    """

    def read(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        """What is noted for these partitions; those without a note are left out."""
        ...

    def write(self, group_id: str, notes: Mapping[TopicPartition, Committed]) -> None:
        """Replaces the notes of these partitions, all at once.

        Raises:
            GroupRejected: if the group has members: only they may then commit to it.
        """
        ...

    def close(self) -> None:
        """Lets go of connections. Call it once."""
        ...


@dataclass(frozen=True, slots=True)
class Batch:
    """What was read for one request.

    Args:
        messages: in the order of their offsets within a partition.
        reached: the next offset of each partition; gaps behind the last message count as read (SEMANTICS G13).
    """

    messages: tuple[Message, ...]
    reached: Mapping[TopicPartition, int]


class Records(Protocol):
    """Reads records from where it is told to. Used by one thread."""

    def read(self, positions: Mapping[TopicPartition, int], limit: int) -> Batch:
        """Up to ``limit`` messages of these partitions, from these offsets on.

        Raises:
            DataLoss: if a position is not, or no longer, in its partition.
            ReadTimedOut: if there are records, and none of them comes.
            StreamGroupsError: see :class:`Log`.
        """
        ...

    def close(self) -> None:
        """Lets go of connections. Idempotent."""
        ...


class Member(Protocol):
    """One member of a group, driven by one query. Only :meth:`join` and :meth:`close` wait."""

    def join(self, timeout_ms: int) -> None:
        """Asks to join and waits for the first assignment.

        Raises:
            StreamGroupsError: if the group refuses, or no assignment comes in time.
        """
        ...

    @property
    def membership(self) -> Membership:
        """What the member knows now.

        Raises:
            StreamGroupsError: if the member has failed for good; every later call raises the same.
        """
        ...

    def finish(self, number: int) -> None:
        """Batch ``number`` is done: commit what it read, fenced, as soon as the group allows."""
        ...

    def move(
        self,
        next_offsets: Mapping[TopicPartition, int],
        *,
        note: str,
        identities: Mapping[TopicPartition, TopicIdentity] = MappingProxyType({}),
    ) -> None:
        """Sets and commits positions of owned partitions that were not reached by reading.

        Args:
            next_offsets: the positions.
            note: why, for the log.
            identities: the topic that each is of. A position that is not named is of the topic that is there now.
        """
        ...

    def identify(self, identities: Mapping[TopicPartition, TopicIdentity]) -> None:
        """Sets the topics that the positions of owned partitions are of. Later commits carry them."""
        ...

    def rewind(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        """Sets positions of owned partitions and leaves the group where it is: what is read again is written already."""
        ...

    def plan(self, number: int, ranges: Mapping[TopicPartition, tuple[int, int]]) -> InFlight:
        """Begins a batch, of those ranges that may still be read at this moment.

        See :meth:`streamgroups.groups.membership.Membership.readable`.
        """
        ...

    def close(self) -> None:
        """Commits what is done, leaves the group. Idempotent, bounded in time."""
        ...


class LedgerTransaction(Protocol[_Output]):
    """A transaction of a sink, in which output and positions change together. Used by one thread."""

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the ledger stands; partitions that it does not know are left out.

        What was answered is still so when the transaction commits, or it does not commit: the rows are locked, or checked again,
        or whoever else could change them is fenced.
        """
        ...

    def write(self, output: _Output) -> None:
        """Adds the output of a batch. Nobody sees it before the transaction commits."""
        ...

    def identities(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, TopicIdentity]:
        """The topics that the ledger's positions are of; partitions without a known id are left out.

        Args:
            partitions: some of those that :meth:`positions` was asked for last.
        """
        ...

    def advance(
        self,
        next_offsets: Mapping[TopicPartition, int],
        identities: Mapping[TopicPartition, TopicIdentity] = MappingProxyType({}),
    ) -> None:
        """Sets positions, those of unknown partitions included. They are visible when the transaction has committed.

        Args:
            next_offsets: the positions.
            identities: the topics that they are of, as far as that is known.
        """
        ...

    def of(self, group_id: str) -> LedgerTransaction[_Output]:
        """The positions of another group, in this same transaction. A query that joins two streams reads for two groups.

        Args:
            group_id: the group. Request several groups in the order of their names: transactions that lock do not deadlock then.
        """
        ...


class Ledger(Protocol[_Output]):
    """The positions that a sink keeps beside its output, for one group: :mod:`streamgroups.ledgers.ledger`."""

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the ledger stands now; partitions that it does not know are left out.

        Raises:
            SinkUnreachable: if the sink does not answer.
        """
        ...

    def transaction(self) -> AbstractContextManager[LedgerTransaction[_Output]]:
        """Begins a transaction. It commits when the block ends, and is undone if the block raises.

        Raises:
            LedgerConflict: at the end of the block, if others have changed a position that was asked for; nothing is written.
            SinkUnreachable: if the sink does not answer. At the end of the block: it may have committed, or not; whoever
                judges the batch again will see.
        """
        ...
