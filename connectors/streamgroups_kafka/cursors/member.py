"""A member of a group whose commits can be waited for: what an instance of group cursors needs of a member.

Used by ``session``, one for each instance, from that instance's own thread. The member itself is a
:class:`~streamgroups_kafka.membership.member.KafkaMember`, which commits in the background and joins again by itself when the group went
on without it. Here its history is listened to, so that a commit is known to be done or refused, and so that two tenures of
one partition are told apart. Source: SEMANTICS G4, G7, G8, G11.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from streamgroups.coordination.reset_participant import Hold
from streamgroups.cursors.session import Covered, Holding, plan_commit
from streamgroups.errors import BrokerUnreachable, GroupRejected, StreamGroupsError
from streamgroups.groups.history import Kind
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Member, Recorder
from streamgroups_kafka.cursors.positions import TopicIds, current

#: How often a wait looks up.
_POLL_S = 0.02
_GONE = (Kind.RELEASED, Kind.LOST)


class CursorMember:
    """One instance's place in its group.

    Args:
        new_member: makes the member, which tells the given recorder everything.
        on_assigned: called when partitions have come in, on the member's thread; must return at once.
        commit_timeout_ms: how long a commit may take. Rebalances and brokers that restart hold it up.
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
        # Read and written under _changed. The member's own lock may be held around it, so never the other way round.
        self._ownership_epochs: dict[TopicPartition, int] = {}
        self._lost: set[int] = set()
        self._acknowledged: dict[TopicPartition, int] = {}
        # The instance's thread's own: what was asked for and is not known to be done, and what was given out last.
        self._asked: dict[TopicPartition, Covered] = {}
        self._given: dict[TopicPartition, int] = {}
        self._member = new_member(self._record)

    def join(self, timeout_ms: int, give_up: Callable[[], bool] = lambda: False) -> None:
        """Asks to join, and waits for the first assignment, which may be empty.

        Args:
            timeout_ms: how long to wait. The member goes on joining after that.
            give_up: asked again and again whether waiting has become pointless.

        Raises:
            StreamGroupsError: if the group refuses.
        """
        # Not assigned within no time, or refused for good: which of the two is asked for below.
        with contextlib.suppress(GroupRejected):
            self._member.join(0)
        deadline_s = time.monotonic() + timeout_ms / 1000
        while not self._member.membership.assignments and time.monotonic() < deadline_s and not give_up():
            with self._changed:
                self._changed.wait(_POLL_S)

    @property
    def has_failed(self) -> bool:
        """Whether the group refuses this member for good."""
        try:
            _ = self._member.membership
        except StreamGroupsError:
            return True
        return False

    @property
    def holds_up(self) -> bool:
        """Whether the group waits for a partition that this instance was given messages of and has not committed."""
        membership = self._member.membership
        return any(not membership.may_release(tp) for tp in membership.releasing)

    def holdings(self) -> dict[TopicPartition, Holding]:
        """What it owns.

        Raises:
            StreamGroupsError: if the member has failed for good; every later call raises the same.
        """
        membership = self._member.membership
        with self._changed:
            return {
                tp: Holding(self._ownership_epochs[tp], owned.next_offset, tp in membership.releasing)
                for tp, owned in membership.owned.items()
                if tp in self._ownership_epochs
            }

    def check_topics(self, ids: TopicIds, group_id: str, *, without: Collection[TopicPartition]) -> None:
        """Compares the topics of its positions with those that are there. Positions without ids get theirs.

        Args:
            ids: the ids of topics.
            group_id: the group, for the text of an error.
            without: partitions that wait for a move.

        Raises:
            DataLoss: if a position is of another topic or cluster.
            StreamGroupsError: see :class:`streamgroups.ports.Log`.
        """
        owned = {tp: it for tp, it in self._member.membership.owned.items() if tp not in without}
        known = current(ids, group_id, owned) if owned else {}
        if new := {tp: it.identity for tp, it in known.items() if it.identity != owned[tp].identity}:
            self._member.identify(new)

    def was_lost(self, covered: Covered) -> bool:
        """Whether a tenure ended because the group went on without this member, rather than by an orderly hand-over."""
        with self._changed:
            return covered.ownership_epoch in self._lost

    def commit(self, covers: Iterable[Covered]) -> tuple[Covered, ...]:
        """Commits what a cursor covers, and waits until the group has it.

        Returns:
            What could not be committed, because it is no longer this instance's.

        Raises:
            BrokerUnreachable: if there is no answer in time. Asking again waits for it again.
        """
        holdings = self.holdings()
        plan = plan_commit(covers, holdings)
        self._ask({tp: Covered(tp, holdings[tp].ownership_epoch, n) for tp, n in plan.next_offsets.items()}, note="")
        gone = plan.gone + self._await_acknowledgement()
        self._give_back()
        return gone

    @property
    def holds(self) -> dict[TopicPartition, Hold]:
        """See :attr:`streamgroups.coordination.reset_participant.Place.holds`. What the group has asked back is stopped too, and so goes at once."""
        return {tp: Hold(holding.ownership_epoch, holding.next_offset) for tp, holding in self.holdings().items()}

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """See :meth:`streamgroups.coordination.reset_participant.Place.stop`: what was given out and is not committed will not be."""
        holdings = self.holdings()
        self.move({tp: holdings[tp].next_offset for tp in partitions if tp in holdings}, note="", request_id="")

    def move(
        self, next_offsets: Mapping[TopicPartition, int], *, note: str, request_id: str
    ) -> frozenset[TopicPartition]:
        """See :meth:`streamgroups.coordination.reset_participant.Place.move`. Cursors from before it are cursors of an earlier tenure."""
        with self._changed:
            moved = {tp: next(self._numbers) for tp in next_offsets if tp in self._ownership_epochs}
            self._ownership_epochs.update(moved)
        self._ask(
            {tp: Covered(tp, ownership_epoch, next_offsets[tp]) for tp, ownership_epoch in moved.items()}, note=note
        )
        for tp in moved:
            self._given.pop(tp, None)
        gone = {covered.topic_partition for covered in self._await_acknowledgement()}
        return frozenset(moved) - gone

    def give_out(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> frozenset[TopicPartition]:
        """Says which offsets the user has now; the member holds on to them while it can.

        Args:
            ranges: of each partition, its committed offset and the one after the last that is given out.

        Returns:
            The partitions that may be given out: the group may have asked for others meanwhile.
        """
        accepted = self._member.plan(next(self._numbers), ranges).topic_partitions
        self._given = {tp: end for tp, (_, end) in ranges.items() if tp in accepted}
        return accepted

    @property
    def given(self) -> dict[TopicPartition, int]:
        """The offset after the last that was given out, of each partition of which anything was."""
        return dict(self._given)

    def close(self) -> None:
        """Leaves the group. What was not committed goes to whoever is next."""
        self._member.close()

    def _ask(self, wanted: Mapping[TopicPartition, Covered], *, note: str) -> None:
        if not wanted:
            return
        with self._changed:
            for tp in wanted:
                self._acknowledged.pop(tp, None)
        self._asked.update(wanted)
        self._member.move({tp: c.next_offset for tp, c in wanted.items()}, note=note)

    def _await_acknowledgement(self) -> tuple[Covered, ...]:
        """Waits until all that was asked for is committed, or gone; returns what is gone."""
        deadline_s = time.monotonic() + self._commit_timeout_ms / 1000
        gone: list[Covered] = []
        while True:
            with self._changed:
                for tp, covered in list(self._asked.items()):
                    if self._acknowledged.get(tp) == covered.next_offset:
                        del self._asked[tp]
                    elif self._ownership_epochs.get(tp) != covered.ownership_epoch:
                        gone.append(self._asked.pop(tp))
                if not self._asked:
                    return tuple(gone)
                self._changed.wait(_POLL_S)
            # Raises what is final.
            _ = self._member.membership
            if time.monotonic() > deadline_s:
                raise BrokerUnreachable(
                    f"The broker did not respond to a commit of {', '.join(map(str, sorted(self._asked)))} "
                    f"within {self._commit_timeout_ms / 1000:.0f} s.",
                    remedy=(
                        "The cursor stays valid: send the request again. The group may be rebalancing, or a "
                        "broker may be down."
                    ),
                )

    def _give_back(self) -> None:
        """What is committed is no longer given out, so that a partition the group wants back can go now."""
        holdings = self.holdings()
        left = {
            tp: (holdings[tp].next_offset, end)
            for tp, end in self._given.items()
            if tp in holdings and end > holdings[tp].next_offset
        }
        # A plan cannot hold on to what the group wants back; the one before it does until the rest is committed, too.
        if not any(holdings[tp].releasing for tp in left):
            self.give_out(left)

    def _record(
        self,
        kind: Kind,
        *,
        offsets: Mapping[TopicPartition, int] | None = None,
        ranges: Iterable[OffsetRange] = (),
        batch: int | None = None,
        note: str = "",
    ) -> None:
        """The member's history, told on the member's thread or this one: see :class:`streamgroups.ports.Recorder`."""
        offsets = offsets or {}
        with self._changed:
            if kind is Kind.ASSIGNED:
                self._ownership_epochs.update({tp: next(self._numbers) for tp in offsets})
            elif kind in _GONE:
                ended = [self._ownership_epochs.pop(tp) for tp in offsets if tp in self._ownership_epochs]
                self._lost.update(ended if kind is Kind.LOST else ())
            elif kind is Kind.COMMITTED:
                self._acknowledged.update(offsets)
            self._changed.notify_all()
        if kind is Kind.ASSIGNED:
            self._on_assigned()
