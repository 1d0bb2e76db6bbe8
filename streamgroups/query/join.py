"""How a query enters its group: everything is checked first, then it joins.

Used by ``micro_batches``, once for each query, on the query's thread. Source: SEMANTICS G1, G2, S1, S5.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamgroups.checkpoints.offset import BatchOffset
from streamgroups.errors import GroupRejected
from streamgroups.groups.join_policy import MembershipMode, check_may_join
from streamgroups.groups.membership import Origin, Owned
from streamgroups.groups.subscription import Partitions, Pattern, partitions_of, topics_of
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Member
from streamgroups.query.offset_lookup import offsets_of
from streamgroups.query.query_ports import Cluster, NewMember, QuerySettings
from streamgroups.retry import comes_true

#: How often the group is looked at while it settles.
POLL_S = 0.2


class Joining:
    """The way of one query into its group.

    Args:
        settings: the user's options.
        cluster: where topics and groups are asked for.
        new_member: makes the member.
        join_timeout_ms: how long the first assignment is waited for.
        whole_timeout_ms: how long an exclusive query waits until it has all partitions.
    """

    def __init__(
        self,
        settings: QuerySettings,
        cluster: Cluster,
        new_member: NewMember,
        *,
        join_timeout_ms: int,
        whole_timeout_ms: int,
    ) -> None:
        assert settings.group_id is not None, "parse(streaming=True) demands it"
        self._settings, self._cluster, self._new_member = settings, cluster, new_member
        self._group_id = settings.group_id
        self._join_timeout_ms, self._whole_timeout_ms = join_timeout_ms, whole_timeout_ms
        self._joins = not isinstance(settings.subscription, Partitions)
        self._starting: dict[TopicPartition, int] = {}
        self._is_checked = False
        #: What there was to read when it was checked.
        self.partitions: Collection[TopicPartition] = ()
        #: Whether others were reading already: they wait while this query gets ready.
        self.others_read = False

    def check(self, checkpoint: BatchOffset) -> None:
        """Refuses what cannot be, and finds out where a new group starts; only the first call does anything.

        Raises:
            StreamGroupsError: what makes the query fail, in words for the user.
        """
        if self._is_checked:
            return
        settings = self._settings
        self._cluster.check_reachable()
        existing = self._cluster.topics()
        topics = topics_of(settings.subscription, existing)
        group = self._cluster.describe(self._group_id)
        by_pattern = isinstance(settings.subscription, Pattern)
        check_may_join(group, topics, by_pattern=by_pattern, mode=settings.mode if self._joins else None)
        partitions = partitions_of(settings.subscription, existing)
        # A group that has committed anything here is not new: what it has not committed was added later (G2).
        is_new = not self._cluster.committed(self._group_id, partitions)
        if is_new and checkpoint.number == 0:
            self._starting = offsets_of(
                self._cluster, settings.starting, partitions, on_data_loss=settings.on_data_loss
            )
        self.partitions = partitions
        self.others_read = bool(group.members) and self._joins
        self._is_checked = True

    def make_member(self) -> Member:
        """The member, which has not joined yet."""
        return self._new_member(topics=self._topics_now, first_positions=self._first_positions)

    def join(self, member: Member) -> None:
        """Joins, and waits for the first assignment.

        Raises:
            GroupRejected: if the group gives it none, or an exclusive query is not alone.
        """
        member.join(self._join_timeout_ms)
        if self._joins and self._settings.mode is MembershipMode.EXCLUSIVE:
            self._await_all(member)

    def was_read(self, partitions: Collection[TopicPartition]) -> None:
        """What has been read has a position of its own; should it lose that, it is a new partition."""
        self._starting = {tp: n for tp, n in self._starting.items() if tp not in partitions}

    def _topics_now(self) -> Collection[str]:
        return topics_of(self._settings.subscription, self._cluster.topics())

    def _first_positions(self, missing: Collection[TopicPartition]) -> Mapping[TopicPartition, Owned]:
        """Runs on the member's thread: where partitions start that the group has no committed offset for."""
        known = {tp: Owned(self._starting[tp], Origin.STARTING) for tp in missing if tp in self._starting}
        added = [tp for tp in missing if tp not in known]
        oldest = self._cluster.beginning_offsets(added) if added else {}
        return {**known, **{tp: Owned(n, Origin.OLDEST) for tp, n in oldest.items()}}

    def _await_all(self, member: Member) -> None:
        """An exclusive query begins when it owns everything: the checkpoint decides about all of it at once.

        Two of them may have joined at the same moment, each seeing an empty group.
        """
        partitions = set(partitions_of(self._settings.subscription, self._cluster.topics()))
        whole = comes_true(
            lambda: partitions <= member.membership.owned.keys(), self._whole_timeout_ms / 1000, every_s=POLL_S
        )
        members = self._cluster.describe(self._group_id).members
        if not whole or len(members) > 1:
            raise GroupRejected(
                f"Group '{self._group_id}' has {len(members)} members, but membership=exclusive permits only one.",
                remedy="Start one of them with another group.id.",
            )
