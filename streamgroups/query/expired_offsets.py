"""Detects that Kafka has forgotten the committed offsets of a group, and ensures that this can be detected.

Called by ``streamgroups.query.micro_batches`` before the first batch that reads a partition, and when a query is restarted.
The rules are in :mod:`streamgroups.checkpoints.restart_after_expiry`. Source: KIP-211; SEMANTICS F5.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace

from streamgroups.checkpoints.offset import BatchOffset
from streamgroups.checkpoints.restart_after_expiry import (
    lost_in_part,
    lost_offsets,
    output_unknown,
    positions_unknown,
    undecided,
)
from streamgroups.errors import BrokerUnreachable
from streamgroups.groups.added_partitions import not_added
from streamgroups.groups.membership import NewPosition, Origin, Owned
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Cluster, Member
from streamgroups.query.join_group import POLL_S
from streamgroups.retry import comes_true
from streamgroups.state.origins import UNNAMED

logger = logging.getLogger(__name__)

#: How long the first commits of a group may take.
_TIMEOUT_S = 60.0


class ForgottenOffsets:
    """The offsets of a group that Kafka can forget.

    Args:
        cluster: the cluster of the group.
        group_id: the group.
        commits_offsets: whether the sink of the query commits the offsets of the group with its output.
        is_shared: whether other members can have read partitions that are not in the checkpoint.
        joins: whether the group assigns the partitions, so that its members read all partitions of a topic.
    """

    def __init__(
        self, cluster: Cluster, group_id: str, *, commits_offsets: bool, is_shared: bool, joins: bool = True
    ) -> None:
        self._cluster, self._group_id = cluster, group_id
        self._commits_offsets, self._is_shared, self._joins = commits_offsets, is_shared, joins
        self._committed: set[TopicPartition] = set()

    def commit_first(self, member: Member, partitions: Collection[TopicPartition]) -> None:
        """Waits until the group has a committed offset for each partition of the next batch.

        Only for a sink that commits offsets: without them, a restarted query could not distinguish an offset that was never
        committed from one that has expired.

        Args:
            member: the owner of the partitions.
            partitions: the partitions of the next batch.

        Raises:
            BrokerUnreachable: if the broker does not store the offsets in time.
        """
        owned = member.membership.owned
        new = {tp: owned[tp] for tp in partitions if tp in owned and owned[tp].is_silent and tp not in self._committed}
        if not (self._commits_offsets and new):
            return
        # The member commits starting positions itself, and others with the first batch that reads them.
        earliest = {tp: it for tp, it in new.items() if it.origin is Origin.EARLIEST}
        member.move({tp: NewPosition(it.next_offset, it.epoch, it.identity) for tp, it in earliest.items()}, detail="")

        def missing() -> set[TopicPartition]:
            return (new.keys() & member.membership.plannable.keys()) - self._cluster.committed(
                self._group_id, new
            ).keys()

        if not comes_true(lambda: not missing(), _TIMEOUT_S, every_s=0.01, slowest_s=POLL_S):
            raise BrokerUnreachable(
                f"The first offsets of group '{self._group_id}' were not committed within {_TIMEOUT_S:.0f} s.",
                remedy="Check the brokers. No record was read.",
                group=self._group_id,
            )
        self._committed |= new.keys()

    def check(
        self, checkpoint: BatchOffset, owned: Mapping[TopicPartition, Owned], *, is_finished: bool
    ) -> dict[TopicPartition, Owned]:
        """Rejects a restart that could write output again, and logs one warning if the group has lost offsets.

        Args:
            checkpoint: the offset of the last batch.
            owned: the partitions of the first assignment.
            is_finished: whether the batch is finished.

        Returns:
            The partitions that may not be new, although the checkpoint does not contain them: other members can have read them.

        Raises:
            PositionsDiffer: if only the offsets show whether output is written.
        """
        silent = {tp for tp, it in owned.items() if it.is_silent}
        if not silent:
            return {}
        if self._commits_offsets and not is_finished:
            identities = self._cluster.identities({tp.topic for tp in silent})
            if ranges := undecided(checkpoint, owned, identities):
                raise output_unknown(ranges, self._group_id)
        claimed = checkpoint.next_offsets if is_finished else {**checkpoint.next_offsets, **_started_at(checkpoint)}
        positions = {tp: n for tp, n in claimed.items() if tp in owned}
        if silent != owned.keys() or self._cluster.committed(self._group_id, {*owned, *checkpoint.next_offsets}):
            return self._check_some(positions, owned)
        others = owned.keys() - positions.keys()
        if others and self._commits_offsets and self._is_shared:
            raise positions_unknown(others, self._group_id)
        logger.warning("%s", lost_offsets(positions, others, self._group_id))
        return {tp: replace(owned[tp], state=UNNAMED) for tp in others} if self._is_shared else {}

    def _check_some(
        self, positions: Mapping[TopicPartition, int], owned: Mapping[TopicPartition, Owned]
    ) -> dict[TopicPartition, Owned]:
        """Logs one warning if the group has lost some of its offsets. Returns the partitions that may not be new.

        It is no error: a partition that was added, and that no batch has read, has no offset either.
        """
        earliest = {tp for tp, it in owned.items() if it.origin is Origin.EARLIEST}
        # Before offset 0 is no record, so the offset shows nothing (see Resumption.identified).
        kept = {tp: n for tp, n in positions.items() if tp in earliest and n}
        others = earliest - positions.keys() if self._is_shared and self._joins else set()
        lost = self._not_added(others) if others else []
        if kept or lost:
            logger.warning("%s", lost_in_part(kept, lost, self._group_id))
        return {tp: replace(owned[tp], state=UNNAMED) for tp in lost}

    def _not_added(self, missing: Collection[TopicPartition]) -> list[TopicPartition]:
        topics = {tp.topic for tp in missing}
        counts = {topic: n for topic, n in self._cluster.topics().items() if topic in topics}
        of_topics = [TopicPartition(topic, p) for topic, n in counts.items() for p in range(n)]
        return not_added(missing, self._cluster.committed(self._group_id, of_topics))


def _started_at(batch: BatchOffset) -> dict[TopicPartition, int]:
    return {r.topic_partition: r.next_offset for r in batch.ranges}
