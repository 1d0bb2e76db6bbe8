"""A group member whose commits block until they are acknowledged, for an instance of group cursors.

Each ``instance_session`` uses one, from the thread of its instance. The underlying
:class:`~streamgroups_kafka.membership.member.KafkaMember` commits in the background. When the group fences it, it joins
again by itself. This module follows the history of that member. So it detects acknowledged and rejected commits, and
distinguishes two assignments of one partition. Source: SEMANTICS G4, G7, G8, G11.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from streamgroups.coordination.reset_participant import OwnedPartition
from streamgroups.cursors.pending_ranges import Holding, PendingRange, plan_commit, retained
from streamgroups.errors import BrokerUnreachable, GroupRejected, StreamGroupsError
from streamgroups.groups.history import Kind, MemberEvent
from streamgroups.groups.membership import NewPosition, Origin
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Member, Recorder
from streamgroups.printable import listed
from streamgroups_kafka.cursors.position_checks import TopicIds, current

#: The poll interval of all waits.
_POLL_S = 0.02
_GONE = (Kind.RELEASED, Kind.LOST)


class CursorMember:
    """The membership of one instance in its group.

    Args:
        new_member: creates the member, which reports all events to the given recorder.
        on_assigned: called on the member's thread after partitions are assigned. It must return at once.
        commit_timeout_ms: the timeout of a commit, in milliseconds. Rebalances and restarts of brokers delay commits.
    """

    def __init__(
        self,
        new_member: Callable[[Recorder], Member],
        *,
        on_assigned: Callable[[], None] = lambda: None,
        commit_timeout_ms: int = 30_000,
    ) -> None:
        self._on_assigned, self._commit_timeout_ms = on_assigned, commit_timeout_ms
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        # Protected by _changed. The lock of the member may be held when _changed is acquired, never the reverse.
        self._ownership_epochs: dict[TopicPartition, int] = {}
        self._lost: set[int] = set()
        self._acknowledged: dict[TopicPartition, int] = {}
        # Used only by the thread of the instance: unacknowledged commits, and the offsets last given out.
        self._requested: dict[TopicPartition, PendingRange] = {}
        self._given: dict[TopicPartition, PendingRange] = {}
        self._member = new_member(self._record)

    def join(self, timeout_ms: int, stops: Callable[[], bool] = lambda: False) -> None:
        """Joins the group, and waits for the first assignment, which may be empty, and for the commit of the starting
        offsets of a new group: other groups are counted by their committed offsets (G14).

        Args:
            timeout_ms: how long to wait, in milliseconds. The member continues to join after that.
            stops: called repeatedly; returns whether to stop waiting.

        Raises:
            StreamGroupsError: if the group rejects the member.
        """
        # Either no assignment within 0 ms, or a permanent rejection. The code below distinguishes them.
        with contextlib.suppress(GroupRejected):
            self._member.join(0)
        deadline_s = time.monotonic() + timeout_ms / 1000
        while not self._has_started() and time.monotonic() < deadline_s and not stops():
            with self._changed:
                self._changed.wait(_POLL_S)

    def _has_started(self) -> bool:
        membership = self._member.membership
        starting = {tp for tp, owned in membership.owned.items() if owned.origin is Origin.STARTING}
        with self._changed:
            return membership.assignments > 0 and starting <= self._acknowledged.keys()

    @property
    def has_failed(self) -> bool:
        """Whether the group has rejected this member permanently."""
        try:
            _ = self._member.membership
        except StreamGroupsError:
            return True
        return False

    @property
    def holds_up(self) -> bool:
        """Whether a rebalance waits for a partition with messages that this instance has received and not committed."""
        membership = self._member.membership
        return membership.releasable(membership.releasing) != membership.releasing

    def holdings(self) -> dict[TopicPartition, Holding]:
        """The partitions that this instance owns.

        Raises:
            StreamGroupsError: if the member has failed permanently. Every later call raises the same error.
        """
        membership = self._member.membership
        with self._changed:
            return {
                tp: Holding(self._ownership_epochs[tp], owned.next_offset, tp in membership.releasing, owned)
                for tp, owned in membership.owned.items()
                if tp in self._ownership_epochs
            }

    def check_topics(self, ids: TopicIds, group_id: str, *, without: Collection[TopicPartition]) -> None:
        """Compares the topic ids of the positions with those of the cluster. Positions without ids get the current
        ones.

        Args:
            ids: provides topic ids.
            group_id: the group, for the text of an error.
            without: partitions that wait for a reset.

        Raises:
            DataLoss: if a position belongs to another topic or cluster.
            StreamGroupsError: see :class:`streamgroups.ports.Cluster`.
        """
        owned = {tp: it for tp, it in self._member.membership.owned.items() if tp not in without}
        known = current(ids, group_id, owned) if owned else {}
        if new := {tp: it for tp, it in known.items() if it.identity != owned[tp].identity}:
            self._member.identify(new)

    def was_lost(self, covered: PendingRange) -> bool:
        """Whether an assignment ended because the group fenced this member, rather than by a handover."""
        with self._changed:
            return covered.ownership_epoch in self._lost

    def commit(self, pending: Iterable[PendingRange]) -> tuple[PendingRange, ...]:
        """Commits the offsets that a cursor covers, and waits for the acknowledgement.

        Returns:
            The offsets that were not committed, because this instance no longer owns the partitions.

        Raises:
            BrokerUnreachable: if the broker does not respond before the timeout. A repeated call waits again.
        """
        holdings = self.holdings()
        plan = plan_commit(pending, holdings)
        self._request_commit(
            {tp: PendingRange(tp, holdings[tp].ownership_epoch, n) for tp, n in plan.next_offsets.items()},
            {
                tp: NewPosition(n, holdings[tp].owned.epoch, holdings[tp].owned.identity, is_read=True)
                for tp, n in plan.next_offsets.items()
            },
            detail="",
        )
        gone = plan.gone + self._await_acknowledgement()
        # Committed messages are no longer given out, so revoked partitions can be released now.
        self.reserve({})
        return gone

    @property
    def member_id(self) -> str:
        """See :attr:`streamgroups.coordination.reset_participant.ResettableMember.member_id`."""
        return self._member.member_id

    @property
    def owned(self) -> dict[TopicPartition, OwnedPartition]:
        """See :attr:`streamgroups.coordination.reset_participant.ResettableMember.owned`. Revoked partitions are included: they
        are paused too, and so released at once.
        """
        return {
            tp: OwnedPartition(it.ownership_epoch, it.next_offset, it.owned.reset, it.owned.origin is Origin.FOREIGN)
            for tp, it in self.holdings().items()
        }

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """See :meth:`streamgroups.coordination.reset_participant.ResettableMember.stop`. Uncommitted messages of these partitions
        can no longer be committed.
        """
        stopped = frozenset(partitions)
        self._begin_epochs({tp: it for tp, it in self.owned.items() if tp in stopped}, detail="")

    def move(self, decided: Mapping[TopicPartition, OwnedPartition], *, detail: str) -> frozenset[TopicPartition]:
        """See :meth:`streamgroups.coordination.reset_participant.ResettableMember.move`. Older cursors belong to an earlier
        ownership epoch.
        """
        return self._begin_epochs(decided, detail=detail)

    def _begin_epochs(
        self, decided: Mapping[TopicPartition, OwnedPartition], *, detail: str
    ) -> frozenset[TopicPartition]:
        """Sets positions, in new ownership epochs of this instance, and waits for their commit."""
        holdings = self.holdings()
        current = {
            tp: it
            for tp, it in decided.items()
            if tp in holdings and holdings[tp].ownership_epoch == it.ownership_epoch
        }
        with self._changed:
            new = {
                tp: next(self._numbers)
                for tp, it in current.items()
                if self._ownership_epochs.get(tp) == it.ownership_epoch
            }
            self._ownership_epochs.update(new)
        self._request_commit(
            {tp: PendingRange(tp, ownership_epoch, current[tp].next_offset) for tp, ownership_epoch in new.items()},
            {tp: NewPosition(current[tp].next_offset, holdings[tp].owned.epoch, reset=current[tp].reset) for tp in new},
            detail=detail,
        )
        for tp in new:
            self._given.pop(tp, None)
        gone = {covered.topic_partition for covered in self._await_acknowledgement()}
        return frozenset(new) - gone

    def reserve(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> frozenset[TopicPartition]:
        """Records the offsets that the user receives. The member retains these partitions, and those of earlier
        messages, until the messages are committed.

        Args:
            ranges: the committed offset of each partition, and the offset after the last message given out.

        Returns:
            The partitions that may be given out. The group may have revoked others meanwhile.
        """
        holdings = self.holdings()
        required = [OffsetRange(tp, *it) for tp, it in retained(self._given.values(), ranges, holdings).items()]
        ends = {r.topic_partition: r.end_offset for r in self._member.plan(next(self._numbers), required).ranges}
        self._given = {tp: PendingRange(tp, holdings[tp].ownership_epoch, end) for tp, end in ends.items()}
        return frozenset(tp for tp, (_, end) in ranges.items() if tp in ends and end <= ends[tp])

    @property
    def given(self) -> tuple[PendingRange, ...]:
        """The end of the messages given out, for each partition with such messages."""
        return tuple(self._given.values())

    def close(self) -> None:
        """Leaves the group. The next owner reads the uncommitted messages."""
        self._member.close()

    def _request_commit(
        self,
        required: Mapping[TopicPartition, PendingRange],
        decided: Mapping[TopicPartition, NewPosition],
        *,
        detail: str,
    ) -> None:
        if not required:
            return
        with self._changed:
            for tp in required:
                self._acknowledged.pop(tp, None)
        self._requested.update(required)
        self._member.move(decided, detail=detail)

    def _await_acknowledgement(self) -> tuple[PendingRange, ...]:
        """Waits until all requested commits are acknowledged or their partitions are lost. Returns the lost ones."""
        deadline_s = time.monotonic() + self._commit_timeout_ms / 1000
        gone: list[PendingRange] = []
        while True:
            with self._changed:
                for tp, covered in list(self._requested.items()):
                    if self._acknowledged.get(tp) == covered.next_offset:
                        del self._requested[tp]
                    elif self._ownership_epochs.get(tp) != covered.ownership_epoch:
                        gone.append(self._requested.pop(tp))
                if not self._requested:
                    return tuple(gone)
                self._changed.wait(_POLL_S)
            # This property raises permanent errors.
            _ = self._member.membership
            if time.monotonic() > deadline_s:
                raise BrokerUnreachable(
                    f"The broker did not respond to a commit of {listed(sorted(self._requested))} "
                    f"within {self._commit_timeout_ms / 1000:.0f} s.",
                    remedy=(
                        "The cursor stays valid: send the request again. The group may be rebalancing, or a "
                        "broker may be down."
                    ),
                )

    def _record(self, event: MemberEvent) -> None:
        """Handles an event, on the member's thread or this one: see :class:`streamgroups.ports.Recorder`."""
        with self._changed:
            if event.kind is Kind.ASSIGNED:
                self._ownership_epochs.update({tp: next(self._numbers) for tp in event.offsets})
            elif event.kind in _GONE:
                ended = [self._ownership_epochs.pop(tp) for tp in event.offsets if tp in self._ownership_epochs]
                self._lost.update(ended if event.kind is Kind.LOST else ())
            elif event.kind is Kind.COMMITTED:
                self._acknowledged.update(event.offsets)
            self._changed.notify_all()
        if event.kind is Kind.ASSIGNED:
            self._on_assigned()
