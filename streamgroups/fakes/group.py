"""A consumer group in memory: the broker's side of it.

Members are :class:`~streamgroups.fakes.member.FakeMember`; this module decides who owns what, which is the part a broker (and
the cooperative assignor) plays. Source: KIP-429 and KIP-848: a partition goes from one member to another in two steps, asked
back first and handed out when it has been released. SEMANTICS G10, G11, S1, S3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from streamgroups.fakes.assignment import assign
from streamgroups.fakes.cluster import FakeCluster
from streamgroups.groups.commit_metadata import is_exclusive
from streamgroups.groups.join_policy import LiveGroup, LiveMember
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed


class CommitAnswer(Enum):
    """What the group says to a commit."""

    ACCEPTED = auto()
    #: A rebalance is going on; the same commit may be accepted later.
    TRY_AGAIN = auto()
    #: The group went on without this member (SEMANTICS S3).
    FENCED = auto()


@dataclass(frozen=True, slots=True)
class FakeGroupMetadata:
    """Who a member is to the group, when it commits.

    Args:
        member_id: the id that :meth:`FakeGroup.join` gave it.
        generation: the group's generation that it knows.
    """

    member_id: int
    generation: int


class Participant(Protocol):
    """What the group asks of a member."""

    @property
    def name(self) -> str: ...
    def subscribed(self) -> frozenset[str]: ...
    def enter(self, generation: int) -> None: ...
    def revoke(self, partitions: Collection[TopicPartition]) -> None: ...
    def hand_over(self, partitions: Collection[TopicPartition]) -> None: ...
    def serve(self) -> bool: ...
    def die(self) -> None: ...


@dataclass(slots=True)
class _Seat:
    participant: Participant
    held: frozenset[TopicPartition] = frozenset()


class FakeGroup:
    """One consumer group of a :class:`~streamgroups.fakes.cluster.FakeCluster`.

    Args:
        cluster: where its topics are, and its committed offsets.
        group_id: its name.
    """

    def __init__(self, cluster: FakeCluster, group_id: str) -> None:
        self.cluster, self.group_id = cluster, group_id
        #: Grows with every rebalance. A commit of an older one is refused.
        self.generation = 0
        #: While true, commits are answered ``TRY_AGAIN``, as during a rebalance of the classic protocol.
        self.rebalancing = False
        self._seats: dict[int, _Seat] = {}
        self._target: dict[int, frozenset[TopicPartition]] = {}
        self._partitions: frozenset[TopicPartition] = frozenset()
        # Whoever believes to be a member: fenced ones too, until they hear of it.
        self._believers: list[Participant] = []
        self._next_id = 0
        cluster.host(group_id, self.describe)

    # ---- what tests do to it -----------------------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        """A member dies without a word and its session times out: its partitions move, nothing more is committed."""
        participant = next((p for p in self._believers if p.name == name), None)
        if participant is None:
            raise LookupError(f"group '{self.group_id}' has no member '{name}'")
        self._believers.remove(participant)
        participant.die()
        self._expel(participant)

    def fence(self, name: str) -> None:
        """The group gives up on a member that lives: it is a zombie until it hears of it, by a commit or by :meth:`settle`."""
        participant = next((s.participant for s in self._seats.values() if s.participant.name == name), None)
        if participant is None:
            raise LookupError(f"group '{self.group_id}' does not expect member '{name}'")
        self._expel(participant)

    def settle(self) -> None:
        """Lets the members do what real ones do in the background, until there is nothing left to do.

        They see new partitions, commit what is due, give back what was asked for, and join again after being fenced.
        """
        busy = True
        while busy:
            busy = any(participant.serve() for participant in list(self._believers))
            if self._wanted() != self._partitions:
                self._rebalance()
                busy = True

    def owners(self) -> dict[TopicPartition, str]:
        """Who owns what, in the eyes of the group: fenced members own nothing."""
        return {tp: seat.participant.name for seat in self._seats.values() for tp in sorted(seat.held)}

    def describe(self) -> LiveGroup:
        """See :meth:`streamgroups.ports.Groups.describe`."""
        committed = self.cluster.committed(self.group_id, [tp for seat in self._seats.values() for tp in seat.held])
        return LiveGroup(
            self.group_id,
            tuple(
                LiveMember(seat.participant.name, "/127.0.0.1", seat.participant.subscribed(), seat.held)
                for seat in self._seats.values()
            ),
            assignor="cooperative-sticky" if self._seats else "",
            held_exclusively=any(is_exclusive(c.metadata) for c in committed.values()),
            settled=not self.rebalancing and all(seat.held == self._target[i] for i, seat in self._seats.items()),
        )

    # ---- what members ask of it --------------------------------------------------------------------------------------

    def join(self, participant: Participant) -> int:
        """Takes a member in.

        Returns:
            Its member id, by which the group knows it until it leaves or is expelled.
        """
        self._next_id += 1
        self._seats[self._next_id] = _Seat(participant)
        if participant not in self._believers:
            self._believers.append(participant)
        self._rebalance()
        return self._next_id

    def leave(self, participant: Participant, member_id: int | None) -> None:
        """A member goes, having released what it held."""
        if participant in self._believers:
            self._believers.remove(participant)
        if member_id in self._seats:
            del self._seats[member_id]
            self._rebalance()

    def knows(self, member_id: int) -> bool:
        """Whether the group still counts on a member: what a heartbeat asks."""
        return member_id in self._seats

    def release(self, member_id: int, partitions: Collection[TopicPartition]) -> None:
        """A member gives partitions back. Nothing happens if the group does not count on it: they are another's."""
        if member_id in self._seats:
            self._seats[member_id].held -= frozenset(partitions)
            self._hand_out()

    def would_accept(self, group_metadata: FakeGroupMetadata) -> bool:
        """Whether the group still counts on this member in this generation: what a broker checks, in transactions too (KIP-447)."""
        return group_metadata.member_id in self._seats and group_metadata.generation == self.generation

    def commit(self, group_metadata: FakeGroupMetadata, offsets: Mapping[TopicPartition, Committed]) -> CommitAnswer:
        """Commits, if the group still counts on this member in this generation. A sink commits so too, in its transaction."""
        if not self.would_accept(group_metadata):
            return CommitAnswer.FENCED
        if self.rebalancing:
            return CommitAnswer.TRY_AGAIN
        for tp, committed in offsets.items():
            self.cluster.commit(self.group_id, {tp: committed.next_offset}, committed.metadata)
        return CommitAnswer.ACCEPTED

    def commit_without_joining(self, offsets: Mapping[TopicPartition, Committed]) -> CommitAnswer:
        """Commits for a reader that is assigned its partitions by hand: only a group without members allows it."""
        if self._seats:
            return CommitAnswer.FENCED
        for tp, committed in offsets.items():
            self.cluster.commit(self.group_id, {tp: committed.next_offset}, committed.metadata)
        return CommitAnswer.ACCEPTED

    # ---- deciding ----------------------------------------------------------------------------------------------------

    def _expel(self, participant: Participant) -> None:
        self._seats = {i: seat for i, seat in self._seats.items() if seat.participant is not participant}
        self._rebalance()

    def _wanted(self) -> frozenset[TopicPartition]:
        existing = self.cluster.topics()
        topics = {topic for seat in self._seats.values() for topic in seat.participant.subscribed()}
        return frozenset(TopicPartition(topic, p) for topic in topics for p in range(existing.get(topic, 0)))

    def _rebalance(self) -> None:
        self.generation += 1
        self._partitions = self._wanted()
        ids = {str(i): i for i in self._seats}
        shares = assign(self._partitions, list(ids), {name: self._seats[i].held for name, i in ids.items()})
        self._target = {ids[name]: share for name, share in shares.items()}
        seats = list(self._seats.items())
        for _, seat in seats:
            seat.participant.enter(self.generation)
        for member_id, seat in seats:
            if asked := seat.held - self._target[member_id]:
                seat.participant.revoke(sorted(asked))
        self._hand_out()

    def _hand_out(self) -> None:
        """Free partitions go to whom they are meant for; the others wait for their release."""
        for member_id, seat in list(self._seats.items()):
            held = frozenset(tp for s in self._seats.values() for tp in s.held)
            if free := self._target[member_id] - held:
                seat.held |= free
                seat.participant.hand_over(sorted(free))
