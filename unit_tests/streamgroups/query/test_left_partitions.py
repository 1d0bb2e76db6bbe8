"""S7: partitions that leave a query because their topic was deleted are a loss, and those of other members are not."""

from __future__ import annotations

import logging

import pytest
from tenacity import wait_none

from streamgroups.errors import NotAuthorized, UnknownTopic
from streamgroups.fakes import FakeClock, FakeCluster
from streamgroups.groups.membership import Owned
from streamgroups.partitions import TopicPartition
from streamgroups.query import missing_partitions
from streamgroups.query.data_loss import LossPolicies, OnDataLoss
from streamgroups.query.left_partitions import LeftPartitions

FLIGHTS, ORDERS = TopicPartition("flights", 0), TopicPartition("orders", 0)
OWNED = {FLIGHTS: Owned(5), ORDERS: Owned(7)}


class World:
    """Two topics and a clock, and how often the topics were read."""

    def __init__(self, policy: OnDataLoss) -> None:
        self.clock = FakeClock(0)
        self.cluster = FakeCluster(self.clock)
        self.cluster.create_topic("flights")
        self.cluster.create_topic("orders")
        self.reads = 0
        #: How many of the next lists lack all topics, as that of a broker which has just started.
        self.empty_lists = 0
        topics = self.cluster.topics

        def counted() -> dict[str, int]:
            self.reads += 1
            self.empty_lists -= 1
            return {} if self.empty_lists >= 0 else dict(topics())

        self.cluster.topics = counted  # type: ignore[method-assign]
        self.left = LeftPartitions(self.cluster, self.clock, LossPolicies(policy), "billing")
        self.left.check(OWNED)


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing_partitions.until_listed, "wait", wait_none())


@pytest.mark.parametrize("policy", OnDataLoss)
def test_S7_a_deleted_topic_is_a_loss_although_its_partition_has_left(
    policy: OnDataLoss, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(policy)
    world.cluster.delete_topic("flights")
    rest = {ORDERS: OWNED[ORDERS]}
    if policy is OnDataLoss.FAIL:
        for _ in range(2):
            with pytest.raises(UnknownTopic, match=r"flights-0 \(position 5\): the topic does not exist any more"):
                world.left.check(rest)
        return
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            world.left.check(dict(rest))
            world.clock.advance(1_000)
    assert [it for it in caplog.messages if f"(onDataLoss={policy.value})" in it] == caplog.messages
    assert (len(caplog.messages), world.reads) == (1, 3)


@pytest.mark.parametrize("empty_lists", [1, 2, 9])
@pytest.mark.parametrize("policy", OnDataLoss)
def test_G17_a_topic_that_exists_is_not_deleted_because_a_list_lacks_it(
    policy: OnDataLoss, empty_lists: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(policy)
    rest = {ORDERS: OWNED[ORDERS]}
    world.empty_lists = empty_lists
    world.left.check(rest)
    world.clock.advance(1_000)
    assert not caplog.messages
    world.empty_lists = 0
    world.cluster.delete_topic("flights")
    if policy is OnDataLoss.FAIL:
        with pytest.raises(UnknownTopic):
            world.left.check(rest)
    else:
        world.left.check(rest)
        assert len(caplog.messages) == 1


def test_G17_two_of_three_lists_and_ids_are_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(OnDataLoss.FAIL)
    world.empty_lists = 2
    monkeypatch.setattr(world.cluster, "identities", lambda _: {})
    world.left.check({ORDERS: OWNED[ORDERS]})
    assert world.reads == 3


def test_G17_a_topic_that_the_user_may_not_describe_any_more_is_not_deleted() -> None:
    world = World(OnDataLoss.SKIP)
    world.empty_lists = 9
    world.cluster.rejections["flights"] = NotAuthorized("Topic 'flights' could not be described.")
    with pytest.raises(NotAuthorized, match="'flights'"):
        world.left.check({ORDERS: OWNED[ORDERS]})


def test_S7_a_topic_that_was_recreated_with_fewer_partitions() -> None:
    world = World(OnDataLoss.FAIL)
    second = TopicPartition("flights", 1)
    world.left.check({**OWNED, second: Owned(3)})
    with pytest.raises(UnknownTopic, match=r"flights-1 \(position 3\)"):
        world.left.check(OWNED)


def test_S7_a_broker_that_receives_the_deletion_later() -> None:
    world = World(OnDataLoss.FAIL)
    rest = {ORDERS: OWNED[ORDERS]}
    world.left.check(rest)
    world.cluster.delete_topic("flights")
    world.left.check(rest)
    assert world.reads == 1, "the topics are read once per interval"
    world.clock.advance(1_000)
    with pytest.raises(UnknownTopic):
        world.left.check(rest)


def test_S1_the_partition_of_another_member_is_no_loss() -> None:
    world = World(OnDataLoss.FAIL)
    rest = {ORDERS: OWNED[ORDERS]}
    for _ in range(30):
        world.left.check(rest)
        world.clock.advance(500)
    assert 0 < world.reads <= 11
    world.left.check(OWNED)
    world.left.check(rest)
    world.left.check(OWNED)
    world.cluster.delete_topic("flights")
    world.clock.advance(1_000)
    world.left.check(OWNED)


def test_without_a_rebalance_no_topic_is_read() -> None:
    world = World(OnDataLoss.FAIL)
    for _ in range(3):
        world.left.check(OWNED)
        world.left.check({tp: Owned(it.next_offset + 1) for tp, it in OWNED.items()})
    assert world.reads == 0
