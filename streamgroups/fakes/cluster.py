"""The topics and committed offsets of a cluster, in memory.

Implements :class:`streamgroups.ports.Cluster`. Offsets behave as in Kafka: they
start at 0 and only increase, and between records there can be offsets without one (SEMANTICS G13).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from streamgroups.errors import (
    BrokerUnreachable,
    DataLoss,
    GroupRejected,
    NotAuthorized,
    ReadTimedOut,
    StreamGroupsError,
    UnknownTopic,
)
from streamgroups.groups.description import GroupDescription
from streamgroups.identity import TopicIdentity
from streamgroups.message import Message
from streamgroups.partitions import LogEnds, OffsetRange, TopicPartition
from streamgroups.ports import Clock, Committed


@dataclass(slots=True)
class _Partition:
    beginning_offset: int = 0
    end_offset: int = 0
    records: list[Message] = field(default_factory=list)
    #: The first offset of each open transaction.
    open: dict[FakeTransaction, int] = field(default_factory=dict)
    #: The offsets of records of aborted transactions.
    aborted: set[int] = field(default_factory=set)
    #: Each leader epoch, and its first offset. The last one is that of the leader.
    leader_epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])

    @property
    def last_stable_offset(self) -> int:
        """The end of the partition for readers of committed records."""
        return min(self.open.values(), default=self.end_offset)

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leader."""
        return self.leader_epochs[-1][0]

    def truncate(self, end_offset: int) -> None:
        """Removes the records from an offset on, and begins the next leader epoch there."""
        self.end_offset = end_offset
        self.records = [it for it in self.records if it.offset < end_offset]
        self.open = {transaction: first for transaction, first in self.open.items() if first < end_offset}
        self.aborted = {offset for offset in self.aborted if offset < end_offset}
        self.leader_epochs = [
            *(it for it in self.leader_epochs if it[1] < end_offset),
            (self.leader_epoch + 1, end_offset),
        ]


class FakeTransaction:
    """A producer's open transaction, which :meth:`FakeCluster.begin_transaction` creates.

    Its end adds one offset without a record to each partition: the transaction marker.
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._written: list[tuple[_Partition, range]] = []
        self._offsets: dict[str, dict[TopicPartition, Committed]] = {}

    def add(self, partition: _Partition, offsets: range) -> None:
        """Adds the offsets of records of the transaction."""
        partition.open.setdefault(self, offsets.start)
        self._written.append((partition, offsets))

    def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Adds offsets, which take effect when the transaction commits. Until it ends, they are unstable."""
        self._offsets.setdefault(group_id, {}).update(offsets)

    def offsets_of(self, group_id: str) -> frozenset[TopicPartition]:
        """The partitions whose offsets the transaction can still change."""
        return frozenset(self._offsets.get(group_id, ()))

    def commit(self) -> None:
        """Makes the records visible to readers of committed records, and commits the offsets."""
        for group_id, offsets in self._offsets.items():
            for tp, committed in offsets.items():
                self._cluster.commit(group_id, {tp: committed.next_offset}, committed.metadata)
        self._end()

    def abort(self) -> None:
        """Hides the records from readers of committed records permanently. Other readers have already read them."""
        for partition, offsets in self._written:
            partition.aborted.update(offsets)
        self._end()

    def _end(self) -> None:
        for partition, _ in self._written:
            if partition.open.pop(self, None) is not None:
                partition.end_offset += 1
        self._written.clear()
        self._offsets.clear()


#: The id of the only broker.
BROKER = 1
#: The maximum metadata of a commit (``offset.metadata.max.bytes``). A broker counts the characters of Java's strings.
MAX_METADATA_UNITS = 4_096


def utf16_units(text: str) -> int:
    """Returns the length of a text in Java.

    >>> utf16_units("a"), utf16_units("\u00e9"), utf16_units("\U0001f6eb")
    (1, 1, 2)
    """
    return len(text.encode("utf-16-le")) // 2


