"""Checks, before a batch is planned, whether the records at the positions of a query still exist.

Used by ``streamgroups.query.available_offsets`` on the thread of the query. The ids of topics and their earliest offsets are
read after each assignment and then once per metadata refresh (``kafka.topic.metadata.refresh.interval.ms``). In between
the last values apply. End offsets are read for every batch anyway, with the epochs of the leaders. If the leader epoch of
a position is an earlier one, its end in the current log is requested (KIP-320): after an assignment, and after each change
of the leader. :mod:`streamgroups.query.data_loss` decides how a loss is handled. Source: SEMANTICS S7, S11; KIP-320.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from streamgroups.checkpoints.offset import BatchOffset
from streamgroups.errors import UnknownTopic
from streamgroups.groups.applied_reset import new_reset_id
from streamgroups.groups.history import Kind, MemberEvent
from streamgroups.groups.membership import Membership, NewPosition, Owned
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import Bounds, LogEnds, TopicPartition
from streamgroups.ports import Clock, Cluster, Member, Recorder
from streamgroups.printable import listed
from streamgroups.query.data_loss import Loss, LossPolicies, OnDataLoss, StoredPosition, data_loss, deleted, find_loss
from streamgroups.query.left_partitions import LeftPartitions
from streamgroups.query.query_ports import GapRecorder
from streamgroups.retry import retrying
from streamgroups.state.origins import New, StateOrigin

#: How often new topics and partitions, ids and earliest offsets are read, unless ``kafka.metadata.max.age.ms`` is set.
REFRESH_MS = 5_000
#: Repeats a request for a topic that exists: after it was recreated, a broker can lack its metadata for some time.
until_known = retrying(10, every_s=0.04, on=UnknownTopic)


class Continuity:
    """Compares the positions of a query with the topics, and handles losses.

    Args:
        cluster: the topics of the cluster.
        clock: a monotonic clock in milliseconds.
        record: records gaps in the history of the member.
        policies: how a loss is handled.
        group_id: the group, for the text of an error.
        gaps: records gaps.
        refresh_ms: how often ids and earliest offsets are read.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        record: Recorder,
        policies: LossPolicies,
        group_id: str,
        *,
        gaps: GapRecorder,
        refresh_ms: int = REFRESH_MS,
    ) -> None:
        self._cluster, self._clock, self._record, self._policies = cluster, clock, record, policies
        self._group_id, self._gaps, self._refresh_ms = group_id, gaps, refresh_ms
        self._left = LeftPartitions(cluster, clock, policies, group_id)
        #: The ids of the topics at the last refresh.
        self.identities: dict[str, TopicIdentity] = {}
        self._earliest: dict[TopicPartition, int] = {}
        self._assignments = 0
        self._read_ms: int | None = None
        self._n_read = self._known_since = 0
        #: The last known position of each partition: Kafka deletes the committed offsets of a deleted topic.
        self._known_offsets: dict[TopicPartition, int] = {}
        self._known_identities: dict[TopicPartition, TopicIdentity] = {}

    def remember(self, batch: BatchOffset) -> None:
        """Keeps the positions and ids after a batch: the last one of an earlier run, or the one that was just planned."""
        for tp, next_offset in batch.next_offsets.items():
            self._known_offsets[tp] = next_offset
            self._known_identities[tp] = batch.identity(tp.topic)

    def policy_of(self, topic_partition: TopicPartition) -> OnDataLoss:
        """How a loss in this partition is handled."""
        return self._policies.of(topic_partition)

    def deleted(self, next_offsets: Mapping[TopicPartition, int]) -> UnknownTopic:
        """The error for partitions of deleted topics."""
        return deleted(next_offsets, self._group_id)

    def check(self, membership: Membership, moved: Mapping[TopicPartition, NewPosition]) -> None:
        """Rejects the positions of a checkpoint whose records no longer exist, before the group and the ledger move there.

        Args:
            membership: the partitions of the member.
            moved: the positions.

        Raises:
            DataLoss: if the policy of one of them is to fail.
            UnknownTopic: if a topic was deleted, and the policy is to fail.
        """
        failing = {
            tp: StoredPosition(it.next_offset, it.identity)
            for tp, it in moved.items()
            if self.policy_of(tp) is OnDataLoss.FAIL
        }
        if not failing:
            return

        def losses() -> dict[TopicPartition, Loss]:
            self._read(failing.keys(), membership.assignments)
            return self._losses(failing, self._cluster.high_watermarks(failing), {})

        try:
            lost = losses()
        except UnknownTopic:
            there = self._cluster.topics()
            gone = {tp: moved[tp].next_offset for tp in failing if tp.partition >= there.get(tp.topic, 0)}
            if gone:
                raise self.deleted(gone) from None
            lost = until_known(losses)
        # The earliest offsets of the other partitions are read before the batch.
        self._read_ms = None
        if lost:
            raise data_loss(list(lost.values()), self._group_id)

    def settle(
        self, member: Member, next_offsets: Mapping[TopicPartition, int], ends: LogEnds
    ) -> dict[TopicPartition, int]:
        """Sets new positions where the records at the position no longer exist.

        Args:
            member: the owner of the positions.
            next_offsets: the positions at which a batch could begin.
            ends: the ends of these partitions; the last stable offsets if the query reads committed records only.

        Returns:
            The new positions of the partitions that lost records.

        Raises:
            DataLoss: if the policy of one of them is to fail. In that case no position has changed.
            UnknownTopic: if the topic of a partition that has left was deleted, and its policy is to fail.
        """
        membership = member.membership
        owned = membership.owned
        self._left.check(owned)
        next_offsets = {tp: n for tp, n in next_offsets.items() if tp in owned}
        self._refresh(next_offsets.keys(), membership.assignments)
        unusual = self._unusual(owned, next_offsets, ends)
        moved: dict[TopicPartition, int] = {}
        if unusual:
            positions = {tp: self._position(tp, owned[tp], next_offsets[tp]) for tp in unusual}
            epoch_ends = self._epoch_ends({tp: owned[tp] for tp in unusual}, ends)
            lost = self._lost(positions, ends.offsets, epoch_ends, next_offsets.keys(), membership.assignments)
            moved = self._continue(member, owned, lost, ends)
            self._identify(member, {tp: owned[tp] for tp in unusual if tp not in lost}, ends, epoch_ends)
        self._store_identities(next_offsets, moved)
        return moved

    def _unusual(
        self,
        owned: Mapping[TopicPartition, Owned],
        next_offsets: Mapping[TopicPartition, int],
        ends: LogEnds,
    ) -> list[TopicPartition]:
        """The partitions that need a full check.

        All other positions are within their topic. Runs for every batch, so it creates no objects.
        """
        earliest, identities = self._earliest, self.identities
        offsets, leader_epochs = ends.offsets, ends.leader_epochs
        return [
            tp
            for tp, n in next_offsets.items()
            if (it := owned[tp]).identity is not identities.get(tp.topic, UNKNOWN)
            or not earliest.get(tp, 0) <= n <= offsets[tp]
            or it.leader_epoch != leader_epochs.get(tp)
        ]

    def _epoch_ends(self, owned: Mapping[TopicPartition, Owned], ends: LogEnds) -> Mapping[TopicPartition, int]:
        """The ends of the leader epochs of these positions in the current log, if the partition has a later leader epoch."""
        earlier: dict[TopicPartition, int] = {}
        for tp, it in owned.items():
            current = ends.leader_epochs.get(tp)
            is_later = it.leader_epoch is not None and current is not None and it.leader_epoch < current
            if it.leader_epoch is not None and is_later and not it.identity.differs_from(self._now(tp)):
                earlier[tp] = it.leader_epoch
        return self._cluster.epoch_ends(earlier, {tp: ends.leader_epochs[tp] for tp in earlier}) if earlier else {}

    def _refresh(self, partitions: Collection[TopicPartition], assignments: int) -> None:
        now_ms = self._clock()
        is_due = self._read_ms is None or now_ms - self._read_ms >= self._refresh_ms
        if partitions and (is_due or assignments != self._assignments):
            self._read(partitions, assignments)

    def _read(self, partitions: Collection[TopicPartition], assignments: int) -> None:
        read = self._cluster.identities({tp.topic for tp in partitions})
        # An unchanged identity stays the same object: :meth:`_unusual` compares objects.
        self.identities |= {topic: it for topic, it in read.items() if self.identities.get(topic) != it}
        self._earliest = self._cluster.beginning_offsets(partitions)
        self._assignments, self._read_ms = assignments, self._clock()
        self._n_read += 1

    def _now(self, tp: TopicPartition) -> TopicIdentity:
        return self.identities.get(tp.topic, UNKNOWN)

    def _position(self, tp: TopicPartition, owned: Owned, next_offset: int) -> StoredPosition:
        """The position of a partition; the remembered position if the group has lost it with its topic."""
        remembered = StoredPosition(self._known_offsets.get(tp), self._known_identities.get(tp, UNKNOWN))
        if owned.is_silent and owned.identity == UNKNOWN and remembered.identity.differs_from(self._now(tp)):
            return remembered
        return StoredPosition(next_offset, owned.identity)

    def _lost(
        self,
        positions: Mapping[TopicPartition, StoredPosition],
        ends: Mapping[TopicPartition, int],
        epoch_ends: Mapping[TopicPartition, int],
        partitions: Collection[TopicPartition],
        assignments: int,
    ) -> dict[TopicPartition, Loss]:
        """The losses according to the current state of the brokers.

        Under read_committed an end offset is before open transactions, and another reader may have read past it.
        """
        suspected = self._losses(positions, ends, epoch_ends)
        if not suspected:
            return {}
        ends = self._cluster.high_watermarks(suspected)
        at = {tp: positions[tp] for tp in suspected}
        if not self._losses(at, ends, epoch_ends):
            return {}
        self._read(partitions, assignments)
        return self._losses(at, ends, epoch_ends)

    def _losses(
        self,
        positions: Mapping[TopicPartition, StoredPosition],
        ends: Mapping[TopicPartition, int],
        epoch_ends: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, Loss]:
        found = (
            find_loss(tp, at, self._now(tp), self._bounds(tp, ends[tp]), epoch_ends.get(tp))
            for tp, at in positions.items()
        )
        return {loss.topic_partition: loss for loss in found if loss is not None}

    def _bounds(self, tp: TopicPartition, end_offset: int) -> Bounds:
        earliest = self._earliest.get(tp, 0)
        return Bounds(earliest, max(end_offset, earliest))

    def _continue(
        self,
        member: Member,
        owned: Mapping[TopicPartition, Owned],
        lost: Mapping[TopicPartition, Loss],
        ends: LogEnds,
    ) -> dict[TopicPartition, int]:
        if not lost:
            return {}
        failing = [loss for tp, loss in lost.items() if self.policy_of(tp) is OnDataLoss.FAIL]
        if failing:
            raise data_loss(failing, self._group_id)
        time_ms = self._gaps.now_ms()
        gaps = [loss.gap(self.policy_of(tp), time_ms) for tp, loss in sorted(lost.items())]
        moved = {found.topic_partition: found.gap.to_offset for found in gaps}
        id_ = new_reset_id()
        details = listed((loss for _, loss in sorted(lost.items())), separator="; ")
        ranges = tuple(it.lost for it in gaps if it.lost is not None)
        self._record(MemberEvent(Kind.GAP, offsets=moved, ranges=ranges, detail=details))
        # The gap is recorded first. A run that is killed in between records it again, and it counts once.
        self._gaps.record(gaps)
        places = listed(f"{tp} at {n}" for tp, n in moved.items())
        return {
            tp: moved[tp]
            for tp in member.move(
                {
                    tp: NewPosition(
                        n,
                        owned[tp].epoch,
                        self._now(tp),
                        self._state_after(owned[tp], tp),
                        owned[tp].reset.moved_back(id_) if n < owned[tp].next_offset else None,
                        leader_epoch=None if lost[tp].epoch_end is None else ends.leader_epochs.get(tp),
                    )
                    for tp, n in moved.items()
                },
                detail=f"Data loss: {details}. Reading continues: {places} (onDataLoss)",
            )
        }

    def _state_after(self, owned: Owned, tp: TopicPartition) -> StateOrigin:
        """The state of a position after a gap: that before the lost records, or an empty one for another topic."""
        return New() if owned.identity.differs_from(self._now(tp)) else owned.state

    def _identify(
        self,
        member: Member,
        owned: Mapping[TopicPartition, Owned],
        ends: LogEnds,
        epoch_ends: Mapping[TopicPartition, int],
    ) -> None:
        """Completes positions without ids: they are accepted as positions of the current topic and the current log."""
        new: dict[TopicPartition, Owned] = {}
        for tp, it in owned.items():
            completed = it.identity.completed_by(self._now(tp))
            identity = self._now(tp) if completed == self._now(tp) else completed
            leader_epoch = _leader_epoch(it, ends.offsets[tp], ends.leader_epochs.get(tp), epoch_ends.get(tp))
            if identity is not it.identity or leader_epoch != it.leader_epoch:
                new[tp] = replace(it, identity=identity, leader_epoch=leader_epoch)
        if new:
            member.identify(new)

    def _store_identities(
        self, next_offsets: Mapping[TopicPartition, int], moved: Mapping[TopicPartition, int]
    ) -> None:
        self._known_offsets.update(next_offsets)
        self._known_offsets.update(moved)
        if self._known_since != self._n_read or not next_offsets.keys() <= self._known_identities.keys():
            self._known_identities |= {tp: self._now(tp) for tp in next_offsets}
            self._known_since = self._n_read


def _leader_epoch(owned: Owned, end_offset: int, current: int | None, epoch_end: int | None) -> int | None:
    """The greatest leader epoch whose log is known to contain all records before a position, and a batch from there.

    Args:
        owned: the position.
        end_offset: the end of the log.
        current: the leader epoch of this end; ``None`` if it is unknown.
        epoch_end: the end of the position's leader epoch in the current log; ``None`` if it is unknown.
    """
    if current is None:
        # The next batch can contain records of any leader epoch.
        return None
    if owned.leader_epoch is not None and current <= owned.leader_epoch:
        # A response of an earlier leader contains no record of a later epoch.
        return owned.leader_epoch
    is_within = owned.next_offset <= (end_offset if epoch_end is None else max(end_offset, epoch_end))
    return current if is_within else None
