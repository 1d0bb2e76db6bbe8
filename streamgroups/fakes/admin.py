"""The administration of a cluster, in memory.

Implements :class:`streamgroups.ports.GroupAdmin` and :class:`streamgroups.ports.TopicAdmin` on a
:class:`~streamgroups.fakes.cluster.FakeCluster`. Like a broker, it rejects offset changes of a group that has members.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType

from streamgroups.errors import (
    BrokerUnreachable,
    GroupRejected,
    InvalidOption,
    NotAuthorized,
    StreamGroupsError,
    UnknownGroup,
    UnknownTopic,
)
from streamgroups.fakes.cluster import BROKER, MAX_METADATA_UNITS, FakeCluster, utf16_units
from streamgroups.groups.description import GroupDescription, GroupListing
from streamgroups.groups.lag import CountedLag, FirstOfLag, NoLag, PartitionError
from streamgroups.identity import TopicIdentity
from streamgroups.message import Message
from streamgroups.partitions import (
    Bounds,
    OffsetRange,
    PartitionDescription,
    StampedOffset,
    TopicDescription,
    TopicPartition,
)
from streamgroups.ports import Committed


class FakeAdmin:
    """Describes and changes the groups and topics of a cluster in memory.

    Args:
        cluster: the cluster.

    >>> cluster = FakeCluster(lambda: 1_000)
    >>> cluster.create_topic("flights", 2)
    >>> admin = FakeAdmin(cluster)
    >>> admin.alter_offsets("board", {TopicPartition("flights", 0): Committed(0)})
    {}
    >>> [(g.group_id, g.state) for g in admin.list_groups()]
    [('board', 'Empty')]
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        #: The errors that single partitions return for a change, by group: for tests of partial changes.
        self.failures: dict[tuple[str, TopicPartition], StreamGroupsError] = {}
        #: The groups that this user may not describe.
        self.denied: set[str] = set()
        #: Called before each change: for tests of events between the check and the change.
        self.before_change: Callable[[], None] = lambda: None

    def list_groups(self) -> list[GroupListing]:
        """See :meth:`streamgroups.ports.GroupAdmin.list_groups`."""
        described = [self._describe(group_id) for group_id in self.cluster.group_ids() if group_id not in self.denied]
        return [GroupListing(g.group_id, g.state, g.type, g.protocol_type, BROKER) for g in described]

    def describe_groups(self, group_ids: Collection[str]) -> dict[str, GroupDescription]:
        """See :meth:`streamgroups.ports.GroupAdmin.describe_groups`."""
        self._check_allowed(group_ids)
        return {group_id: self._describe(group_id) for group_id in group_ids}

    def _describe(self, group_id: str) -> GroupDescription:
        if group_id not in self.cluster.group_ids():
            return GroupDescription(group_id, "Dead")
        return self.cluster.describe(group_id)

    def committed_offsets(
        self,
        group_ids: Collection[str],
        partitions: Collection[TopicPartition] | None = None,
        *,
        optional: Collection[str] = (),
    ) -> dict[str, dict[TopicPartition, Committed]]:
        """See :meth:`streamgroups.ports.GroupAdmin.committed_offsets`. Like a broker, it omits topics that are rejected."""
        self.cluster.check_reachable()
        group_ids = [group_id for group_id in group_ids if not (group_id in self.denied and group_id in optional)]
        self._check_allowed(group_ids)
        if partitions is not None:
            return {group_id: self.cluster.committed(group_id, partitions) for group_id in group_ids}
        denied = {topic for topic, error in self.cluster.rejections.items() if isinstance(error, NotAuthorized)}
        return {
            group_id: {tp: it for tp, it in self.cluster.all_committed(group_id).items() if tp.topic not in denied}
            for group_id in group_ids
        }

    def alter_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, Committed]
    ) -> dict[TopicPartition, StreamGroupsError]:
        """See :meth:`streamgroups.ports.GroupAdmin.alter_offsets`."""
        self._before_change()
        if self._describe(group_id).members:
            return dict.fromkeys(offsets, GroupRejected(f"Group '{group_id}' has members."))
        failures = {tp: self.failures[group_id, tp] for tp in offsets if (group_id, tp) in self.failures}
        failures |= {tp: UnknownTopic(f"'{tp}' does not exist.") for tp in offsets if not self._exists(tp)}
        failures |= {
            tp: StreamGroupsError(f"The metadata for '{tp}' is too large.", remedy="Write fewer bytes.")
            for tp, committed in offsets.items()
            if utf16_units(committed.metadata) > MAX_METADATA_UNITS
        }
        for tp, committed in offsets.items():
            if tp not in failures:
                self.cluster.commit(group_id, {tp: committed.next_offset}, committed.metadata)
        return failures

    def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, StreamGroupsError]:
        """See :meth:`streamgroups.ports.GroupAdmin.delete_offsets`."""
        self._before_change()
        if group_id not in self.cluster.group_ids():
            raise UnknownGroup(f"Group '{group_id}' does not exist.")
        read = {topic for member in self.cluster.describe(group_id).members for topic in member.topics}
        failures = {tp: self.failures[group_id, tp] for tp in partitions if (group_id, tp) in self.failures}
        failures |= {tp: GroupRejected(f"'{tp.topic}' is being read.") for tp in partitions if tp.topic in read}
        self.cluster.forget_partitions(group_id, set(partitions) - failures.keys())
        return failures

    def delete_groups(self, group_ids: Collection[str]) -> dict[str, StreamGroupsError]:
        """See :meth:`streamgroups.ports.GroupAdmin.delete_groups`."""
        self._before_change()
        failures: dict[str, StreamGroupsError] = {}
        for group_id in group_ids:
            if group_id not in self.cluster.group_ids():
                failures[group_id] = UnknownGroup(f"Group '{group_id}' does not exist.")
            elif self._describe(group_id).members:
                failures[group_id] = GroupRejected(f"Group '{group_id}' has members.")
            else:
                self.cluster.forget(group_id)
        return failures

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> bool:
        """See :meth:`streamgroups.ports.TopicAdmin.create_topic`. The cluster has one broker and no settings."""
        self.cluster.check_reachable()
        if name in self.cluster.topics():
            return False
        if partitions == 0 or (replication_factor or 1) > 1:
            raise InvalidOption(f"Topic '{name}' could not be created.", remedy="Use 1 replica, and partitions.")
        self.cluster.create_topic(name, partitions or 1)
        return True

    def describe_topics(
        self, names: Collection[str] | None = None, *, operation: str = "Describe"
    ) -> dict[str, TopicDescription]:
        """See :meth:`streamgroups.ports.TopicAdmin.describe_topics`."""
        self.cluster.check_parts(*(names or ()))
        counts = self.cluster.partition_counts()
        return {
            name: TopicDescription(name, tuple(self._description(TopicPartition(name, p)) for p in range(count)))
            for name, count in sorted(counts.items())
            if (name not in self.cluster.rejections if names is None else name in names)
        }

    def _description(self, tp: TopicPartition) -> PartitionDescription:
        has_leader = not isinstance(self.cluster.rejections.get(tp), BrokerUnreachable)
        return PartitionDescription(tp.partition, (BROKER,), has_leader)

    def identities(self, topics: Collection[str]) -> dict[str, TopicIdentity]:
        """See :meth:`streamgroups.ports.TopicAdmin.identities`."""
        return self.cluster.identities(topics)

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds | PartitionError]:
        """See :meth:`streamgroups.ports.TopicAdmin.bounds`."""
        return {tp: self._bounds_or_error(tp) for tp in partitions}

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, StampedOffset | None]:
        """See :meth:`streamgroups.ports.TopicAdmin.at_times`."""
        found = self.cluster.offsets_at_times(times_ms)
        return {
            tp: None if offset is None else _stamped(*self.cluster.read(OffsetRange(tp, offset, offset + 1)))
            for tp, offset in found.items()
        }

    def newest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StampedOffset | None]:
        """See :meth:`streamgroups.ports.TopicAdmin.newest`."""
        found = {}
        for tp in partitions:
            bounds = self._bounds_or_error(tp)
            if isinstance(bounds, PartitionError):
                continue
            records = self.cluster.read(OffsetRange(tp, bounds.beginning_offset, bounds.end_offset))
            latest = max(records, key=lambda r: r.timestamp_ms or 0, default=None)
            found[tp] = None if latest is None else _stamped(latest)
        return found

    def first_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, FirstOfLag]:
        """See :meth:`streamgroups.ports.TopicAdmin.first_records`."""
        found: dict[TopicPartition, FirstOfLag] = {}
        for tp, offset in offsets.items():
            records = self.cluster.read(OffsetRange(tp, offset, self._bounds(tp).end_offset))
            found[tp] = _stamped(records[0]) if records else NoLag()
        return found

    def count_lag(self, ranges: Collection[OffsetRange], limit_bytes: int) -> dict[TopicPartition, CountedLag]:
        """See :meth:`streamgroups.ports.TopicAdmin.count_lag`. Each record takes a byte."""
        found: dict[TopicPartition, CountedLag] = {}
        committed = self.cluster.reading_committed()
        for r in sorted(ranges, key=lambda r: (len(r), r)):
            tp = r.topic_partition
            stable = min(max(committed.end_offsets([tp])[tp], r.next_offset), r.end_offset)
            records = len(committed.read(OffsetRange(tp, r.next_offset, stable)))
            open_ = len(self.cluster.read(OffsetRange(tp, stable, r.end_offset)))
            if records + open_ <= limit_bytes:
                limit_bytes -= records + open_
                found[tp] = CountedLag(records, open_)
            else:
                found[tp] = CountedLag(stable - r.next_offset, r.end_offset - stable, is_exact=False)
        return found

    def read(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int] | None,
    ) -> Iterator[Message]:
        """See :meth:`streamgroups.ports.TopicAdmin.read`. Ends at the last record: no new records arrive meanwhile."""
        for tp, start in starts.items():
            end = self._bounds(tp).end_offset if ends is None else ends[tp]
            yield from self.cluster.read(OffsetRange(tp, start, end))

    def _check_allowed(self, group_ids: Collection[str]) -> None:
        for group_id in group_ids:
            if group_id in self.denied:
                raise NotAuthorized(f"This user is not authorized to access the group '{group_id}'.", group=group_id)

    def _before_change(self) -> None:
        self.cluster.check_reachable()
        self.before_change()

    def _exists(self, tp: TopicPartition) -> bool:
        return 0 <= tp.partition < self.cluster.partition_counts().get(tp.topic, 0)

    def _bounds_or_error(self, tp: TopicPartition) -> Bounds | PartitionError:
        if not self._exists(tp):
            return PartitionError.NO_PARTITION
        try:
            return self._bounds(tp)
        except NotAuthorized:
            return PartitionError.NOT_AUTHORIZED
        except BrokerUnreachable:
            self.cluster.check_reachable()
            return PartitionError.NO_LEADER

    def _bounds(self, tp: TopicPartition) -> Bounds:
        return Bounds(self.cluster.beginning_offsets([tp])[tp], self.cluster.end_offsets([tp])[tp])


def _stamped(record: Message) -> StampedOffset:
    return StampedOffset(record.offset, record.timestamp_ms or 0)
