"""A member of a group in memory: the client's side of it.

Implements :class:`streamgroups.ports.Member` on a :class:`~streamgroups.fakes.group.FakeGroup`, as
``streamgroups_kafka.member`` does on a broker: both hold a :class:`~streamgroups.groups.membership.Membership` and translate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from streamgroups.errors import FencedMember, GroupRefused, StreamGroupsError
from streamgroups.fakes.group import CommitAnswer, FakeGroup
from streamgroups.groups.history import Kind, no_history
from streamgroups.groups.joining import EXCLUSIVE_MARK, SHARED_MARK
from streamgroups.groups.membership import InFlight, Membership, Origin, Owned
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Recorder


class FakeMember:
    """See :class:`streamgroups.ports.Member`.

    Args:
        group: which group.
        name: its name; must be unlike the names of other live members.
        topics: asks for the topics to subscribe to now.
        first_positions: asks for the position of partitions the group has no committed offset for.
        record: takes note of what happens.
        assign: read exactly these partitions without joining (the option ``assign``); ``None`` to join.
        exclusive: fail when the group gives partitions to anybody else (``membership=exclusive``).
    """

    def __init__(
        self,
        group: FakeGroup,
        name: str,
        *,
        topics: Callable[[], Collection[str]],
        first_positions: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Owned]],
        record: Recorder = no_history,
        assign: Collection[TopicPartition] | None = None,
        exclusive: bool = False,
    ) -> None:
        self.name = name
        self._group, self._topics, self._first_positions = group, topics, first_positions
        self._record, self._assign, self._exclusive = record, assign, exclusive
        self._membership = Membership()
        self._to_commit: dict[TopicPartition, int] = {}
        self._member_id: int | None = None
        self._generation = 0
        self._failure: StreamGroupsError | None = None
        self._closed = False
        self._dead = False

    # ---- the port ----------------------------------------------------------------------------------------------------

    def join(self, timeout_ms: int) -> None:
        """See :meth:`streamgroups.ports.Member.join`. Never waits: the first assignment comes at once, perhaps empty."""
        self._check_alive()
        self._record(Kind.JOINING)
        if self._assign is not None:
            self.hand_over(self._assign)
        else:
            self._member_id = self._group.join(self)
        self._membership = self._membership.assign({})
        self.serve()

    @property
    def membership(self) -> Membership:
        """See :attr:`streamgroups.ports.Member.membership`."""
        self._check_alive()
        return self._membership

    def finish(self, number: int) -> None:
        """See :meth:`streamgroups.ports.Member.finish`. Commits at once, unless the group is rebalancing."""
        self._check_alive()
        had = self._membership.in_flight
        self._membership, to_commit = self._membership.finish(number)
        if had is not self._membership.in_flight:
            self._record(Kind.FINISHED, offsets=to_commit, batch=number)
        self._to_commit |= to_commit
        self._commit_due()
        self._release_what_may_go()

    def move(self, next_offsets: Mapping[TopicPartition, int], *, note: str) -> None:
        """See :meth:`streamgroups.ports.Member.move`."""
        self._check_alive()
        self._membership = self._membership.move(next_offsets)
        self._to_commit |= {tp: n for tp, n in next_offsets.items() if tp in self._membership.owned}
        self._commit_due()

    def rewind(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        """See :meth:`streamgroups.ports.Member.rewind`."""
        self._check_alive()
        self._membership = self._membership.move(next_offsets)

    def plan(self, number: int, ranges: Mapping[TopicPartition, tuple[int, int]]) -> InFlight:
        """See :meth:`streamgroups.ports.Member.plan`."""
        self._check_alive()
        wanted = (OffsetRange(tp, first, end) for tp, (first, end) in ranges.items())
        batch = InFlight(number, self._membership.readable(wanted))
        self._membership = self._membership.plan(batch)
        self._record(Kind.PLANNED, ranges=batch.ranges, batch=number)
        self._release_what_may_go()
        return batch

    def close(self) -> None:
        """See :meth:`streamgroups.ports.Member.close`."""
        if self._closed or self._dead:
            return
        self._closed = True
        self._commit_due()
        self._let_go(sorted(self._membership.owned), Kind.RELEASED)
        self._group.leave(self, self._member_id)
        self._record(Kind.CLOSED)

    # ---- what the group asks (streamgroups.fakes.group.Participant) --------------------------------------------------

    def subscribed(self) -> frozenset[str]:
        """The topics it subscribes to now."""
        return frozenset(self._topics())

    def enter(self, generation: int) -> None:
        """A new generation of the group begins."""
        self._generation = generation

    def ask_back(self, partitions: Collection[TopicPartition]) -> None:
        """The group wants partitions back: given at once, or when the batch that reads them is done."""
        self._membership = self._membership.ask_back(partitions)
        self._record(Kind.ASKED_BACK, offsets=self._offsets_of(partitions))
        if self._exclusive:
            self._failure = GroupRefused(
                f"Another member joined group '{self._group.group_id}', which this query needs alone "
                "(membership=exclusive).",
                remedy="Give the other member another group.id, or use membership=shared for stateless queries.",
            )
            self._let_go(partitions, Kind.RELEASED)
        self._commit_due()
        self._release_what_may_go()

    def hand_over(self, partitions: Collection[TopicPartition]) -> None:
        """Partitions come in."""
        committed = self._group.cluster.committed(self._group.group_id, partitions)
        known = {tp: Owned.committed(c.next_offset, c.metadata) for tp, c in committed.items()}
        missing = [tp for tp in partitions if tp not in known]
        try:
            positions = {**known, **(self._first_positions(missing) if missing else {})}
        except StreamGroupsError as e:
            self._failure = e
            return
        self._membership = self._membership.assign(positions)
        self._record(Kind.ASSIGNED, offsets={tp: o.next_offset for tp, o in positions.items()})
        # What has just been decided is committed at once: the next to ask must not decide anew (G2).
        self._to_commit |= {tp: o.next_offset for tp, o in positions.items() if o.origin is Origin.STARTING}
        self._commit_due()

    def serve(self) -> bool:
        """Does what a real member does in the background. Returns whether anything came of it."""
        before = (self._membership, dict(self._to_commit), self._member_id)
        if self._assign is None and not self._failure:
            if self._member_id is not None and not self._group.knows(self._member_id):
                self._lose_all("heartbeat refused")
            if self._member_id is None:
                self._member_id = self._group.join(self)
        self._commit_due()
        self._release_what_may_go()
        return before != (self._membership, self._to_commit, self._member_id)

    def die(self) -> None:
        """The process is gone: whoever still calls this member is a bug in the test."""
        self._dead = True

    # ---- committing and letting go -----------------------------------------------------------------------------------

    def _commit_due(self) -> None:
        due = {tp: n for tp, n in self._to_commit.items() if tp in self._membership.owned}
        if not due:
            self._to_commit.clear()
            return
        mark = EXCLUSIVE_MARK if self._exclusive else SHARED_MARK
        if self._assign is not None:
            answer = self._group.commit_without_joining(due, mark)
        elif self._member_id is None:
            # Handed over before the group's answer to the join has named us: join() commits it.
            return
        else:
            answer = self._group.commit(self._member_id, self._generation, due, mark)
        if answer is CommitAnswer.ACCEPTED:
            self._to_commit.clear()
            self._record(Kind.COMMITTED, offsets=due)
        elif answer is CommitAnswer.FENCED:
            self._record(Kind.REFUSED, offsets=due, note="fenced")
            if self._assign is not None:
                self._failure = FencedMember(
                    f"Group '{self._group.group_id}' has live members, so '{self.name}' cannot commit to it.",
                    remedy="Stop them, or use another group.id.",
                )
            self._lose_all("fenced")

    def _release_what_may_go(self) -> None:
        ready = [
            tp
            for tp in sorted(self._membership.releasing)
            if self._membership.may_release(tp) and tp not in self._to_commit
        ]
        if ready:
            self._let_go(ready, Kind.RELEASED)

    def _lose_all(self, note: str) -> None:
        """Fenced: what it had is another's. It joins again, as a new member, when the group is settled."""
        self._to_commit.clear()
        self._let_go(sorted(self._membership.owned), Kind.LOST, note)
        self._member_id = None

    def _let_go(self, partitions: Collection[TopicPartition], kind: Kind, note: str = "") -> None:
        offsets = self._offsets_of(partitions)
        self._membership, abandoned = self._membership.release(partitions)
        for tp in partitions:
            self._to_commit.pop(tp, None)
        if partitions:
            self._record(kind, offsets=offsets, ranges=abandoned, note=note)
        # Who leaves says so once for all it had, in close().
        if kind is Kind.RELEASED and not self._closed and self._member_id is not None:
            self._group.release(self._member_id, partitions)

    def _offsets_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: o.next_offset for tp, o in self._membership.owned.items() if tp in partitions}

    def _check_alive(self) -> None:
        if self._dead:
            raise RuntimeError(f"'{self.name}' was killed; a new process would make a new member")
        if self._failure:
            raise self._failure
