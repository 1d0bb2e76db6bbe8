"""S11: a group cursor does not continue at a position of another topic."""

from __future__ import annotations

import pytest

from streamgroups.cursors.cursor_tokens import PartitionCursor
from streamgroups.errors import DataLoss
from streamgroups.fakes import FakeClock, FakeCluster
from streamgroups.groups.membership import Origin, Owned
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.cursors.position_checks import TopicIds, checked, checked_cursor

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
FIRST = TopicIdentity("fake-cluster", "id-of-flights")


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(lambda: 0)
    cluster.create_topic("flights", 2)
    return cluster


def ids(cluster: FakeCluster) -> dict[str, TopicIdentity]:
    return cluster.identities(["flights"])


def test_positions_of_the_topic_that_is_there_and_those_of_other_tools(cluster: FakeCluster) -> None:
    owned = {P0: Owned(5, identity=FIRST), P1: Owned(7, Origin.FOREIGN)}
    assert checked(ids(cluster), "billing", owned) == {
        P0: Owned(5, identity=FIRST),
        P1: Owned(7, Origin.FOREIGN, FIRST),
    }


def test_a_position_of_an_earlier_topic(cluster: FakeCluster) -> None:
    cluster.create_topic("flights", 2)
    with pytest.raises(DataLoss) as loss:
        checked(ids(cluster), "billing", {P0: Owned(5, identity=FIRST), P1: Owned(7)})
    assert (
        "flights-0 (position 5 of topic id id-of-flights, cluster id fake-cluster; now topic id id-1-of-flights"
        in loss.value.what
    )
    assert "flights-1" not in loss.value.what
    assert "streamgroups groups reset billing --topic flights --to-earliest --execute" in loss.value.remedy


def test_brokers_without_topic_ids(cluster: FakeCluster) -> None:
    cluster.has_topic_ids = False
    assert checked(ids(cluster), "billing", {P0: Owned(5, identity=FIRST)}) == {P0: Owned(5, identity=FIRST)}


def test_a_partition_cursor_is_checked_once_per_metadata_refresh(cluster: FakeCluster) -> None:
    clock = FakeClock(0)
    known = TopicIds(cluster, clock)
    cursor = checked_cursor(known, PartitionCursor("flights", 0, 5))
    assert cursor.identity == FIRST
    cluster.create_topic("flights", 2)
    assert checked_cursor(known, cursor) == cursor, "the ids are not read for every request"
    clock.advance(5_000)
    with pytest.raises(DataLoss, match=r"offset 5 of topic id id-of-flights.*now topic id id-1-of-flights") as loss:
        checked_cursor(known, cursor)
    assert "create_cursor" in loss.value.remedy
    again = checked_cursor(known, PartitionCursor("flights", 0, 0))
    assert checked_cursor(known, again).next_offset == 0


def test_a_partition_cursor_of_the_new_topic_is_newer_than_the_ids_that_are_known(cluster: FakeCluster) -> None:
    known = TopicIds(cluster, FakeClock(0))
    checked_cursor(known, PartitionCursor("flights", 0, 5))
    cluster.create_topic("flights", 2)
    (now,) = cluster.identities(["flights"]).values()
    assert checked_cursor(known, PartitionCursor("flights", 0, 0, now)).identity == now


def test_a_partition_cursor_of_another_cluster(cluster: FakeCluster) -> None:
    cursor = PartitionCursor("flights", 0, 5, TopicIdentity("other-cluster"))
    with pytest.raises(DataLoss, match=r"cluster id other-cluster; now .*cluster id fake-cluster"):
        checked_cursor(TopicIds(cluster, FakeClock(0)), cursor)
