"""S4: how large records are is asked for while Spark writes its log, and waited for where tasks are packed."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from streamgroups.errors import BrokerUnreachable, DataLoss, UnknownTopic
from streamgroups.fakes import FakeCluster, FakeGroup, FakeMember
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.groups.history import no_history
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.available import AvailableOffsets
from streamgroups.query.continuity import Continuity
from streamgroups.query.data_loss import LossPolicies

TEN_MINUTES_MS = 600_000
FIRST, SECOND = (OffsetRange(TopicPartition("flights", p), 0, 5) for p in range(2))


class World:
    """A log with two partitions, and what was started in the background."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.jobs: list[Callable[[], None]] = []
        self.cluster = FakeCluster(lambda: self.now_ms)
        self.cluster.create_topic("flights", partitions=2)
        for r in (FIRST, SECOND):
            self.cluster.produce(r.topic_partition, 5, value=b"x" * 100)
        continuity = Continuity(self.cluster, lambda: self.now_ms, no_history, LossPolicies(), "airline")
        self.unread = AvailableOffsets(self.cluster, lambda: self.now_ms, continuity, start=self.jobs.append)


@pytest.fixture
def world() -> World:
    return World()


def test_sizes_are_asked_for_before_they_are_wanted(world: World) -> None:
    world.unread.request_sizes([FIRST])
    (job,) = world.jobs
    job()
    assert world.unread.sizes([FIRST]) == {FIRST.topic_partition: 100.0}
    assert world.jobs == [job]


@pytest.mark.parametrize(
    ("later_ms", "ranges", "asks"),
    [(TEN_MINUTES_MS - 1, [FIRST], 1), (TEN_MINUTES_MS, [FIRST], 2), (1, [FIRST, SECOND], 2)],
)
def test_sizes_are_asked_for_now_and_then(
    world: World, later_ms: int, ranges: Collection[OffsetRange], asks: int
) -> None:
    world.unread.request_sizes([FIRST])
    world.now_ms = later_ms
    world.unread.request_sizes(ranges)
    assert len(world.jobs) == asks
    for job in world.jobs:
        job()
    assert world.unread.sizes(ranges).keys() == {r.topic_partition for r in ranges}


def test_what_goes_wrong_in_the_background_is_told_where_sizes_are_wanted(world: World) -> None:
    def unreachable(_: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        raise BrokerUnreachable("gone", remedy="wait")

    world.cluster.beginning_offsets = unreachable  # type: ignore[method-assign]
    world.unread.request_sizes([FIRST])
    world.jobs[0]()
    with pytest.raises(BrokerUnreachable, match="gone"):
        world.unread.sizes([FIRST])


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
        continuity = Continuity(self.cluster, lambda: 0, no_history, LossPolicies(), "airline")
        self.unread = AvailableOffsets(self.cluster, lambda: 0, continuity)


@pytest.mark.parametrize("next_offset", [5, 6, 8])
def test_S7_a_position_behind_an_open_transaction_is_no_data_loss(next_offset: int) -> None:
    """A reader of all records may have come there before: what it has read is waited for, not lost."""
    beside = Beside(next_offset)
    assert beside.unread.of(beside.member, ()) == {beside.tp: (next_offset, 5)}
    beside.transaction.commit()
    assert beside.unread.of(beside.member, ()) == {beside.tp: (next_offset, 9)}


def test_S7_a_position_behind_the_last_record_is_data_loss() -> None:
    beside = Beside(9)
    with pytest.raises(DataLoss, match=r"position 9, available offsets \[0, 8\)"):
        beside.unread.of(beside.member, ())


def test_S7_a_topic_that_was_just_recreated_is_not_gone(world: World) -> None:
    """It is missing when its ends are read, and there when its partitions are."""
    tps = [FIRST.topic_partition, SECOND.topic_partition]
    world.cluster.commit("airline", dict.fromkeys(tps, 0), CommitMark(exclusive=False).encode())
    member = FakeMember(
        FakeGroup(world.cluster, "airline"), "alice", topics=lambda: ["flights"], first_positions=lambda _: {}
    )
    member.join(1_000)
    ends, failures = world.cluster.end_offsets, [1, 2]

    def missing_at_first(partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if failures:
            failures.pop()
            raise UnknownTopic("Topic 'flights' does not exist.", remedy="Create it.")
        return ends(partitions)

    world.cluster.end_offsets = missing_at_first  # type: ignore[method-assign]
    assert world.unread.of(member, ()) == {r.topic_partition: (0, 5) for r in (FIRST, SECOND)}
    assert not failures
