"""The fakes keep the contracts of the ports, and the behaviours of groups: G10-G12, S1-S3."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial

import pytest

from streamgroups.coordination.admin_metadata_store import AdminMetadataStore
from streamgroups.errors import BrokerUnreachable, DataLoss, FencedMember, NotAuthorized, UnknownTopic
from streamgroups.fakes import (
    CommitAnswer,
    FakeAdmin,
    FakeClock,
    FakeCluster,
    FakeGroup,
    FakeGroupMetadata,
    FakeHistory,
    FakeMember,
    FakeRecords,
)
from streamgroups.groups.audit import overlaps, ownership_epochs
from streamgroups.groups.history import Kind
from streamgroups.groups.membership import MoveLedger, Origin, Owned, TakeOver
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Cluster, Committed, FirstPositions, Member, Records
from unit_tests.admin_contract import AdminContract
from unit_tests.error_contract import ErrorContract
from unit_tests.port_contracts import (
    ClusterContract,
    MemberContract,
    MetadataStoreContract,
    RecordsContract,
)


class InMemory:
    """An :class:`~unit_tests.port_contracts.Outside` of fakes."""

    protocol = "classic"

    def __init__(self) -> None:
        self._cluster = FakeCluster(FakeClock())
        self._groups: dict[str, FakeGroup] = {}
        self._names = itertools.count()
        self.cluster: Cluster = self._cluster
        self.groups = self.topics = FakeAdmin(self._cluster)
        self.metadata_store = self.other_metadata_store = AdminMetadataStore(self.groups)

    @property
    def cluster_of_committed(self) -> Cluster:
        return self._cluster.reading_committed()

    def create_topic(self, partitions: int) -> str:
        topic = f"flights-{next(self._names)}"
        self._cluster.create_topic(topic, partitions)
        return topic

    def produce(
        self, topic_partition: TopicPartition, count: int, *, timestamp_ms: int, value: bytes | None = None
    ) -> None:
        self._cluster.produce(topic_partition, count, timestamp_ms=timestamp_ms, value=value)

    def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> None:
        self._cluster.delete_records(topic_partition, before_offset)

    def deny(self, topic: str) -> None:
        error = NotAuthorized(f"This user may not access topic '{topic}'.", remedy="Grant it.")
        for p in range(self._cluster.partition_counts()[topic]):
            for group_id in self._cluster.group_ids():
                self._cluster.rejections[group_id, TopicPartition(topic, p)] = error
        self._cluster.rejections[topic] = error

    def begin_transaction(self) -> FakeTransactions:
        return FakeTransactions(self._cluster)

    def new_records(self, *, read_committed: bool = False) -> Records:
        return FakeRecords(self._cluster.reading_committed() if read_committed else self._cluster)

    def new_group(self) -> str:
        return f"airline-{next(self._names)}"

    @contextmanager
    def member_of(self, group_id: str, topic: str) -> Iterator[None]:
        member = self.new_member(group_id, "alice", topic, lambda missing: {tp: Owned(0) for tp in missing})
        member.join(1_000)
        self._groups[group_id].settle()
        yield
        member.close()

    def new_member(
        self,
        group_id: str,
        name: str,
        topic: str,
        first_positions: FirstPositions,
        *,
        exclusive: bool = False,
        assign: tuple[TopicPartition, ...] | None = None,
        take_over: TakeOver = lambda owned, _: owned,
        move_ledger: MoveLedger = frozenset,
    ) -> Member:
        if group_id not in self._groups:
            self._groups[group_id] = FakeGroup(self._cluster, group_id)
        return FakeMember(
            self._groups[group_id],
            name,
            topics=lambda: [topic],
            first_positions=first_positions,
            exclusive=exclusive,
            assign=assign,
            take_over=take_over,
            move_ledger=move_ledger,
        )

    def commit_as_a_sink(self, member: Member) -> None:
        assert isinstance(member, FakeMember)
        member.commit_as_a_sink()

    def in_background(self, job: Callable[[], None]) -> Future[None]:
        job()
        done = Future[None]()
        done.set_result(None)
        return done

    def eventually(self, condition: Callable[[], bool]) -> None:
        for group in self._groups.values():
            group.settle()
        assert condition()


class FakeTransactions:
    """A :class:`~unit_tests.port_contracts.Transaction` of a fake cluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster, self._transaction = cluster, cluster.begin_transaction()
        self.commit, self.abort = self._transaction.commit, self._transaction.abort

    def produce(self, topic_partition: TopicPartition, count: int) -> None:
        self._cluster.produce(topic_partition, count, timestamp_ms=2_000, transaction=self._transaction)


@pytest.fixture
def outside() -> InMemory:
    return InMemory()


class TestFakeCluster(ClusterContract):
    pass


class TestFakeAdmin(AdminContract):
    pass


class TestFakeRecords(RecordsContract):
    pass


class TestAdminMetadataStore(MetadataStoreContract):
    pass


class TestErrorsOfFakes(ErrorContract):
    pass


