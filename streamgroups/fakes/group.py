"""A consumer group in memory: the broker's side of it.

Members are :class:`~streamgroups.fakes.member.FakeMember`. This module assigns partitions, which is the role of a
broker (and of the cooperative assignor). Source: KIP-429 and KIP-848: a partition changes its owner in two steps. It is
revoked first, and assigned after its release. SEMANTICS G10, G11, S1, S3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from streamgroups.fakes.assignment import assign
from streamgroups.fakes.cluster import BROKER, FakeCluster
from streamgroups.groups.description import GroupDescription, GroupMember
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed


class Participant(Protocol):
    """The methods of a member that its group calls: see :class:`~streamgroups.fakes.member.FakeMember`."""

    @property
    def name(self) -> str:
        """The name of the member."""

    @property
    def is_running(self) -> bool:
        """Whether it has neither left nor was killed."""

    def subscribed(self) -> frozenset[str]:
        """The topics it subscribes to now."""

    def serve(self) -> bool:
        """Does the background work of a real member. Returns whether it changed anything."""

    def die(self) -> None:
        """Kills the process."""

    def enter(self, generation: int) -> None:
        """Starts a generation of the group."""

    def revoke(self, partitions: Sequence[TopicPartition]) -> None:
        """Revokes partitions."""

    def hand_over(self, partitions: Sequence[TopicPartition]) -> None:
        """Assigns partitions."""


class CommitAnswer(Enum):
    """The result of a commit."""

    ACCEPTED = auto()
    #: A rebalance is in progress. The same commit can be accepted later.
    TRY_AGAIN = auto()
    #: The group has removed this member (SEMANTICS S3).
    FENCED = auto()


@dataclass(frozen=True, slots=True)
class FakeGroupMetadata:
    """The identity of a member in a commit.

    Args:
        member_id: the id from :meth:`FakeGroup.join`.
        generation: the group's generation that the member has received.
    """

    member_id: int
    generation: int


@dataclass(slots=True)
class _Seat:
    participant: Participant
    held: frozenset[TopicPartition] = frozenset()


class FakeGroup:
    """One consumer group of a :class:`~streamgroups.fakes.cluster.FakeCluster`.

    Args:
        cluster: the cluster with its topics and committed offsets.
        group_id: its name.
    """

    def __init__(self, cluster: FakeCluster, group_id: str) -> None:
        self.cluster, self.group_id = cluster, group_id
        #: Increases with every rebalance. A commit of an older generation is rejected.
        self.generation = 0
        #: While true, commits return ``TRY_AGAIN``, as during a rebalance of the classic protocol.
        self.rebalancing = False
        self._seats: dict[int, _Seat] = {}
        #: The partitions of all seats, so that a rebalance is linear in members and partitions.
        self._held: set[TopicPartition] = set()
        self._target: dict[int, frozenset[TopicPartition]] = {}
        self._partitions: frozenset[TopicPartition] = frozenset()
        # All live participants, including fenced ones that have not detected it yet.
        self._believers: list[Participant] = []
        self._next_id = 0
        cluster.host(group_id, self.describe)

    @property
    def members(self) -> int:
        """The number of members."""
        return len(self._seats)

    # ---- actions of tests
    # ----------------------------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        """Kills a member: its session times out, its partitions are reassigned, and it commits nothing more."""
        participant = next((p for p in self._believers if p.name == name), None)
        if participant is None:
            raise LookupError(f"group '{self.group_id}' has no member '{name}'")
        self._believers.remove(participant)
        participant.die()
        self._expel(participant)

    def fence(self, name: str) -> None:
        """Fences a live member. It is a zombie until it detects that, with a commit or with :meth:`settle`."""
        participant = next((s.participant for s in self._seats.values() if s.participant.name == name), None)
        if participant is None:
            raise LookupError(f"group '{self.group_id}' does not expect member '{name}'")
        self._expel(participant)

    def sleep(self, participant: Participant) -> None:
        """Freezes the thread of a member that communicates with the group, until :meth:`wake`."""
        if participant in self._believers:
            self._believers.remove(participant)

    def wake(self, participant: Participant) -> None:
        """Continues the thread of a member."""
        if participant not in self._believers and participant.is_running:
            self._believers.append(participant)

    def settle(self) -> None:
        """Runs the background work of the members until none is left.

        They detect new partitions, commit due offsets, release revoked partitions, and join again after they were
        fenced.
        """
        busy = True
        while busy:
            busy = any(participant.serve() for participant in list(self._believers))
            if self._required() != self._partitions:
                self._rebalance()
                busy = True

    def owners(self) -> dict[TopicPartition, str]:
        """The owner of each partition in the group. Fenced members own none."""
        return {tp: seat.participant.name for seat in self._seats.values() for tp in sorted(seat.held)}

    def describe(self) -> GroupDescription:
        """See :meth:`streamgroups.ports.Cluster.describe`.

        As with the classic protocol, members have neither partitions nor subscriptions while the group is rebalancing. It is stable
        while a former owner finishes its batch, and the partition has no owner.
        """
        rebalancing = self.rebalancing
        members = tuple(
            GroupMember(
                seat.participant.name,
                "/127.0.0.1",
                frozenset() if rebalancing else seat.held & self._target[member_id],
                member_id=seat.participant.name,
                subscription=None if rebalancing else seat.participant.subscribed(),
            )
            for member_id, seat in self._seats.items()
        )
        if not members:
            return GroupDescription(self.group_id, "Empty", "classic", "consumer", coordinator=BROKER)
        state = "PreparingRebalance" if rebalancing else "Stable"
        return GroupDescription(self.group_id, state, "classic", "consumer", "cooperative-sticky", BROKER, members)

    # ---- requests of members
    # -------------------------------------------------------------------------------------------

    def join(self, participant: Participant) -> int:
        """Adds a member.

        Returns:
            Its member id, which is valid until it leaves or is expelled.
        """
        self._next_id += 1
        self._seats[self._next_id] = _Seat(participant)
        if participant not in self._believers:
            self._believers.append(participant)
        self._rebalance()
        return self._next_id

    def leave(self, participant: Participant, member_id: int | None) -> None:
        """Removes a member that has released its partitions."""
        if participant in self._believers:
            self._believers.remove(participant)
        if member_id in self._seats:
            self._held -= self._seats.pop(member_id).held
            self._rebalance()

    def has_member(self, member_id: int) -> bool:
        """Returns whether a member is still in the group, as a heartbeat does."""
        return member_id in self._seats

    def is_owner(self, participant: Participant, partitions: Collection[TopicPartition]) -> bool:
        """Returns whether a participant is a member now, and no other member owns one of these partitions."""
        others = {tp for seat in self._seats.values() if seat.participant is not participant for tp in seat.held}
        is_member = any(seat.participant is participant for seat in self._seats.values())
        return is_member and others.isdisjoint(partitions)

    def release(self, member_id: int, partitions: Collection[TopicPartition]) -> None:
        """Releases partitions of a member. Does nothing for a former member, because they have other owners."""
        if member_id in self._seats:
            seat = self._seats[member_id]
            self._held -= seat.held & frozenset(partitions)
            seat.held -= frozenset(partitions)
            self._hand_out()

    def would_accept(self, group_metadata: FakeGroupMetadata) -> bool:
        """Returns whether the member is in the group in this generation. For transactions, KIP-447 requires it."""
        return group_metadata.member_id in self._seats and group_metadata.generation == self.generation

    def commit(self, group_metadata: FakeGroupMetadata, offsets: Mapping[TopicPartition, Committed]) -> CommitAnswer:
        """Commits if the member is in the group in this generation. A sink also does so, in its transaction."""
        if not self.would_accept(group_metadata):
            return CommitAnswer.FENCED
        if self.rebalancing:
            return CommitAnswer.TRY_AGAIN
        for tp, committed in offsets.items():
            self.cluster.commit(self.group_id, {tp: committed.next_offset}, committed.metadata)
        return CommitAnswer.ACCEPTED

    def commit_without_joining(self, offsets: Mapping[TopicPartition, Committed]) -> CommitAnswer:
        """Commits for a reader with manual assignment, which only a group without members accepts."""
        if self._seats:
            return CommitAnswer.FENCED
        for tp, committed in offsets.items():
            self.cluster.commit(self.group_id, {tp: committed.next_offset}, committed.metadata)
        return CommitAnswer.ACCEPTED

    # ---- assignment
    # ----------------------------------------------------------------------------------------------------

    def _expel(self, participant: Participant) -> None:
        for member_id in [i for i, seat in self._seats.items() if seat.participant is participant]:
            self._held -= self._seats.pop(member_id).held
        self._rebalance()

    def _required(self) -> frozenset[TopicPartition]:
        existing = self.cluster.topics()
        topics = {topic for seat in self._seats.values() for topic in seat.participant.subscribed()}
        return frozenset(TopicPartition(topic, p) for topic in topics for p in range(existing.get(topic, 0)))

    def _rebalance(self) -> None:
        self.generation += 1
        self._partitions = self._required()
        ids = {str(i): i for i in self._seats}
        shares = assign(self._partitions, list(ids), {name: self._seats[i].held for name, i in ids.items()})
        self._target = {ids[name]: share for name, share in shares.items()}
        seats = list(self._seats.items())
        for _, seat in seats:
            seat.participant.enter(self.generation)
        for member_id, seat in seats:
            # A call of a member can change the group again.
            if member_id in self._seats and (requested := seat.held - self._target[member_id]):
                seat.participant.revoke(sorted(requested))
        self._hand_out()

    def _hand_out(self) -> None:
        """Assigns free partitions to their next owners. The other partitions wait for their release."""
        for member_id, seat in list(self._seats.items()):
            # A call of a member can change the group again.
            if member_id in self._seats and (free := self._target[member_id] - self._held):
                seat.held |= free
                self._held |= free
                seat.participant.hand_over(sorted(free))
