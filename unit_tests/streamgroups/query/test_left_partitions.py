"""S7: partitions that leave a query because their topic was deleted are a loss, and those of other members are not."""

from __future__ import annotations

import logging

import pytest

from streamgroups.errors import UnknownTopic
from streamgroups.fakes import FakeClock, FakeCluster
from streamgroups.groups.membership import Owned
from streamgroups.partitions import TopicPartition
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
        topics = self.cluster.topics

        def counted() -> dict[str, int]:
            self.reads += 1
            return dict(topics())

        self.cluster.topics = counted  # type: ignore[method-assign]
        self.left = LeftPartitions(self.cluster, self.clock, LossPolicies(policy), "billing")
        self.left.check(OWNED)


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
    assert (len(caplog.messages), world.reads) == (1, 1)


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