class TestFakeMember(MemberContract):
    pass


PARTITIONS = [TopicPartition("flights", p) for p in range(8)]
P0 = PARTITIONS[0]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_000)


@pytest.fixture
def cluster(clock: FakeClock) -> FakeCluster:
    cluster = FakeCluster(clock)
    cluster.create_topic("flights", 8)
    return cluster


@pytest.fixture
def group(cluster: FakeCluster) -> FakeGroup:
    return FakeGroup(cluster, "airline")


NewMember = Callable[..., FakeMember]


@pytest.fixture
def new_member(group: FakeGroup) -> NewMember:
    def earliest(missing: Collection[TopicPartition]) -> Mapping[TopicPartition, Owned]:
        return {tp: Owned(0, Origin.EARLIEST) for tp in missing}

    return partial(FakeMember, group, topics=lambda: ["flights"], first_positions=earliest)


def joined(new_member: NewMember, *names: str) -> list[FakeMember]:
    members = [new_member(name) for name in names]
    for member in members:
        member.join(1_000)
    return members


def test_G10_eight_partitions_four_instances_get_two_each(new_member: NewMember) -> None:
    assert [len(m.membership.owned) for m in joined(new_member, "a", "b", "c", "d")] == [2, 2, 2, 2]


def test_G10_standby_instances_idle_and_take_over(new_member: NewMember, group: FakeGroup) -> None:
    members = joined(new_member, *(f"m{i}" for i in range(10)))
    assert sorted(len(m.membership.owned) for m in members) == [0] * 2 + [1] * 8
    members[0].close()
    members[1].close()
    assert [len(m.membership.owned) for m in members[2:]] == [1] * 8
    assert set(group.owners().values()) == {f"m{i}" for i in range(2, 10)}


def test_S3_a_zombie_s_commit_is_rejected_and_its_records_are_read_by_another(
    new_member: NewMember, group: FakeGroup, cluster: FakeCluster
) -> None:
    alice, bob = joined(new_member, "alice", "bob")
    mine = sorted(alice.membership.owned)[0]
    alice.plan(1, [OffsetRange(mine, 0, 5)])
    group.fence("alice")
    assert set(group.owners().values()) == {"bob"}
    assert mine in alice.membership.owned
    bob.plan(1, [OffsetRange(mine, 0, 9)])
    bob.finish(1)
    alice.finish(1)
    assert cluster.committed("airline", [mine])[mine].next_offset == 9
    assert not alice.membership.owned
    group.settle()
    assert sorted(map(len, (alice.membership.owned, bob.membership.owned))) == [4, 4]


def test_S5_a_zombie_gives_the_reset_of_a_tool_no_id(
    new_member: NewMember, group: FakeGroup, cluster: FakeCluster
) -> None:
    """It is frozen while it reads the committed offsets that it got. The broker rejects its commit."""
    cluster.commit("airline", {P0: 3})
    zombie = new_member("alice", check_positions=lambda _: group.fence("alice"))
    zombie.join(1_000)
    assert cluster.committed("airline", [P0]) == {P0: Committed(3, "")}


def test_S3_a_zombie_without_a_batch_detects_it_by_its_heartbeat(new_member: NewMember, group: FakeGroup) -> None:
    (alice,) = joined(new_member, "alice")
    group.fence("alice")
    assert len(alice.membership.owned) == 8
    group.settle()
    assert group.owners() == dict.fromkeys(PARTITIONS, "alice")


def test_S3_a_commit_of_an_older_generation_is_rejected(new_member: NewMember, group: FakeGroup) -> None:
    joined(new_member, "alice")
    (member_id,) = group._seats
    now = FakeGroupMetadata(member_id, group.generation)
    assert group.commit(now, {P0: Committed(1)}) is CommitAnswer.ACCEPTED
    assert group.commit(FakeGroupMetadata(member_id, group.generation - 1), {P0: Committed(2)}) is CommitAnswer.FENCED
    assert group.commit(FakeGroupMetadata(member_id + 1, group.generation), {P0: Committed(2)}) is CommitAnswer.FENCED
    group.rebalancing = True
    assert group.commit(now, {P0: Committed(2)}) is CommitAnswer.TRY_AGAIN
    assert group.cluster.committed("airline", [P0])[P0].next_offset == 1


def test_G12_a_killed_member_commits_nothing_more_and_cannot_be_used(
    new_member: NewMember, group: FakeGroup, cluster: FakeCluster
) -> None:
    alice, bob = joined(new_member, "alice", "bob")
    alice.plan(1, [OffsetRange(tp, 0, 5) for tp in alice.membership.owned])
    group.kill("alice")
    assert len(bob.membership.owned) == 8
    assert cluster.committed("airline", PARTITIONS) == {}
    alice.close()
    with pytest.raises(RuntimeError, match="'alice' was killed"):
        alice.finish(1)
    with pytest.raises(LookupError, match="no member 'alice'"):
        group.kill("alice")
    with pytest.raises(LookupError, match="not expect member 'carol'"):
        group.fence("carol")


