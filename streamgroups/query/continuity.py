"""Whether the records at a query's positions are there, before a batch is planned.

Used by ``unread``, on the query's thread. The ids of topics and their earliest offsets are read when partitions come in and then once per metadata
refresh (``kafka.topic.metadata.refresh.interval.ms``); in between the last ones count. Ends are read for every batch anyway. What a loss means
is decided by :mod:`streamgroups.query.data_loss`. Source: SEMANTICS S7, S11.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamgroups.checkpoints.offset import BatchOffset
from streamgroups.groups.history import Kind
from streamgroups.groups.membership import Owned
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import Bounds, TopicPartition
from streamgroups.ports import Clock, Log, Member, Recorder
from streamgroups.query.data_loss import Loss, LossPolicies, OnDataLoss, StoredPosition, data_loss, find_loss
from streamgroups.query.query_ports import GapRecorder

#: How often new topics and partitions, ids and earliest offsets are read, unless ``kafka.metadata.max.age.ms`` says otherwise.
REFRESH_MS = 5_000


class Continuity:
    """See the module.

    Args:
        log: where the topics are asked for.
        clock: a steady clock, in milliseconds.
        record: takes note of gaps in the member's history.
        policies: what to do about a loss.
        group_id: the group, for the text of an error.
        gaps: where gaps are recorded; ``None`` for nowhere.
        refresh_ms: how often ids and earliest offsets are read; 0 or less, as Java's: only when partitions come in.
    """

    def __init__(
        self,
        log: Log,
        clock: Clock,
        record: Recorder,
        policies: LossPolicies,
        group_id: str,
        *,
        gaps: GapRecorder | None = None,
        refresh_ms: int = REFRESH_MS,
    ) -> None:
        self._log, self._clock, self._record, self._policies = log, clock, record, policies
        self._group_id, self._gaps, self._refresh_ms = group_id, gaps, refresh_ms
        #: The ids of the topics, as last read.
        self.identities: dict[str, TopicIdentity] = {}
        self._earliest: dict[TopicPartition, int] = {}
        self._assignments = 0
        self._read_ms: int | None = None
        self._n_read = self._known_since = 0
        #: The last position of each partition that this query knows: Kafka deletes committed offsets with their topic.
        self._known_offsets: dict[TopicPartition, int] = {}
        self._known_identities: dict[TopicPartition, TopicIdentity] = {}
        self._known_topics: dict[str, TopicIdentity] = {}

    def remember(self, checkpoint: BatchOffset) -> None:
        """What an earlier run knew."""
        for tp, next_offset in checkpoint.next_offsets.items():
            self._known_offsets[tp] = next_offset
            self._known_identities[tp] = self._known_topics[tp.topic] = checkpoint.identity(tp.topic)

    def policy_of(self, topic_partition: TopicPartition) -> OnDataLoss:
        """What a loss in this partition means."""
        return self._policies.of(topic_partition)

    def settle(
        self, member: Member, next_offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Moves the positions whose records are not there.

        Args:
            member: whose positions.
            next_offsets: the positions that a batch could begin at.
            ends: where these partitions end, for readers of committed records if that is what the query reads.

        Returns:
            Where the partitions that lost records continue.

        Raises:
            DataLoss: if the policy of one of them is to fail. Nothing has moved then.
        """
        membership = member.membership
        owned = membership.owned
        next_offsets = {tp: n for tp, n in next_offsets.items() if tp in owned}
        self._refresh(next_offsets.keys(), membership.assignments)
        unusual = self._unusual(owned, next_offsets, ends)
        moved: dict[TopicPartition, int] = {}
        if unusual:
            positions = {tp: self._position(tp, owned[tp], next_offsets[tp]) for tp in unusual}
            lost = self._lost(positions, ends, next_offsets.keys(), membership.assignments)
            moved = self._continue(member, lost)
            self._identify(member, {tp: owned[tp] for tp in unusual if tp not in lost})
        self._know(next_offsets, moved)
        return moved

    def _unusual(
        self,
        owned: Mapping[TopicPartition, Owned],
        next_offsets: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> list[TopicPartition]:
        """The partitions that are worth a closer look; all others are in their topic. Runs for every batch, so it makes no objects."""
        earliest, identities = self._earliest, self.identities
        return [
            tp
            for tp, n in next_offsets.items()
            if owned[tp].identity is not identities.get(tp.topic, UNKNOWN) or not earliest.get(tp, 0) <= n <= ends[tp]
        ]

    def _refresh(self, partitions: Collection[TopicPartition], assignments: int) -> None:
        now_ms = self._clock()
        is_due = self._read_ms is None or 0 < self._refresh_ms <= now_ms - self._read_ms
        if partitions and (is_due or assignments != self._assignments):
            self._read(partitions, assignments)

    def _read(self, partitions: Collection[TopicPartition], assignments: int) -> None:
        read = self._log.identities({tp.topic for tp in partitions})
        # What has not changed stays the same object, by which a position is known to be of it.
        self.identities |= {topic: it for topic, it in read.items() if self.identities.get(topic) != it}
        self._earliest = self._log.beginning_offsets(partitions)
        self._assignments, self._read_ms = assignments, self._clock()
        self._n_read += 1

    def _now(self, tp: TopicPartition) -> TopicIdentity:
        return self.identities.get(tp.topic, UNKNOWN)

    def _position(self, tp: TopicPartition, owned: Owned, next_offset: int) -> StoredPosition:
        """The position of a partition. If the group has lost it with its topic, the one that the query remembers."""
        identity = self._known_identities.get(tp, self._known_topics.get(tp.topic, UNKNOWN))
        remembered = StoredPosition(self._known_offsets.get(tp), identity)
        if owned.is_silent and owned.identity == UNKNOWN and remembered.identity.differs_from(self._now(tp)):
            return remembered
        return StoredPosition(next_offset, owned.identity)

    def _lost(
        self,
        positions: Mapping[TopicPartition, StoredPosition],
        ends: Mapping[TopicPartition, int],
        partitions: Collection[TopicPartition],
        assignments: int,
    ) -> dict[TopicPartition, Loss]:
        """The losses by what the brokers say now. Under read_committed an end is before open transactions, which others may have read past."""
        suspected = self._losses(positions, ends)
        if not suspected:
            return {}
        ends = self._log.high_watermarks(suspected)
        at = {tp: positions[tp] for tp in suspected}
        if not self._losses(at, ends):
            return {}
        self._read(partitions, assignments)
        return self._losses(at, ends)

    def _losses(
        self, positions: Mapping[TopicPartition, StoredPosition], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Loss]:
        found = (find_loss(tp, at, self._now(tp), self._bounds(tp, ends[tp])) for tp, at in positions.items())
        return {loss.topic_partition: loss for loss in found if loss is not None}

    def _bounds(self, tp: TopicPartition, end_offset: int) -> Bounds:
        earliest = self._earliest.get(tp, 0)
        return Bounds(earliest, max(end_offset, earliest))

    def _continue(self, member: Member, lost: Mapping[TopicPartition, Loss]) -> dict[TopicPartition, int]:
        if not lost:
            return {}
        failing = [loss for tp, loss in lost.items() if self.policy_of(tp) is OnDataLoss.FAIL]
        if failing:
            raise data_loss(failing, self._group_id)
        time_ms = self._gaps.now_ms() if self._gaps is not None else 0
        gaps = [loss.gap(self.policy_of(tp), time_ms) for tp, loss in sorted(lost.items())]
        moved = {found.topic_partition: found.gap.to_offset for found in gaps}
        told = "; ".join(str(loss) for _, loss in sorted(lost.items()))
        self._record(Kind.GAP, offsets=moved, note=told)
        # Recorded first: a run that is killed in between records the same once more, which counts once.
        if self._gaps is not None:
            self._gaps.record(gaps)
        places = ", ".join(f"{tp} at {n}" for tp, n in moved.items())
        member.move(
            moved,
            note=f"Data loss: {told}. Reading continues: {places} (onDataLoss)",
            identities={tp: self._now(tp) for tp in moved},
        )
        return moved

    def _identify(self, member: Member, owned: Mapping[TopicPartition, Owned]) -> None:
        """A position without ids is accepted as one of the topic that is there now."""
        found = {tp: it.identity.completed_by(self._now(tp)) for tp, it in owned.items()}
        new = {tp: self._now(tp) if it == self._now(tp) else it for tp, it in found.items()}
        if new := {tp: it for tp, it in new.items() if it is not owned[tp].identity}:
            member.identify(new)

    def _know(self, next_offsets: Mapping[TopicPartition, int], moved: Mapping[TopicPartition, int]) -> None:
        self._known_offsets.update(next_offsets)
        self._known_offsets.update(moved)
        if self._known_since != self._n_read or not next_offsets.keys() <= self._known_identities.keys():
            self._known_identities |= {tp: self._now(tp) for tp in next_offsets}
            self._known_topics |= {tp.topic: self._now(tp) for tp in next_offsets}
            self._known_since = self._n_read
