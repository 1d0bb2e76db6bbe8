"""S4: the sizes of records are requested while Spark writes its log, and awaited where tasks are packed."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from streamgroups.coordination.no_metadata import NoMetadata
from streamgroups.errors import BrokerUnreachable, DataLoss, UnknownTopic
from streamgroups.fakes import FakeCluster, FakeGroup, FakeMember
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.groups.history import no_history
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import LogEnds, OffsetRange, TopicPartition
from streamgroups.query.available_offsets import AvailableOffsets
from streamgroups.query.continuity import Continuity
from streamgroups.query.data_loss import LossPolicies, OnDataLoss
from streamgroups_kafka.admin.gap_records import GapRecords

TEN_MINUTES_MS = 600_000
FIRST, SECOND = (OffsetRange(TopicPartition("flights", p), 0, 5) for p in range(2))


NO_GAPS = GapRecords(NoMetadata, "airline", lambda: 0)


class World:
    """A log with two partitions, and what was started in the background."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.jobs: list[Callable[[], None]] = []
        self.cluster = FakeCluster(lambda: self.now_ms)
        self.cluster.create_topic("flights", partitions=2)
        for r in (FIRST, SECOND):
            self.cluster.produce(r.topic_partition, 5, value=b"x" * 100)
        continuity = Continuity(self.cluster, lambda: self.now_ms, no_history, LossPolicies(), "airline", gaps=NO_GAPS)
        self.available = AvailableOffsets(self.cluster, lambda: self.now_ms, continuity, start=self.jobs.append)


@pytest.fixture
def world() -> World:
    return World()


def test_sizes_are_requested_before_they_are_needed(world: World) -> None:
    world.available.request_sizes([FIRST])
    (job,) = world.jobs
    job()
    assert world.available.sizes([FIRST]) == {FIRST.topic_partition: 100.0}
    assert world.jobs == [job]


@pytest.mark.parametrize(
    ("later_ms", "ranges", "requests"),
    [(TEN_MINUTES_MS - 1, [FIRST], 1), (TEN_MINUTES_MS, [FIRST], 2), (1, [FIRST, SECOND], 2)],
)
def test_sizes_are_requested_now_and_then(
    world: World, later_ms: int, ranges: Collection[OffsetRange], requests: int
) -> None:
    world.available.request_sizes([FIRST])
    world.now_ms = later_ms
    world.available.request_sizes(ranges)
    assert len(world.jobs) == requests
    for job in world.jobs:
        job()
    assert world.available.sizes(ranges).keys() == {r.topic_partition for r in ranges}


def test_errors_in_the_background_are_raised_where_sizes_are_needed(world: World) -> None:
    def unreachable(_: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        raise BrokerUnreachable("gone", remedy="wait")

    world.cluster.beginning_offsets = unreachable  # type: ignore[method-assign]
    world.available.request_sizes([FIRST])
    world.jobs[0]()
    with pytest.raises(BrokerUnreachable, match="gone"):
        world.available.sizes([FIRST])


class Beside:
    """A reader of committed records, its member, and a transaction of others that is open from offset 5 on."""

    def __init__(self, next_offset: int) -> None:
        self.cluster = FakeCluster(lambda: 0, read_committed=True)
        self.cluster.create_topic("flights")
        self.tp = FIRST.topic_partition
        self.cluster.produce(self.tp, 5)
        self.transaction = self.cluster.begin_transaction()
        self.cluster.produce(self.tp, 3, transaction=self.transaction)
        self.cluster.commit("airline", {self.tp: next_offset}, CommitMark(exclusive=False).encode())
        self.member = FakeMember(
            FakeGroup(self.cluster, "airline"), "alice", topics=lambda: ["flights"], first_positions=lambda _: {}
        )
        self.member.join(1_000)
        continuity = Continuity(self.cluster, lambda: 0, no_history, LossPolicies(), "airline", gaps=NO_GAPS)
        self.available = AvailableOffsets(self.cluster, lambda: 0, continuity)


@pytest.mark.parametrize("next_offset", [5, 6, 8])
def test_S7_a_position_behind_an_open_transaction_is_no_data_loss(next_offset: int) -> None:
    """A reader of all records may have come there before: what it has read is waited for, not lost."""
    beside = Beside(next_offset)
    assert beside.available.of(beside.member, ()) == {beside.tp: (next_offset, 5)}
    beside.transaction.commit()
    assert beside.available.of(beside.member, ()) == {beside.tp: (next_offset, 9)}


def test_S7_a_position_behind_the_last_record_is_data_loss() -> None:
    beside = Beside(9)
    with pytest.raises(DataLoss, match=r"position 9, available offsets \[0, 8\)"):
        beside.available.of(beside.member, ())


def test_S7_a_topic_that_was_just_recreated_is_not_gone(world: World) -> None:
    """It is missing when its ends are read, and there when its partitions are."""
    tps = [FIRST.topic_partition, SECOND.topic_partition]
    world.cluster.commit("airline", dict.fromkeys(tps, 0), CommitMark(exclusive=False).encode())
    member = FakeMember(
        FakeGroup(world.cluster, "airline"), "alice", topics=lambda: ["flights"], first_positions=lambda _: {}
    )
    member.join(1_000)
    ends, failures = world.cluster.log_ends, [1, 2]

    def missing_at_first(partitions: Collection[TopicPartition]) -> LogEnds:
        if failures:
            failures.pop()
            raise UnknownTopic("Topic 'flights' does not exist.", remedy="Create it.")
        return ends(partitions)

    world.cluster.log_ends = missing_at_first  # type: ignore[method-assign]
    assert world.available.of(member, ()) == {r.topic_partition: (0, 5) for r in (FIRST, SECOND)}
    assert not failures


@pytest.mark.parametrize("policy", OnDataLoss)
def test_S7_a_topic_that_is_deleted_between_two_requests(policy: OnDataLoss) -> None:
    beside = Beside(5)
    continuity = Continuity(
        beside.cluster, lambda: 0, no_history, LossPolicies(policy), "airline", gaps=NO_GAPS, refresh_ms=1
    )
    available = AvailableOffsets(beside.cluster, lambda: 0, continuity)
    identities = beside.cluster.identities

    def delete_first(topics: Collection[str]) -> dict[str, TopicIdentity]:
        if "flights" in beside.cluster.topics():
            beside.cluster.delete_topic("flights")
        return identities(topics)

    beside.cluster.identities = delete_first  # type: ignore[method-assign]
    if policy is OnDataLoss.FAIL:
        with pytest.raises(UnknownTopic):
            available.of(beside.member, ())
    else:
        assert available.of(beside.member, ()) == {}
