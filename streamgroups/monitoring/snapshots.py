"""Snapshots of the groups of a cluster: their members, and the lag of each partition.

The command line (``groups``, ``gaps``) and :mod:`streamgroups.monitoring.monitor` call this
module. It defines which groups *all* includes. It combines the ports :class:`~streamgroups.ports.GroupAdmin` and
:class:`~streamgroups.ports.TopicAdmin` with the rules of :mod:`streamgroups.groups.lag`, with one request for all
groups. Source: SEMANTICS O1, O3.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TypeVar

from streamgroups.coordination.reset_protocol import MemberEntry, is_metadata_group, members_group_of
from streamgroups.groups.description import TYPES_WITH_OFFSETS, GroupDescription, GroupListing
from streamgroups.groups.lag import (
    CountedLag,
    FirstOfLag,
    NoLag,
    PartitionError,
    PartitionLag,
    maximum,
    total,
)
from streamgroups.groups.unused_groups import OFFSETS_TOPIC
from streamgroups.metadata_entries import read_entries
from streamgroups.partitions import Bounds, OffsetRange, StampedOffset, TopicPartition
from streamgroups.ports import Committed, GroupAdmin, TopicAdmin

logger = logging.getLogger(__name__)

#: The limit of reads to count records: enough for lags that consist of transaction markers, and for much more.
COUNT_BYTES = 16 << 20
#: Groups at different offsets of one partition are counted one after the other, up to this number of offsets per
#: partition.
_MAX_ROUNDS = 20
#: The default limit of first available records to read, because reads cost the brokers more than metadata requests.
READS_UNASKED = 1_000


#: A place in a partition: an offset, or a range of offsets.
_Place = TypeVar("_Place", int, OffsetRange)


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """One group at one moment.

    Args:
        description: its state and members.
        lags: each partition that it has committed or that a member owns, in order.
        committed: its committed offsets, with their metadata.
    """

    description: GroupDescription
    lags: tuple[PartitionLag, ...]
    committed: Mapping[TopicPartition, Committed] = field(default_factory=dict, repr=False)

    @property
    def _commits_offsets(self) -> bool:
        return bool(self.lags) or self.description.type in TYPES_WITH_OFFSETS

    @property
    def records(self) -> int | None:
        """The lag of all partitions in records, without those whose lag is unknown. ``None`` for a share group, which commits no
        offsets.

        >>> GroupSnapshot(GroupDescription("queue", "Stable", "share"), ()).records is None
        True
        """
        return total([lag.records for lag in self.lags]) if self._commits_offsets else None

    @property
    def is_exact(self) -> bool:
        """Whether :attr:`records` is exact, and the lag of all partitions."""
        return self.is_complete and all(lag.is_exact for lag in self.lags if lag.records is not None)

    @property
    def is_complete(self) -> bool:
        """Whether the lag of each partition with a committed offset is known.

        >>> lag = PartitionLag(TopicPartition("flights", 0), 10, PartitionError.NO_LEADER)
        >>> GroupSnapshot(GroupDescription("board", "Empty"), (lag,)).is_complete
        False
        """
        return not any(lag.is_unknown for lag in self.lags)

    @property
    def open_records(self) -> int | None:
        """The records after the last stable offsets of all partitions; ``None`` if that is unknown for one with lag, or with an
        unknown lag.
        """
        if not self._commits_offsets:
            return None
        known = [lag.open_records for lag in self.lags if lag.records or lag.open_records or lag.is_unknown]
        return None if None in known else total(known)

    def time_ms(self, now_ms: int) -> int | None:
        """How long the longest waiting record has been waiting; ``None`` if a record was not read, or a lag is unknown."""
        return maximum([lag.time_ms(now_ms) for lag in self.lags if lag.records is not None or lag.is_unknown])


@dataclass(slots=True)
class Memory:
    """The records and counts of earlier surveys, which later surveys reuse.

    Args:
        first: first available records, by partition and committed offset. A record does not change.
        counted: exact numbers of records between two offsets. They change only when later records are written.
    """

    first: dict[tuple[TopicPartition, int], FirstOfLag] = field(default_factory=dict)
    counted: dict[OffsetRange, CountedLag] = field(default_factory=dict)


def list_all(groups: GroupAdmin, *, every_type: bool = False, internal: bool = False) -> list[GroupListing]:
    """Returns all groups, in order of their names: the default of commands without group arguments.

    Args:
        groups: the cluster's groups.
        every_type: include share and streams groups, whose positions are not committed offsets.
        internal: include metadata groups, in which the members of other groups coordinate
            (:mod:`streamgroups.coordination.reset_protocol`). They have no members. To reset or delete one breaks the
            coordination of another group.

    Raises:
        StreamGroupsError: see :class:`streamgroups.ports.Cluster`.

    >>> from streamgroups.fakes import FakeAdmin, FakeCluster
    >>> cluster = FakeCluster(lambda: 0)
    >>> for name in ("billing", "billing.streamgroups"):
    ...     cluster.commit(name, {TopicPartition("flights", 0): 42})
    >>> [g.group_id for g in list_all(FakeAdmin(cluster))]
    ['billing']
    """
    return [
        g
        for g in groups.list_groups()
        if (every_type or g.type in TYPES_WITH_OFFSETS) and (internal or not is_metadata_group(g.group_id))
    ]


def unlisted_partitions(topics: TopicAdmin) -> list[int]:
    """Returns the partitions of ``__consumer_offsets`` without a leader. A list of groups omits their groups, without an error.

    Args:
        topics: the cluster's topics.

    Raises:
        NotAuthorized: if this user may not describe the topic.
        StreamGroupsError: see :class:`streamgroups.ports.Cluster`.

    >>> from streamgroups.errors import BrokerUnreachable
    >>> from streamgroups.fakes import FakeAdmin, FakeCluster
    >>> cluster = FakeCluster(lambda: 0)
    >>> cluster.create_topic("__consumer_offsets", 3)
    >>> cluster.rejections[TopicPartition("__consumer_offsets", 1)] = BrokerUnreachable("It has no leader.")
    >>> unlisted_partitions(FakeAdmin(cluster))
    [1]
    """
    described = topics.describe_topics([OFFSETS_TOPIC]).values()
    return [it.partition for topic in described for it in topic.partitions if not it.has_leader]


def survey(
    groups: GroupAdmin,
    topics: TopicAdmin,
    group_ids: Collection[str],
    *,
    reads: int = READS_UNASKED,
    count_bytes: int = COUNT_BYTES,
    memory: Memory | None = None,
) -> list[GroupSnapshot]:
    """Returns a snapshot of each of these groups.

    Args:
        groups: the cluster's groups.
        topics: the cluster's topics.
        group_ids: the groups. A repeated one counts once.
        reads: how many first available records may be read. If there are more, none is read and time lags are unknown.
        count_bytes: how much may be read to count records. Lags that are not counted are upper bounds.
        memory: the results of earlier surveys, which are reused and updated.

    Returns:
        One snapshot for each group, in order of their names. Of several groups, one with an error is omitted with a
        warning.

    Raises:
        StreamGroupsError: see :class:`streamgroups.ports.Cluster`.
    """
    group_ids = dict.fromkeys(group_ids).keys()
    described = groups.describe_groups(group_ids)
    # They contain only the values in flight, and a user who may describe a group may not always describe its metadata group.
    stores = {members_group_of(group_id) for group_id in group_ids if described[group_id].owners} - {*group_ids}
    committed = groups.committed_offsets({*group_ids, *stores}, optional=stores)
    partitions = {
        group_id: sorted(committed[group_id].keys() | described[group_id].owners.keys()) for group_id in group_ids
    }
    bounds = topics.bounds({tp for of_group in partitions.values() for tp in of_group})
    snapshots = []
    for g in sorted(group_ids):
        try:
            reading = _reading_until(described[g], committed.get(members_group_of(g), {}))
            lags = (_lag(tp, committed[g].get(tp), bounds.get(tp), reading.get(tp, 0)) for tp in partitions[g])
            snapshots.append(GroupSnapshot(described[g], tuple(lags), committed[g]))
        except Exception as e:
            # An error of one group must not hide the other groups.
            if len(group_ids) == 1:
                raise
            logger.warning("Group %r is skipped: %s: %s", g, type(e).__name__, e)
    memory = Memory() if memory is None else memory
    return _with_first_records(topics, _counted(topics, snapshots, count_bytes, memory), reads, memory)


def _reading_until(group: GroupDescription, committed: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, int]:
    """Returns the stored end of the batch in flight of each partition, without entries of former owners."""
    owners = group.owners if committed else {}
    owned = {tp: committed[tp].metadata for tp in owners if tp in committed}
    entries = read_entries(members_group_of(group.group_id), owned, lambda _, text: MemberEntry.parse(text))
    return {tp: entry.reading_until for tp, entry in entries.items() if entry.member_id == owners[tp].member_id}


def _lag(
    tp: TopicPartition, committed: Committed | None, bounds: Bounds | PartitionError | None, reading_until: int
) -> PartitionLag:
    known = PartitionError.NO_PARTITION if bounds is None else bounds
    return PartitionLag(tp, None if committed is None else committed.next_offset, known, reading_until=reading_until)


def _counted(
    topics: TopicAdmin, snapshots: list[GroupSnapshot], count_bytes: int, memory: Memory
) -> list[GroupSnapshot]:
    required = {r for snapshot in snapshots for lag in snapshot.lags if (r := _range_of_lag(lag)) is not None}
    found = {r: memory.counted[r] for r in required & memory.counted.keys()}
    rounds = _rounds({(r.topic_partition, r) for r in required - found.keys()})[:_MAX_ROUNDS] if count_bytes > 0 else []
    for ranges in rounds:
        counted = topics.count_lag(ranges.values(), count_bytes // len(rounds))
        found |= {ranges[tp]: counted_lag for tp, counted_lag in counted.items()}
    memory.counted = {r: counted_lag for r, counted_lag in found.items() if counted_lag.is_exact}

    def completed(lag: PartitionLag) -> PartitionLag:
        r = _range_of_lag(lag)
        counted_lag = None if r is None else found.get(r)
        if counted_lag is None:
            return lag
        nothing = NoLag() if counted_lag.is_exact and not counted_lag.records else None
        # By name rather than with dataclasses.replace, which takes twice as long for tens of thousands of partitions.
        return PartitionLag(
            lag.topic_partition, lag.committed_offset, lag.bounds, nothing, lag.reading_until, counted_lag
        )

    return [replace(s, lags=tuple(map(completed, s.lags))) for s in snapshots] if found else snapshots


def _range_of_lag(lag: PartitionLag) -> OffsetRange | None:
    """Returns the offsets between a group's position and the end; ``None`` if the range is empty or unknown."""
    if lag.records and lag.reading_offset is not None and lag.end_offset is not None:
        return OffsetRange(lag.topic_partition, lag.reading_offset, lag.end_offset)
    return None