def test_a_zombie_can_die_too(new_member: NewMember, group: FakeGroup) -> None:
    joined(new_member, "alice")
    group.fence("alice")
    group.kill("alice")
    group.settle()
    assert group.owners() == {}


def test_G2_new_partitions_are_handed_out_when_the_group_settles(
    new_member: NewMember, group: FakeGroup, cluster: FakeCluster
) -> None:
    joined(new_member, "alice", "bob")
    cluster.add_partitions("flights", 10)
    assert len(group.owners()) == 8
    group.settle()
    assert sorted(group.owners().values()) == ["alice"] * 5 + ["bob"] * 5


def test_a_partition_waits_for_a_commit_that_the_group_puts_off(new_member: NewMember, group: FakeGroup) -> None:
    (alice,) = joined(new_member, "alice")
    alice.plan(1, [OffsetRange(tp, 0, 5) for tp in PARTITIONS])
    (bob,) = joined(new_member, "bob")
    group.rebalancing = True
    alice.finish(1)
    assert not bob.membership.owned
    assert not group.describe().is_settled
    group.rebalancing = False
    group.settle()
    assert set(bob.membership.plannable.values()) == {5}


def test_assigned_by_hand_only_without_a_live_group(new_member: NewMember, group: FakeGroup) -> None:
    lone = new_member("lone", assign=[P0])
    lone.join(1_000)
    lone.plan(1, [OffsetRange(P0, 0, 5)])
    lone.finish(1)
    assert group.cluster.committed("airline", [P0])[P0].next_offset == 5
    joined(new_member, "alice")
    lone.plan(2, [OffsetRange(P0, 5, 6)])
    lone.finish(2)
    with pytest.raises(FencedMember, match="has live members, so 'lone' cannot commit"):
        _ = lone.membership


def test_an_error_of_a_position_request_is_the_member_s(group: FakeGroup) -> None:
    def failing(missing: Collection[TopicPartition]) -> Mapping[TopicPartition, Owned]:
        raise UnknownTopic("Topic 'flights' is gone.")

    member = FakeMember(group, "alice", topics=lambda: ["flights"], first_positions=failing)
    member.join(1_000)
    with pytest.raises(UnknownTopic):
        _ = member.membership


def test_histories_of_fakes_can_be_audited(new_member: NewMember, group: FakeGroup, clock: FakeClock) -> None:
    histories = [FakeHistory(clock, "airline", name) for name in ("alice", "bob")]
    alice, bob = new_member("alice", record=histories[0]), new_member("bob", record=histories[1])
    steps: list[Callable[[], None]] = [
        partial(alice.join, 1),
        partial(bob.join, 1),
        alice.close,
        alice.close,
        bob.close,
    ]
    for step in steps:
        step()
        clock.advance(10)
    events = [e for h in histories for e in h.events]
    assert not overlaps(ownership_epochs(events))
    assert len(ownership_epochs(events)) == 16
    assert [e.kind for e in histories[0].events] == [
        Kind.JOINING,
        Kind.ASSIGNED,
        Kind.REVOKING,
        Kind.RELEASED,
        Kind.CLOSING,
        Kind.RELEASED,
        Kind.CLOSED,
    ]


def test_an_unreachable_cluster_answers_nothing(cluster: FakeCluster) -> None:
    cluster.reachable = False
    for request in (
        cluster.topics,
        lambda: cluster.end_offsets([P0]),
        lambda: cluster.beginning_offsets([P0]),
        lambda: cluster.offsets_at_times({P0: 0}),
        lambda: cluster.committed("airline", [P0]),
        lambda: cluster.describe("airline"),
    ):
        with pytest.raises(BrokerUnreachable):
            request()


def test_G13_readers_get_the_records_of_a_range_and_no_less(cluster: FakeCluster) -> None:
    cluster.produce(P0, 2, value=b"v", key=b"k")
    cluster.leave_gap(P0, 3)
    cluster.produce(P0, timestamp_ms=7)
    found = cluster.read(OffsetRange(P0, 1, 6))
    assert [(r.offset, r.timestamp_ms, r.key, r.value) for r in found] == [(1, 1_000, b"k", b"v"), (5, 7, None, None)]
    cluster.delete_records(P0, 2)
    for gone in (OffsetRange(P0, 1, 6), OffsetRange(P0, 5, 7)):
        with pytest.raises(DataLoss, match=r"\[2, 6\)"):
            cluster.read(gone)


def test_a_deleted_topic_is_unknown_and_its_committed_offsets_stay(cluster: FakeCluster) -> None:
    cluster.commit("airline", {P0: 5}, "note")
    cluster.delete_topic("flights")
    with pytest.raises(UnknownTopic):
        cluster.end_offsets([P0])
    assert cluster.committed("airline", [P0])[P0].metadata == "note"
    cluster.forget("airline")
    assert cluster.committed("airline", [P0]) == {}
