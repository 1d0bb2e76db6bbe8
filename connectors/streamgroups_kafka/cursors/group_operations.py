"""Describes groups of cursors and resets their offsets, without an instance of the group.

``group_cursors`` creates one for each ``GroupCursors``. Source: SEMANTICS G8, G9.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping

from streamgroups.acls import grant
from streamgroups.coordination.reset_requests import ResetRequests
from streamgroups.cursors.group_state import GroupState, group_state
from streamgroups.errors import GroupRejected, InvalidOption, UnknownTopic
from streamgroups.groups.description import GroupDescription
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Clock, MetadataStore
from streamgroups.positions import Position, Positions, WhenNoRecordMatches
from streamgroups.printable import listed
from streamgroups.query.offset_lookup import offsets_of
from streamgroups.retry import retrying
from streamgroups_kafka.admin.cluster import KafkaCluster

logger = logging.getLogger(__name__)

#: How long a member with new partitions may take to store its metadata entry, which shows that it applies reset
#: requests.
_INTRODUCTION_S = 3.0
#: How often a reset changes between a commit and a request, because the group has lost or got its members.
_MAX_ATTEMPTS = 3
_IN_RANGE = "Use an offset in that range, or TRIM_HORIZON or LATEST."
#: Brokers receive a new topic with a delay.
_RETRYING = retrying(1, every_s=0.1, on=UnknownTopic)


class GroupOperations:
    """Describes groups and resets their offsets.

    Args:
        cluster: provides topics and groups.
        metadata_store: provides the metadata entries of the groups.
        clock: returns milliseconds since the epoch.
    """

    def __init__(self, cluster: KafkaCluster, metadata_store: MetadataStore, clock: Clock) -> None:
        self._cluster, self._metadata_store, self._resets = (
            cluster,
            metadata_store,
            ResetRequests(metadata_store, clock, lambda _: cluster.topics()),
        )

    def partitions(self, stream: str) -> tuple[TopicPartition, ...]:
        """Returns the partitions of a stream.

        Raises:
            UnknownTopic: if the stream does not exist.
        """
        count: int = _RETRYING(self._count, stream)
        return tuple(TopicPartition(stream, p) for p in range(count))

    def _count(self, stream: str) -> int:
        count = self._cluster.topics().get(stream)
        if count is None:
            raise UnknownTopic(
                f"Stream '{stream}' does not exist, or this user is not authorized to describe it.",
                remedy=f"Create the topic, or correct its name. If it exists: {grant('Read', 'Topic', [stream])}",
                topic=stream,
            )
        return count

    def check_partition(self, tp: TopicPartition) -> None:
        """Rejects a partition that does not exist.

        Raises:
            UnknownTopic: if the partition does not exist. The error contains the number of partitions.
        """
        partitions = self.partitions(tp.topic)
        if tp not in partitions:
            raise UnknownTopic(
                f"Stream '{tp.topic}' has no partition {tp.partition!r}.",
                remedy=f"It has {len(partitions)} partitions, numbered from 0.",
                topic=tp.topic,
                partition=tp.partition,
            )

    def offsets(self, position: Position, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Converts a position to offsets. A time after the last message means the end: later messages come after it.

        Raises:
            InvalidOption: if a partition does not have the offset.
        """
        positions = Positions(position, when_no_record_matches=WhenNoRecordMatches.LATEST)
        try:
            return offsets_of(self._cluster, positions, partitions)
        except InvalidOption as e:
            # Its remedy names options of the Spark source.
            raise InvalidOption(e.what, remedy=_IN_RANGE) from None

    # ---- G9 ----------------------------------------------------------------------------------------------------------

    def describe(self, stream: str, group: str) -> GroupState:
        """Returns each partition with its committed offset, its owner, and the end of the owner's lease (G9)."""
        tps = self.partitions(stream)
        live = self._cluster.describe(group)
        committed = {tp: c.next_offset for tp, c in self._metadata_store.read(group, tps).items()}
        state = group_state(live, tps, committed, self._resets.entries(group, tps), self._resets.waiting(group, tps))
        return GroupState(stream, group, state, tuple(sorted(m.client_id for m in live.members)))

    # ---- G8 ----------------------------------------------------------------------------------------------------------

    def move(self, stream: str, group: str, position: Position) -> None:
        """Resets all offsets of the group, also while its instances consume (G8).

        Without members, the reset is a commit. With members, only they may commit. So the reset is stored as a reset
        request in the metadata groups, and each owner applies it before it commits or reads.

        Raises:
            GroupRejected: if the group does not exist, has members that do not apply reset requests, is rebalancing, or
                alternates between members and none.
        """
        tps = self.partitions(stream)
        if not self._cluster.describe(group).members and not self._metadata_store.read(group, tps):
            raise GroupRejected(
                f"Group '{group}' has neither members nor committed offsets on '{stream}', so it has no "
                "offsets to reset.",
                remedy="Check the names. To create a group, call create_group_cursor.",
                group=group,
                topic=stream,
            )
        where = self.offsets(position, tps)
        for _ in range(_MAX_ATTEMPTS):
            if not self._cluster.describe(group).members:
                if self._commit(group, where):
                    return
                logger.info("Group '%s' got a member while its offsets were reset", group)
            # Its members can leave during the check, and before they apply the request.
            live = self._check_obedient(group)
            if live.members:
                if notice := self._resets.cancel_unowned(live, [stream]):
                    logger.warning("%s", notice)
                self._resets.write(group, where)
                if self._cluster.describe(group).members:
                    return
        raise GroupRejected(
            f"The offsets of group '{group}' were not reset: its members join and leave all the time.",
            remedy="Stop its members, or wait until they are stable. Then call update_group again.",
            group=group,
        )

    def _commit(self, group: str, where: Mapping[TopicPartition, int]) -> bool:
        """Resets a group without members. Returns ``False`` if it has got a member, which receives no request."""
        # A member that joins now must not apply a request that the last members left without applying.
        is_requested = bool(self._resets.waiting(group, where.keys()))
        if is_requested:
            self._resets.write(group, where)
        return self._resets.commit(group, where) or is_requested

    def _check_obedient(self, group: str) -> GroupDescription:
        """Checks that every owner has a metadata entry: only members that apply reset requests store one.

        Returns the group, which may have no members any more.

        In a rebalance of the classic protocol, the broker describes no owners.
        """
        deadline_s = time.monotonic() + _INTRODUCTION_S
        while True:
            live = self._cluster.describe(group)
            incompatible_members = self._resets.incompatible_members(group, live.members)
            has_owners = live.is_settled or any(m.partitions for m in live.members)
            if has_owners and not incompatible_members:
                return live
            if time.monotonic() > deadline_s:
                break
            time.sleep(0.1)
        if incompatible_members:
            raise GroupRejected(
                f"Group '{group}' has live members that cannot apply a reset request: {listed(incompatible_members)}.",
                remedy="Stop them first. Spark queries and cursors of this library can continue to run.",
                group=group,
            )
        raise GroupRejected(
            f"Group '{group}' is rebalancing ({live.state}), so it is not known whether its members can apply a reset request: "
            f"{listed(live.members)}.",
            remedy="Call update_group again when the group is stable.",
            group=group,
        )
