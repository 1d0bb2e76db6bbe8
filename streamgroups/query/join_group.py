"""Lets a query enter its group: checks everything first, then joins.

Used by ``streamgroups.query.micro_batches`` once for each query, on the thread of the query. Source: SEMANTICS G1, G2,
S1, S5, S14.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace

from streamgroups.checkpoints.offset import BatchOffset
from streamgroups.errors import GroupRejected, ProgramMismatch
from streamgroups.groups.added_partitions import added, require_none
from streamgroups.groups.commit_metadata import is_held_exclusively
from streamgroups.groups.join_policy import MembershipMode, check_may_join
from streamgroups.groups.membership import Origin, Owned
from streamgroups.groups.program import check_program, forms_in, is_committed_by, other_forms
from streamgroups.groups.subscription import Partitions, Pattern, existing_partitions, partitions_of, topics_of
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Cluster, Committed, Member
from streamgroups.printable import listed
from streamgroups.query.missing_partitions import missing_partitions
from streamgroups.query.offset_lookup import offsets_of
from streamgroups.query.query_ports import GroupLimit, NewMember, QuerySettings
from streamgroups.retry import comes_true
from streamgroups.shell_quoting import command

#: How often the group is polled until its rebalance completes, in seconds.
POLL_S = 0.2
#: How long the first member of a group waits until its starting positions are committed.
_START_TIMEOUT_S = 10.0

logger = logging.getLogger(__name__)


class Joining:
    """Checks one query and joins its group.

    Args:
        settings: the options of the user.
        cluster: topics and groups of the Kafka cluster.
        new_member: creates the member.
        join_timeout_ms: how long to wait for the first assignment.
        whole_timeout_ms: how long an exclusive query waits until it owns all partitions.
        group_limit: the limit of groups that read a topic; ``None`` without one.
        form: the form of the program of the query. Empty if it is unknown.
        rejects_added: whether partitions that are added to a topic are rejected (SEMANTICS C4).
    """

    def __init__(
        self,
        settings: QuerySettings,
        cluster: Cluster,
        new_member: NewMember,
        *,
        join_timeout_ms: int,
        whole_timeout_ms: int,
        group_limit: GroupLimit | None = None,
        form: str = "",
        rejects_added: bool = False,
    ) -> None:
        assert settings.group_id is not None, "parse(streaming=True) demands it"
        self._settings, self._cluster, self._new_member = settings, cluster, new_member
        self._group_id = settings.group_id
        self._join_timeout_ms, self._whole_timeout_ms = join_timeout_ms, whole_timeout_ms
        self._group_limit, self._form, self._rejects_added = group_limit, form, rejects_added
        self._joins = not isinstance(settings.subscription, Partitions)
        self._starting: dict[TopicPartition, int] = {}
        #: The topics of the starting positions. Kafka deletes the committed offsets of a deleted topic.
        self._identities: Mapping[str, TopicIdentity] = {}
        #: The partitions of the checkpoint. They were not added, also if the group has lost their offsets.
        self._in_checkpoint: Collection[TopicPartition] = ()
        self._is_checked = False
        #: The partitions of the subscription at the time of the check.
        self.partitions: Collection[TopicPartition] = ()
        #: Whether other members were reading at that time: they wait while this query gets ready.
        self.others_read = False

    def check(self, checkpoint: BatchOffset) -> None:
        """Rejects invalid settings, and determines the starting positions of a new group.

        Only the first call has an effect.

        Raises:
            StreamGroupsError: if the query must fail. The text is for the user.
        """
        if self._is_checked:
            return
        settings = self._settings
        self._cluster.check_reachable()
        existing = self._cluster.topics()
        topics = topics_of(settings.subscription, existing)
        group = self._cluster.describe(self._group_id)
        by_pattern = isinstance(settings.subscription, Pattern)
        partitions = partitions_of(settings.subscription, existing)
        is_restart = checkpoint.number != 0
        # A restarted query continues, also if the group has lost its offsets. Its group was there before, and its member checks the
        # positions that it is assigned.
        owners = group.owners
        requested = {*owners} if is_restart else {*owners, *partitions}
        committed = self._cluster.committed(self._group_id, requested)
        check_may_join(
            group,
            topics,
            by_pattern=by_pattern,
            mode=settings.mode if self._joins else None,
            held_exclusively=is_held_exclusively(it.metadata for tp, it in committed.items() if tp in owners),
        )
        forms = forms_in(_metadata(committed))
        check_program(self._form, forms, settings.on_other_program, lambda: group, is_joining=True)
        if others := other_forms(self._form, forms):
            logger.warning(
                "Group '%s' belongs to another program ('%s'); this program ('%s') takes it over (onOtherProgram=continue)",
                self._group_id,
                "', '".join(sorted(set(others.values()))),
                self._form,
            )
        # A group with a committed offset for one of these partitions is not new: partitions without one were added
        # later (G2).
        if not is_restart and committed.keys().isdisjoint(partitions):
            if self._group_limit is not None and not group.members:
                self._group_limit.check(topics)
            # The ids are read first: if a topic is recreated now, its starting position is a loss.
            self._identities = self._cluster.identities(topics)
            self._starting = offsets_of(
                self._cluster, settings.starting, partitions, on_data_loss=settings.on_data_loss
            )
        self._in_checkpoint = checkpoint.next_offsets.keys()
        self.partitions = partitions
        self.others_read = bool(group.members) and self._joins
        self._is_checked = True

    @property
    def starting(self) -> BatchOffset:
        """The starting positions of a new group, with their topic ids. Empty for an existing group."""
        return BatchOffset(0, resting=self._starting).with_identities(self._identities)

    def resumed(self) -> None:
        """Ends the exemption of the partitions of the checkpoint: only the first assignment continues there.

        A partition that is assigned later, without an offset of the group, begins with an empty state.
        """
        self._in_checkpoint = ()

    def make_member(self) -> Member:
        """Creates the member, which has not joined yet."""
        return self._new_member(self._topics_now, self._first_positions, self._check_positions)

    def join(self, member: Member) -> None:
        """Joins the group and waits for the first assignment.

        Raises:
            GroupRejected: if the group assigns no partitions, or an exclusive query is not the only member or does not own
                all partitions.
        """
        member.join(self._join_timeout_ms)
        if self._joins and self._settings.mode is MembershipMode.EXCLUSIVE:
            self._await_all(member)

    def confirm_start(self, member: Member) -> None:
        """Waits until the starting positions of a new group are committed, and rejects a second program that starts there now.

        Both have found a group without committed offsets. Each commits its starting positions before it reads the other ones. So at
        least one of them finds those of the other, and leaves before it has read a record. It clears the form of its own ones, so that the
        other program can own these partitions.

        Raises:
            ProgramMismatch: if another program has committed starting positions.
        """
        if not (self._starting and self._form and self._joins):
            return
        found: dict[TopicPartition, str] = {}

        def is_done() -> bool:
            nonlocal found
            found = _metadata(self._cluster.committed(self._group_id, self.partitions))
            owned = member.membership.owned
            starting = [tp for tp, it in owned.items() if it.origin is Origin.STARTING]
            return bool(other_forms(self._form, forms_in(found))) or is_committed_by(self._form, starting, found)

        comes_true(is_done, _START_TIMEOUT_S, every_s=POLL_S)
        try:
            self._check_program(forms_in(found))
        except ProgramMismatch:
            member.clear_form()
            raise

    def has_share(self, member: Member) -> bool:
        """Whether it is known which partitions this member reads: some, or none because other members own all that exist.

        It is not known during a rebalance, and while the member may be fenced: then it plans no batch on its partitions.
        """
        membership = member.membership
        if membership.plannable:
            return True
        partitions = self.existing()
        if membership.owned or not partitions:
            return not partitions
        group = self._cluster.describe(self._group_id)
        others = {tp for tp, it in group.owners.items() if it.member_id != member.member_id}
        return group.is_settled and partitions <= others

    def existing(self) -> frozenset[TopicPartition]:
        """The partitions of the subscription that exist now.

        Raises:
            NotAuthorized: if this user may not describe the topic of one of them any more.
        """
        there = existing_partitions(self._settings.subscription, self._cluster.topics())
        unlisted = frozenset(self.partitions) - there
        return there | (unlisted - missing_partitions(self._cluster, unlisted))

    def was_read(self, partitions: Collection[TopicPartition]) -> None:
        """Removes the starting positions of partitions that have been read.

        If the group loses their offsets, they count as new.
        """
        self._starting = {tp: n for tp, n in self._starting.items() if tp not in partitions}

    def _check_positions(self, owned: Mapping[TopicPartition, Owned]) -> None:
        """Rejects positions of another program. Runs on the thread of the member."""
        self._check_program({tp: it.form for tp, it in owned.items()})

    def _check_program(self, forms: Mapping[TopicPartition, str]) -> None:
        policy = self._settings.on_other_program
        check_program(self._form, forms, policy, lambda: self._cluster.describe(self._group_id))

    def _topics_now(self) -> Collection[str]:
        return topics_of(self._settings.subscription, self._cluster.topics())

    def _first_positions(self, missing: Collection[TopicPartition]) -> Mapping[TopicPartition, Owned]:
        """The starting positions of partitions without a committed offset. Runs on the thread of the member.

        Raises:
            PartitionsAdded: if some were added to a topic whose records have state by key.
        """
        known = self._started([tp for tp in missing if tp in self._starting])
        later = [tp for tp in missing if tp not in known]
        if later and self._rejects_added:
            new = [tp for tp in later if tp not in self._in_checkpoint and tp not in self._starting]
            topics = {tp.topic for tp in new}
            counts = {topic: n for topic, n in self._cluster.topics().items() if topic in topics}
            of_topics = [TopicPartition(topic, p) for topic, n in counts.items() for p in range(n)]
            require_none(added(new, self._cluster.committed(self._group_id, of_topics)), self._group_id)
        earliest = self._cluster.beginning_offsets(later) if later else {}
        return {**known, **{tp: Owned.new(n, Origin.EARLIEST) for tp, n in earliest.items()}}

    def _started(self, missing: Collection[TopicPartition]) -> dict[TopicPartition, Owned]:
        """The starting positions of partitions whose topic was not recreated since.

        The others are read from the earliest record, unless the loss of their position is handled first (SEMANTICS S11).
        """
        now = self._cluster.identities({tp.topic for tp in missing}) if missing else {}
        then = {tp: self._identities.get(tp.topic, UNKNOWN) for tp in missing}
        return {
            tp: replace(Owned.new(self._starting[tp], Origin.STARTING), identity=it)
            for tp, it in then.items()
            if not it.differs_from(now.get(tp.topic, UNKNOWN))
        }

    def _await_all(self, member: Member) -> None:
        """Waits until an exclusive query owns all partitions, since the checkpoint decides about all of them at once.

        Two exclusive queries may have joined at the same moment, each after it had found an empty group.
        """
        partitions = set(partitions_of(self._settings.subscription, self._cluster.topics()))
        timeout_s = self._whole_timeout_ms / 1000
        owns_all = comes_true(lambda: partitions <= member.membership.owned.keys(), timeout_s, every_s=POLL_S)
        members = self._cluster.describe(self._group_id).members
        if len(members) > 1:
            raise GroupRejected(
                f"Group '{self._group_id}' has {len(members)} members, but membership=exclusive permits only one.",
                remedy="Start one of them with another group.id.",
            )
        if not owns_all:
            missing = sorted(partitions - member.membership.owned.keys())
            raise GroupRejected(
                f"The only member of group '{self._group_id}' owns {len(partitions) - len(missing)} of {len(partitions)} "
                f"partitions after {timeout_s:g} s, but membership=exclusive requires all. Not assigned: {listed(missing)}.",
                remedy=f"Check the group with: {command('groups describe', [self._group_id])}. Then start the query again.",
            )


def _metadata(committed: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, str]:
    return {tp: it.metadata for tp, it in committed.items()}
