"""SEMANTICS G8: a reset of several topics waits for the members of all of them, also while a list of topics lacks one."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamgroups.coordination.admin_metadata_store import AdminMetadataStore
from streamgroups.coordination.reset_participant import OwnedPartition, ResetParticipant
from streamgroups.coordination.reset_protocol import MemberEntry
from streamgroups.coordination.reset_requests import ResetRequests
from streamgroups.fakes import FakeClock, FakeCluster
from streamgroups.fakes.admin import FakeAdmin
from streamgroups.groups.description import GroupDescription, GroupMember
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed

GROUP = "airline"
FLIGHTS, GATES = TopicPartition("flights", 0), TopicPartition("gates", 0)


class ShortLists(FakeCluster):
    """A cluster whose lists of all topics can lack one."""

    absent: str | None = None

    def topics(self) -> dict[str, int]:
        return {topic: n for topic, n in super().topics().items() if topic != self.absent}


class Member:
    """The owner of one partition."""

    def __init__(self, name: str, tp: TopicPartition) -> None:
        self.member_id = name
        self.owned: dict[TopicPartition, OwnedPartition] = {tp: OwnedPartition(1, 50)}

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """Nothing is in flight."""

    def move(self, decided: Mapping[TopicPartition, OwnedPartition], *, detail: str) -> Collection[TopicPartition]:
        """Commits at once."""
        self.owned |= decided
        return decided.keys()

    @property
    def positions(self) -> list[int]:
        return [it.next_offset for it in self.owned.values()]


class World:
    """Two members, each with a partition of another topic."""

    def __init__(self) -> None:
        self.clock = FakeClock(1_000_000)
        self.cluster = ShortLists(self.clock)
        for topic in ("flights", "gates"):
            self.cluster.create_topic(topic, 1)
        store = AdminMetadataStore(FakeAdmin(self.cluster))
        self.a, self.b = Member("a", FLIGHTS), Member("b", GATES)
        members = tuple(GroupMember(it.member_id, "/", frozenset(it.owned), it.member_id) for it in (self.a, self.b))
        self.cluster.host(GROUP, lambda: GroupDescription(GROUP, "Stable", members=members))
        self.cluster.commit(GROUP, {FLIGHTS: Committed(50), GATES: Committed(50)})
        self.participants = [
            ResetParticipant(store, self.cluster, GROUP, lambda id_: MemberEntry(id_, id_, 0, None), self.clock)
            for _ in range(2)
        ]
        self.requests = ResetRequests(store, self.clock, lambda _: self.cluster.topics())

    def write(self) -> None:
        absent, self.cluster.absent = self.cluster.absent, None
        self.requests.write(GROUP, {FLIGHTS: 0, GATES: 0})
        self.cluster.absent = absent

    def poll(self, n: int) -> None:
        self.participants[n].apply((self.a, self.b)[n])


def test_G8_a_member_that_has_paused_waits_while_a_list_lacks_the_other_topic() -> None:
    world = World()
    world.write()
    world.poll(0)
    world.cluster.absent = "gates"
    for _ in range(4):
        world.poll(0)
    assert world.a.positions == [50]
    world.cluster.absent = None
    world.poll(1)
    world.poll(0)
    assert (world.a.positions, world.b.positions) == ([0], [0])


def test_G8_a_request_is_not_applied_before_a_list_has_had_all_its_topics() -> None:
    world = World()
    world.cluster.absent = "gates"
    world.write()
    for _ in range(4):
        world.poll(0)
    assert world.a.positions == [50]
    assert not world.participants[0].paused


def test_G8_a_deleted_topic_counts_no_longer_after_two_seconds() -> None:
    world = World()
    world.write()
    world.poll(0)
    world.cluster.absent = "gates"
    world.poll(0)
    world.clock.advance(2_000)
    world.poll(0)
    assert world.a.positions == [0]