def _with_first_records(
    topics: TopicAdmin, snapshots: list[GroupSnapshot], reads: int, memory: Memory
) -> list[GroupSnapshot]:
    required = {
        (lag.topic_partition, lag.reading_offset)
        for snapshot in snapshots
        for lag in snapshot.lags
        if lag.records and lag.reading_offset is not None
    }
    # The absence of a record is valid only until one is written.
    found = {place: memory.first[place] for place in required if isinstance(memory.first.get(place), StampedOffset)}
    counted_lag = required - found.keys()
    if len(counted_lag) <= reads:
        for offsets in _rounds(counted_lag):
            for tp, first in topics.first_records(offsets).items():
                found[tp, offsets[tp]] = first
    memory.first = dict(found)
    if not found:
        return snapshots

    def completed(lag: PartitionLag) -> PartitionLag:
        first = found.get((lag.topic_partition, lag.reading_offset)) if lag.reading_offset is not None else None
        if first is None:
            return lag
        return PartitionLag(
            lag.topic_partition, lag.committed_offset, lag.bounds, first, lag.reading_until, lag.counted
        )

    return [replace(s, lags=tuple(map(completed, s.lags))) for s in snapshots]


def _rounds(required: Collection[tuple[TopicPartition, _Place]]) -> list[Mapping[TopicPartition, _Place]]:
    """Returns mappings that together contain every pair: groups can be at different offsets of one partition."""
    rounds: list[dict[TopicPartition, _Place]] = []
    for tp, of_partition in groupby(sorted(required), key=lambda it: it[0]):
        for number, (_, place) in enumerate(of_partition):
            if number == len(rounds):
                rounds.append({})
            rounds[number][tp] = place
    return list(rounds)
