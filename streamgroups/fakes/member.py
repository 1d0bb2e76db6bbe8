"""A member of a group in memory: the client's side of it.

Implements :class:`streamgroups.ports.Member` on a :class:`~streamgroups.fakes.group.FakeGroup`, as
``streamgroups_kafka.membership.member`` does on a broker. Both translate the decisions of a
:class:`~streamgroups.groups.membership.Membership`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from streamgroups.errors import FencedMember, GroupRejected, StreamGroupsError, UnknownTopic
from streamgroups.fakes.group import CommitAnswer, FakeGroup, FakeGroupMetadata
from streamgroups.groups.applied_reset import AppliedReset, first_reset, new_reset_id
from streamgroups.groups.commit_metadata import CommitMark, ToolMark, is_held_exclusively
from streamgroups.groups.exclusive_membership import check_revoked
from streamgroups.groups.history import Kind, MemberEvent, no_history
from streamgroups.groups.membership import (
    InFlight,
    Membership,
    MoveLedger,
    NewPosition,
    Origin,
    Owned,
    States,
    TakeOver,
)
from streamgroups.groups.program import other_forms
from streamgroups.ledgers.fences import fenced_by_ledger
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Committed, FirstPositions, Recorder

_OWN_COMMITS = (Origin.COMMITTED, Origin.WRITTEN)


@dataclass(frozen=True, slots=True)
class FakeMemberSnapshot:
    """The state of the member that a sink requires to write its batch.

    Args:
        in_flight: the batch, without partitions that were released meanwhile; ``None`` between two batches.
        group_metadata: the consumer group metadata of the member; ``None`` if the sink must not commit now.
    """

    in_flight: InFlight | None
    group_metadata: FakeGroupMetadata | None


class FakeMember:
    """See :class:`streamgroups.ports.Member`.

    Args:
        group: the group.
        name: its name, which must be unique among live members.
        topics: returns the topics to subscribe to now.
        first_positions: returns the position of partitions without a committed offset of the group.
        record: records events.
        assign: read exactly these partitions without joining (the option ``assign``); ``None`` to join.
        exclusive: fail when the group assigns partitions to another member (``membership=exclusive``).
        take_over: returns the positions of assigned partitions from those of the group, because a sink's ledger can be
            ahead.
        next_reset: returns how a reset by a client without marks is recorded, for each of these partitions.
        move_ledger: sets the positions of a sink's ledger before the member moves there.
        form: the form of the program, for the marks of commits.
        check_positions: rejects assigned positions that belong to another program.
    """

    def __init__(
        self,
        group: FakeGroup,
        name: str,
        *,
        topics: Callable[[], Collection[str]],
        first_positions: FirstPositions,
        record: Recorder = no_history,
        assign: Collection[TopicPartition] | None = None,
        exclusive: bool = False,
        take_over: TakeOver = lambda owned, _: owned,
        next_reset: Callable[[Collection[TopicPartition], str], Mapping[TopicPartition, AppliedReset]] = first_reset,
        move_ledger: MoveLedger = frozenset,
        form: str = "",
        check_positions: Callable[[Mapping[TopicPartition, Owned]], None] = lambda _: None,
    ) -> None:
        self.name = name
        self._group, self._topics, self._first_positions = group, topics, first_positions
        self._subscribed = frozenset[str]()
        self._record, self._assign, self._exclusive = record, assign, exclusive
        self._take_over, self._move_ledger, self._form = take_over, move_ledger, form
        self._next_reset, self._check_positions = next_reset, check_positions
        self._membership = Membership()
        self._to_commit: dict[TopicPartition, int] = {}
        #: Assigned partitions whose offsets an open transaction can still change.
        self._unstable: set[TopicPartition] = set()
        self._member_id: int | None = None
        self._generation = 0
        #: The batch that a sink has committed, and committed offsets that a sink has tagged.
        self._given_to_sink: int | None = None
        self._written: int | None = None
        self._sinks: dict[TopicPartition, int] = {}
        self._failure: StreamGroupsError | None = None
        self._closed = False
        self._left = False
        self._dead = False

    # ---- the port ----------------------------------------------------------------------------------------------------

    def join(self, timeout_ms: int) -> None:
        """See :meth:`streamgroups.ports.Member.join`. Never waits: the first assignment is immediate, and can be empty."""
        self._check_alive()
        self._record(MemberEvent(Kind.JOINING))
        if self._assign is not None:
            self.hand_over(self._assign)
        else:
            self._member_id = self._group.join(self)
        self._membership = self._membership.assign({})
        self.serve()

    @property
    def member_id(self) -> str:
        """See :attr:`streamgroups.ports.Member.member_id`."""
        return "" if self._member_id is None else self.name

    @property
    def membership(self) -> Membership:
        """See :attr:`streamgroups.ports.Member.membership`."""
        self._check_alive()
        return self._membership

    def finish(self, number: int, states: States = MappingProxyType({})) -> None:
        """See :meth:`streamgroups.ports.Member.finish`. Commits at once, unless the group is rebalancing."""
        self._check_alive()
        had = self._membership.in_flight
        self._membership, to_commit = self._membership.finish(number, states)
        if had is not self._membership.in_flight:
            self._record(MemberEvent(Kind.FINISHED, offsets=to_commit, batch=number))
        if to_commit and number in (self._written, self._given_to_sink):
            # The commit of the sink is that of the group. Its report can be lost.
            self._sinks |= to_commit
            self._record(MemberEvent(Kind.COMMITTED, offsets=to_commit))
        else:
            self._to_commit |= to_commit
        self._commit_due()
        self._release_what_may_go()

    def written(self, number: int) -> None:
        """Records that a sink has committed the offsets of batch ``number`` together with its output."""
        self._written = number

    @property
    def snapshot(self) -> FakeMemberSnapshot:
        """Returns the state that a sink requires to write the batch in flight."""
        self._check_alive()
        group_metadata = None if self._member_id is None else FakeGroupMetadata(self._member_id, self._generation)
        return FakeMemberSnapshot(self._membership.in_flight, group_metadata)

    def snapshot_to_commit(self) -> FakeMemberSnapshot:
        """Returns the same for a sink that commits the batch's offsets next.

        It contains no consumer group metadata while the member is committing any of them.
        """
        snapshot = self.snapshot
        batch = snapshot.in_flight
        if batch is not None and not self._to_commit.keys().isdisjoint(batch.topic_partitions):
            return FakeMemberSnapshot(batch, None)
        if batch is not None and snapshot.group_metadata is not None:
            self._given_to_sink = batch.number
        return snapshot

    def time_out(self) -> None:
        """Ends the wait of the group for the batch in flight. Revoked partitions are released during the batch."""
        self._release(sorted(self._membership.releasing), Kind.RELEASED)

    def commit_as_a_sink(self) -> CommitAnswer:
        """Commits as a sink at the end of its batch: offsets and output together, with a commit metadata tag."""
        snapshot = self.snapshot_to_commit()
        if snapshot.in_flight is None or snapshot.group_metadata is None:
            return CommitAnswer.TRY_AGAIN
        offsets = {
            r.topic_partition: Committed(r.end_offset, self._mark_of(r.topic_partition, r.end_offset, written=True))
            for r in snapshot.in_flight.ranges
        }
        answer = self._group.commit(snapshot.group_metadata, offsets)
        if answer is CommitAnswer.ACCEPTED:
            self.written(snapshot.in_flight.number)
        return answer

    def move(self, decided: Mapping[TopicPartition, NewPosition], *, detail: str) -> frozenset[TopicPartition]:
        """See :meth:`streamgroups.ports.Member.move`."""
        self._check_alive()
        accepted = self._move_ledger(self._membership.current(decided))
        found = self._membership.current(decided)
        if rejected := found.keys() - accepted:
            raise fenced_by_ledger(self._group.group_id, rejected)
        moved = found
        self._membership = self._membership.move({tp: decided[tp] for tp in moved})
        self._to_commit |= {tp: it.next_offset for tp, it in moved.items()}
        self._commit_due()
        return frozenset(moved)

    def identify(self, found: Mapping[TopicPartition, Owned]) -> None:
        """See :meth:`streamgroups.ports.Member.identify`."""
        self._check_alive()
        self._membership = self._membership.identify(found)

    def rewind(self, decided: Mapping[TopicPartition, NewPosition]) -> None:
        """See :meth:`streamgroups.ports.Member.rewind`."""
        self._check_alive()
        self._membership = self._membership.rewind(decided)

    def clear_form(self) -> None:
        """See :meth:`streamgroups.ports.Member.clear_form`."""
        self._check_alive()
        self._form = ""
        self._to_commit |= self._membership.plannable
        self._commit_due()

    def plan(self, number: int, ranges: Collection[OffsetRange]) -> InFlight:
        """See :meth:`streamgroups.ports.Member.plan`."""
        self._check_alive()
        batch = InFlight(number, self._membership.readable(ranges))
        self._membership = self._membership.plan(batch)
        self._record(MemberEvent(Kind.PLANNED, ranges=batch.ranges, batch=number))
        self._release_what_may_go()
        return batch

    def close(self) -> None:
        """See :meth:`streamgroups.ports.Member.close`."""
        if self._closed or self._dead:
            return
        self._closed = True
        self._leave()

    # ---- calls of the group ------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether it has neither left nor was killed."""
        return not (self._left or self._dead)

    def subscribed(self) -> frozenset[str]:
        """The topics it subscribes to now. A subscription by name also contains a deleted topic."""
        try:
            self._subscribed = frozenset(self._topics())
        except UnknownTopic:
            if not self._subscribed:
                raise
        return self._subscribed

    def enter(self, generation: int) -> None:
        """Begins a new generation of the group."""
        self._generation = generation

    def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Revokes partitions: they are released at once, or when the batch that reads them is finished."""
        waiting, self._unstable = self._unstable & set(partitions), self._unstable - set(partitions)
        if waiting and self._member_id is not None:
            self._group.release(self._member_id, waiting)
        self._membership = self._membership.revoke(partitions)
        self._record(MemberEvent(Kind.REVOKING, offsets=self._offsets_of(partitions)))
        if self._exclusive:
            try:
                check_revoked(self._group.group_id, has_others=self._group.members > 1)
            except GroupRejected as e:
                self._failure = e
                self._release(partitions, Kind.RELEASED)
        self._commit_due()
        self._release_what_may_go()

    def hand_over(self, partitions: Collection[TopicPartition]) -> None:
        """Assigns partitions. Like a real member, it waits until the group's position is known."""
        if self._group.cluster.unstable_offsets(self._group.group_id) & set(partitions):
            self._unstable |= set(partitions)
            return
        committed = self._committed(partitions)
        if committed is None:
            return
        read = {tp: Owned.committed(c.next_offset, c.metadata) for tp, c in committed.items()}
        missing = [tp for tp in partitions if tp not in read]
        try:
            self._check_positions(read)
            known = {tp: self._marked(tp, it) for tp, it in read.items()}
            found = {**known, **(self._first_positions(missing) if missing else {})}
            ledger_positions = {tp: replace(it, epoch=self._generation) for tp, it in found.items()}
            positions = self._take_over(ledger_positions, self._is_owner)
        except StreamGroupsError as e:
            self._failure = e
            return
        # The tag of a former member of the other kind would block members that can join now.
        stale = {
            tp
            for tp, o in known.items()
            if o.origin in _OWN_COMMITS and is_held_exclusively([committed[tp].metadata]) != self._exclusive
        }
        stale |= other_forms(self._form, {tp: it.form for tp, it in known.items()}).keys()
        self._to_commit |= {tp: known[tp].next_offset for tp in stale}
        # A sink's ledger is ahead of the group, so the committed offsets follow it.
        self._to_commit |= {
            tp: o.next_offset for tp, o in positions.items() if o.next_offset != ledger_positions[tp].next_offset
        }
        self._sinks |= {tp: o.next_offset for tp, o in positions.items() if o.origin is Origin.WRITTEN}
        self._membership = self._membership.assign(positions)
        self._record(MemberEvent(Kind.ASSIGNED, offsets={tp: o.next_offset for tp, o in positions.items()}))
        # A position decided here is committed at once, so that the next owner does not decide differently (G2).
        self._to_commit |= {tp: o.next_offset for tp, o in positions.items() if o.origin is Origin.STARTING}
        self._commit_due()

    def _marked(self, tp: TopicPartition, owned: Owned) -> Owned:
        """Gives the reset of a client without marks an id, in the group."""
        if not owned.is_unmarked:
            return owned
        reset = self._next_reset([tp], new_reset_id())[tp]
        # The group rejects the commit of a former member.
        if self._is_owner([tp]):
            self._group.cluster.commit(self._group.group_id, {tp: owned.next_offset}, ToolMark(reset).encode())
        return replace(owned, reset=reset)

    def _is_owner(self, partitions: Collection[TopicPartition]) -> bool:
        return self._assign is not None or self._group.is_owner(self, partitions)

    def _committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed] | None:
        """The committed offsets; ``None`` if they cannot be read now, or the member has failed (SEMANTICS G17)."""
        try:
            return self._group.cluster.committed(self._group.group_id, partitions)
        except StreamGroupsError as e:
            if e.retriable:
                self._unstable |= set(partitions)
            else:
                self._failure = e
            return None

    def serve(self) -> bool:
        """Does the background work of a real member. Returns whether it changed anything."""
        before = (self._membership, dict(self._to_commit), self._member_id, self._left, set(self._unstable))
        self._take_what_is_stable()
        if self._failure:
            # Until the query detects it, another member should own the partitions.
            self._leave()
        elif self._assign is None:
            if self._member_id is not None and not self._group.has_member(self._member_id):
                self._lose_all("heartbeat rejected")
            if self._member_id is None and not self._failure:
                self._member_id = self._group.join(self)
        self._commit_due()
        self._release_what_may_go()
        return before != (self._membership, self._to_commit, self._member_id, self._left, self._unstable)

    def _take_what_is_stable(self) -> None:
        if self._unstable and not self._group.cluster.unstable_offsets(self._group.group_id) & self._unstable:
            stable, self._unstable = self._unstable, set()
            self.hand_over(sorted(stable))

    def die(self) -> None:
        """Kills the process. A later call to this member is an error in the test."""
        self._dead = True

    # ---- commit and release ------------------------------------------------------------------------------------------

    def _commit_due(self) -> None:
        due = {tp: n for tp, n in self._to_commit.items() if tp in self._membership.owned}
        if not due:
            self._to_commit.clear()
            return
        offsets = {tp: Committed(n, self._mark_of(tp, n, written=self._sinks.get(tp) == n)) for tp, n in due.items()}
        if self._assign is not None:
            answer = self._group.commit_without_joining(offsets)
        elif self._member_id is None:
            # Assigned before the group's response to the join contained the member id: join() commits it.
            return
        else:
            answer = self._group.commit(FakeGroupMetadata(self._member_id, self._generation), offsets)
        if answer is CommitAnswer.ACCEPTED:
            self._to_commit.clear()
            self._record(MemberEvent(Kind.COMMITTED, offsets=due))
        elif answer is CommitAnswer.FENCED:
            self._record(MemberEvent(Kind.REJECTED, offsets=due, detail="fenced"))
            if self._assign is not None:
                self._failure = FencedMember(
                    f"Group '{self._group.group_id}' has live members, so '{self.name}' cannot commit to it.",
                    remedy="Stop them, or use another group.id.",
                )
            self._lose_all("fenced")

    def _mark_of(self, tp: TopicPartition, next_offset: int, *, written: bool) -> str:
        owned = self._membership.owned.get(tp)
        if owned is None:
            return CommitMark(self._exclusive, written).encode()
        return owned.mark(next_offset, exclusive=self._exclusive, written=written, form=self._form).encode()

    def _release_what_may_go(self) -> None:
        ready = sorted(self._membership.releasable(self._membership.releasing) - self._to_commit.keys())
        if ready:
            self._release(ready, Kind.RELEASED)

    def _lose_all(self, detail: str) -> None:
        """Fenced: its partitions have other owners. It joins again as a new member when the group is settled."""
        if self._exclusive and not self._failure:
            self._failure = FencedMember(
                f"Group '{self._group.group_id}' fenced this query, although membership=exclusive requires that it is the only member.",
                remedy="Restart it.",
            )
        self._to_commit.clear()
        self._unstable.clear()
        self._release(sorted(self._membership.owned), Kind.LOST, detail)
        self._member_id = None

    def _release(self, partitions: Collection[TopicPartition], kind: Kind, detail: str = "") -> None:
        offsets = self._offsets_of(partitions)
        self._membership, abandoned = self._membership.release(partitions)
        for tp in partitions:
            self._to_commit.pop(tp, None)
            self._sinks.pop(tp, None)
        if partitions:
            self._record(MemberEvent(kind, offsets=offsets, ranges=abandoned, detail=detail))
        # A member that leaves records that once for all its partitions, in _leave().
        if kind is Kind.RELEASED and not self._left and self._member_id is not None:
            self._group.release(self._member_id, partitions)

    def _leave(self) -> None:
        """Leaves when the query has ended or the member has failed: commits finished offsets, releases all partitions."""
        if self._left:
            return
        self._left = True
        self._unstable.clear()
        self._commit_due()
        self._record(MemberEvent(Kind.CLOSING))
        self._release(sorted(self._membership.owned), Kind.RELEASED)
        self._group.leave(self, self._member_id)
        self._record(MemberEvent(Kind.CLOSED))

    def _offsets_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        owned = self._membership.owned
        return {tp: owned[tp].next_offset for tp in partitions if tp in owned}

    def _check_alive(self) -> None:
        if self._dead:
            raise RuntimeError(f"'{self.name}' was killed; a new process would make a new member")
        if self._failure:
            raise self._failure
