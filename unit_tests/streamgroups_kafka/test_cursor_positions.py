"""S11: a group cursor does not continue at a position of another topic."""

from __future__ import annotations

import pytest

from streamgroups.errors import DataLoss
from streamgroups.fakes import FakeCluster
from streamgroups.groups.membership import Origin, Owned
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.cursors.positions import checked

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
FIRST = TopicIdentity("fake-cluster", "id-of-flights")


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(lambda: 0)
    cluster.create_topic("flights", 2)
    return cluster


def test_positions_of_the_topic_that_is_there_and_those_of_other_tools(cluster: FakeCluster) -> None:
    owned = {P0: Owned(5, identity=FIRST), P1: Owned(7, Origin.FOREIGN)}
    assert checked(cluster, "billing", owned) == {
        P0: Owned(5, identity=FIRST),
        P1: Owned(7, Origin.FOREIGN, FIRST),
    }


def test_a_position_of_an_earlier_topic(cluster: FakeCluster) -> None:
    cluster.create_topic("flights", 2)
    with pytest.raises(DataLoss) as loss:
        checked(cluster, "billing", {P0: Owned(5, identity=FIRST), P1: Owned(7)})
    assert (
        "flights-0 (position 5 of topic id id-of-flights, cluster id fake-cluster; now topic id id-1-of-flights"
        in loss.value.what
    )
    assert "flights-1" not in loss.value.what
    assert "streamgroups groups reset billing --topic flights --to-earliest --execute" in loss.value.remedy


def test_brokers_without_topic_ids(cluster: FakeCluster) -> None:
    cluster.has_topic_ids = False
    assert checked(cluster, "billing", {P0: Owned(5, identity=FIRST)}) == {P0: Owned(5, identity=FIRST)}
