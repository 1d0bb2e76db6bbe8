"""A survey asks about all groups at once, and reads no more records than it may."""

from __future__ import annotations

from collections.abc import Mapping

from streamgroups.fakes import FakeAdmin, FakeClock, FakeCluster
from streamgroups.groups.lag import FirstUnread
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups.survey import survey

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


class Counting(FakeAdmin):
    """Counts what it is asked."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self.read: list[Mapping[TopicPartition, int]] = []

    def first_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, FirstUnread]:
        self.read.append(dict(offsets))
        return super().first_records(offsets)


def cluster_with_lag() -> Counting:
    cluster = FakeCluster(FakeClock(1_000))
    cluster.create_topic("flights", 2)
    for tp in (P0, P1):
        cluster.produce(tp, 5)
    admin = Counting(cluster)
    admin.alter_offsets("a", {P0: Committed(1), P1: Committed(5)})
    admin.alter_offsets("b", {P0: Committed(3), P1: Committed(4)})
    return admin


def test_groups_at_different_offsets_of_a_partition_are_all_looked_up() -> None:
    admin = cluster_with_lag()
    a, b = survey(admin, admin, ["b", "a"])
    assert [s.description.group_id for s in (a, b)] == ["a", "b"]
    assert (a.records, b.records) == (4, 3)
    assert (a.time_ms(1_500), b.time_ms(1_700)) == (500, 700)
    assert admin.read == [{P0: 1, P1: 4}, {P0: 3}]


def test_more_than_may_be_read_is_not_read_at_all() -> None:
    admin = cluster_with_lag()
    a, b = survey(admin, admin, ["a", "b"], reads=2)
    assert (a.records, b.records) == (4, 3)
    assert (a.time_ms(1_500), b.time_ms(1_700)) == (None, None)
    assert admin.read == []


def test_a_partition_that_nobody_committed_but_somebody_owns_is_shown() -> None:
    admin = cluster_with_lag()
    (s,) = survey(admin, admin, ["nobody"])
    assert (s.lags, s.description.state) == ((), "Dead")