class FakeCluster:
    """A cluster that responds at once and loses nothing.

    Args:
        clock: the source of record timestamps.
        read_committed: whether its readers see committed records only, as with ``isolation.level=read_committed``.

    >>> cluster = FakeCluster(lambda: 1_000)
    >>> cluster.create_topic("flights", 2)
    >>> p0 = TopicPartition("flights", 0)
    >>> print(cluster.produce(p0, 3))
    flights-0[0,3)
    >>> cluster.leave_gap(p0, 2)
    >>> print(cluster.produce(p0))
    flights-0[5,6)
    >>> [record.offset for record in cluster.read(OffsetRange(p0, 1, 6))]
    [1, 2, 5]
    >>> cluster.offsets_at_times({p0: 1_001})
    {TopicPartition(topic='flights', partition=0): None}
    >>> transaction = cluster.begin_transaction()
    >>> print(cluster.produce(p0, 2, transaction=transaction))
    flights-0[6,8)
    >>> cluster.reading_committed().end_offsets([p0])[p0], cluster.end_offsets([p0])[p0]
    (6, 8)
    """

    def __init__(self, clock: Clock, *, read_committed: bool = False) -> None:
        self._clock, self._read_committed = clock, read_committed
        self._topics: dict[str, list[_Partition]] = {}
        self._committed: dict[str, dict[TopicPartition, Committed]] = {}
        self._live: dict[str, Callable[[], GroupDescription]] = {}
        self._transactions: list[FakeTransaction] = []
        self._topic_ids: dict[str, str] = {}
        self._n_recreated = 0
        #: Its id; ``None`` as from brokers without one.
        self.cluster_id: str | None = "fake-cluster"
        #: Whether topics have ids, as from brokers since 2.8.
        self.has_topic_ids = True
        #: Whether brokers return leader epochs, and compare them.
        self.has_leader_epochs = True
        #: While false, every request fails with ``BrokerUnreachable``.
        self.reachable = True
        #: The errors of parts of responses: of a topic, of a partition, or of the committed offset of a group.
        self.rejections: dict[str | TopicPartition | tuple[str, TopicPartition], StreamGroupsError] = {}

    # ---- actions of tests
    # ----------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Creates a topic. An existing one is recreated, empty, with another topic id."""
        self._topics[name] = [_Partition() for _ in range(partitions)]
        self._n_recreated += name in self._topic_ids
        self._topic_ids[name] = f"id-{self._n_recreated}-of-{name}" if name in self._topic_ids else f"id-of-{name}"

    def add_partitions(self, name: str, partitions: int) -> None:
        """Increases the partitions of a topic to this number."""
        self._topics[name] += [_Partition() for _ in range(partitions - len(self._topics[name]))]

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with all its records. Committed offsets remain, as on a real cluster for some time."""
        del self._topics[name]

    def produce(
        self,
        topic_partition: TopicPartition,
        count: int = 1,
        *,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        timestamp_ms: int | None = None,
        transaction: FakeTransaction | None = None,
    ) -> OffsetRange:
        """Appends ``count`` records, in a transaction if one is given. The default timestamp is that of the clock.

        Returns:
            Their offsets.
        """
        partition = self._partition(topic_partition)
        first = partition.end_offset
        stamp_ms = self._clock() if timestamp_ms is None else timestamp_ms
        partition.end_offset += count
        partition.records += [
            Message(topic_partition.topic, topic_partition.partition, offset, stamp_ms, key, value, headers)
            for offset in range(first, partition.end_offset)
        ]
        if transaction is not None:
            transaction.add(partition, range(first, partition.end_offset))
        return OffsetRange(topic_partition, first, partition.end_offset)

    def begin_transaction(self) -> FakeTransaction:
        """Begins a transaction. While it is open, readers of committed records stop before its first record."""
        transaction = FakeTransaction(self)
        self._transactions.append(transaction)
        return transaction

    def unstable_offsets(self, group_id: str) -> frozenset[TopicPartition]:
        """The partitions with an unstable committed offset, which an open transaction would change (KIP-447)."""
        return frozenset().union(*(t.offsets_of(group_id) for t in self._transactions))

    def reading_committed(self) -> FakeCluster:
        """Returns the same topics and groups for a reader of committed records."""
        view = copy.copy(self)
        view._read_committed = True
        return view

    def leave_gap(self, topic_partition: TopicPartition, count: int = 1) -> None:
        """Appends offsets without a record, such as transaction markers and compacted records."""
        self._partition(topic_partition).end_offset += count

    def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> None:
        """Deletes the records before an offset, as retention does."""
        partition = self._partition(topic_partition)
        partition.beginning_offset = max(partition.beginning_offset, before_offset)
        partition.records = [r for r in partition.records if r.offset >= before_offset]

    def elect_leader(self, topic_partition: TopicPartition, end_offset: int | None = None) -> None:
        """Elects a leader, of the next leader epoch.

        Args:
            topic_partition: the partition.
            end_offset: the end of the log of the new leader, after an unclean election; ``None``: it has all records.
        """
        partition = self._partition(topic_partition)
        partition.truncate(partition.end_offset if end_offset is None else end_offset)

    def read(self, offset_range: OffsetRange) -> tuple[Message, ...]:
        """Returns the records of a range.

        Raises:
            DataLoss: if the range is not, or no longer, complete.
            ReadTimedOut: if a reader of committed records would wait for the end of a transaction.
        """
        partition = self._partition(offset_range.topic_partition)
        if offset_range.next_offset < partition.beginning_offset or offset_range.end_offset > partition.end_offset:
            raise DataLoss(
                f"{offset_range} does not exist: the available offsets are "
                f"[{partition.beginning_offset}, {partition.end_offset}).",
                remedy="Produce more, delete less, or read existing records.",
            )
        if self._read_committed and len(offset_range) and offset_range.end_offset > partition.last_stable_offset:
            raise ReadTimedOut(
                f"{offset_range} is not committed: a transaction is open from offset {partition.last_stable_offset}.",
                remedy="End the transaction, or read the records before it.",
            )
        hidden = partition.aborted if self._read_committed else ()
        return tuple(
            r
            for r in partition.records
            if offset_range.next_offset <= r.offset < offset_range.end_offset and r.offset not in hidden
        )

    def commit(self, group_id: str, next_offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Sets committed offsets without a check of the caller, as a tool does for a group without members.

        Raises:
            GroupRejected: if the metadata is larger than a broker allows. No offset is changed.
        """
        if utf16_units(metadata) > MAX_METADATA_UNITS:
            raise GroupRejected(
                f"The metadata of a commit to group '{group_id}' has {utf16_units(metadata)} characters, "
                f"but a broker accepts {MAX_METADATA_UNITS}.",
                remedy="Write less, or increase the broker's offset.metadata.max.bytes.",
            )
        stored = self._committed.setdefault(group_id, {})
        # Readers of a text with a final NUL, as librdkafka writes it, receive the text before the NUL.
        stored |= {tp: Committed(n, metadata.rstrip("\0")) for tp, n in next_offsets.items()}

    def forget(self, group_id: str) -> None:
        """Deletes all committed offsets of a group."""
        self._committed.pop(group_id, None)

    def forget_partitions(self, group_id: str, partitions: Collection[TopicPartition]) -> None:
        """Deletes the committed offsets of a group for these partitions."""
        for tp in partitions:
            self._committed.get(group_id, {}).pop(tp, None)

    def host(self, group_id: str, describe: Callable[[], GroupDescription]) -> None:
        """Registers ``describe`` as the description of a group (:class:`~streamgroups.fakes.group.FakeGroup` does)."""
        self._live[group_id] = describe

    def group_ids(self) -> list[str]:
        """Every group that has members or committed offsets."""
        self.check_reachable()
        return sorted({*self._committed, *(group_id for group_id, live in self._live.items() if live().members)})

    def all_committed(self, group_id: str) -> dict[TopicPartition, Committed]:
        """All committed offsets of a group, as a broker returns them: without topics that the user may not describe."""
        found = {tp: it for tp, it in self._committed.get(group_id, {}).items() if not self._is_hidden(tp.topic)}
        self.check_parts(*((group_id, tp) for tp in found))
        return found

    def partition_counts(self) -> dict[str, int]:
        """The number of partitions of every topic, whatever its errors are."""
        self.check_reachable()
        return {name: len(partitions) for name, partitions in self._topics.items()}

    # ---- the ports ---------------------------------------------------------------------------------------------------

    def check_reachable(self) -> None:
        """Raises :class:`~streamgroups.errors.BrokerUnreachable` while :attr:`reachable` is false."""
        if not self.reachable:
            raise BrokerUnreachable("The cluster is unreachable.", remedy="Set FakeCluster.reachable to True.")

    def check_parts(self, *parts: str | TopicPartition | tuple[str, TopicPartition]) -> None:
        """Raises the first error of these parts of a response (SEMANTICS G17)."""
        self.check_reachable()
        for part in parts:
            topic = part.topic if isinstance(part, TopicPartition) else part
            for it in (topic, part):
                if it in self.rejections:
                    raise self.rejections[it]

    def _is_hidden(self, topic: str) -> bool:
        return isinstance(self.rejections.get(topic), NotAuthorized)

    def topics(self) -> Mapping[str, int]:
        """See :meth:`streamgroups.ports.Cluster.topics`."""
        self.check_parts(*self._topics)
        return self.partition_counts()

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`streamgroups.ports.Cluster.beginning_offsets`."""
        self.check_parts(*partitions)
        return {tp: self._partition(tp).beginning_offset for tp in partitions}

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`streamgroups.ports.Cluster.end_offsets`."""
        self.check_parts(*partitions)
        return {tp: self._readable_end(self._partition(tp)) for tp in partitions}

    def log_ends(self, partitions: Collection[TopicPartition]) -> LogEnds:
        """See :meth:`streamgroups.ports.Cluster.log_ends`."""
        offsets = self.end_offsets(partitions)
        epochs = {tp: self._partition(tp).leader_epoch for tp in offsets} if self.has_leader_epochs else {}
        return LogEnds(offsets, epochs)

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`streamgroups.ports.Cluster.high_watermarks`."""
        self.check_parts(*partitions)
        return {tp: self._partition(tp).end_offset for tp in partitions}

    def epoch_ends(
        self, leader_epochs: Mapping[TopicPartition, int], current: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """See :meth:`streamgroups.ports.Cluster.epoch_ends`."""
        self.check_reachable()
        found: dict[TopicPartition, int] = {}
        for tp, epoch in leader_epochs.items():
            partition = self._partition(tp)
            if self.has_leader_epochs and epoch <= partition.leader_epoch:
                later = (first for it, first in partition.leader_epochs if it > epoch)
                found[tp] = max(next(later, partition.end_offset), partition.beginning_offset)
        return found

    def offsets_at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """See :meth:`streamgroups.ports.Cluster.offsets_at_times`."""
        self.check_parts(*times_ms)
        return {tp: self._offset_at(self._partition(tp), time_ms) for tp, time_ms in times_ms.items()}

    def identities(self, topics: Collection[str]) -> dict[str, TopicIdentity]:
        """See :meth:`streamgroups.ports.Cluster.identities`."""
        self.check_parts(*topics)
        ids = self._topic_ids if self.has_topic_ids else {}
        return {name: TopicIdentity(self.cluster_id, ids.get(name)) for name in topics if name in self._topics}

    def stored_bytes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`streamgroups.ports.Cluster.stored_bytes`. The size of a record is that of its key and value."""
        if not self.reachable:
            return {}
        return {
            tp: sum(len(r.key or b"") + len(r.value or b"") for r in self._topics[tp.topic][tp.partition].records)
            for tp in partitions
            if tp.partition < len(self._topics.get(tp.topic, ()))
        }

    def describe(self, group_id: str) -> GroupDescription:
        """See :meth:`streamgroups.ports.Cluster.describe`."""
        self.check_reachable()
        if group_id in self._live:
            return self._live[group_id]()
        return GroupDescription(group_id, "Empty", "classic", "consumer", coordinator=BROKER)

    def committed(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        """See :meth:`streamgroups.ports.Cluster.committed`."""
        self.check_parts(*(tp.topic for tp in partitions if self._is_hidden(tp.topic)))
        self.check_parts(*((group_id, tp) for tp in partitions))
        committed = self._committed.get(group_id, {})
        return {tp: committed[tp] for tp in partitions if tp in committed}

    def _readable_end(self, partition: _Partition) -> int:
        return partition.last_stable_offset if self._read_committed else partition.end_offset

    def _offset_at(self, partition: _Partition, time_ms: int) -> int | None:
        # Like a broker: aborted records count, unstable ones do not.
        found = next((r.offset for r in partition.records if (r.timestamp_ms or 0) >= time_ms), None)
        return found if found is not None and found < self._readable_end(partition) else None

    def _partition(self, topic_partition: TopicPartition) -> _Partition:
        partitions = self._topics.get(topic_partition.topic, [])
        if not 0 <= topic_partition.partition < len(partitions):
            raise UnknownTopic(f"Partition '{topic_partition}' does not exist.", remedy="Call create_topic first.")
        return partitions[topic_partition.partition]
