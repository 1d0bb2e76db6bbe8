"""A survey requests all groups at once, and reads no more records than permitted."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from streamgroups.coordination.reset_protocol import MemberEntry, event_time_group_of, gaps_group_of, members_group_of
from streamgroups.errors import NotAuthorized
from streamgroups.fakes import FakeAdmin, FakeClock, FakeCluster, FakeGroup, FakeMember
from streamgroups.groups.description import GroupListing
from streamgroups.groups.gaps import Cause, Gap, Gaps
from streamgroups.groups.lag import CountedLag, FirstOfLag, NoLag
from streamgroups.groups.membership import Origin, Owned
from streamgroups.monitoring.metrics import GroupFigures, gap_metrics
from streamgroups.monitoring.monitor import Monitor
from streamgroups.monitoring.snapshots import Memory, survey
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Committed
from unit_tests.work import work_of

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


class Counting(FakeAdmin):
    """Counts its requests."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self.read: list[Mapping[TopicPartition, int]] = []

    def first_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, FirstOfLag]:
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


def test_the_work_for_groups_at_different_offsets_of_a_partition_is_linear() -> None:
    def work(n: int) -> int:
        cluster = FakeCluster(FakeClock(1_000))
        cluster.create_topic("flights", 1)
        cluster.produce(P0, n)
        groups = [f"g{offset}" for offset in range(n)]
        for offset, group in enumerate(groups):
            cluster.commit(group, {P0: offset})
        admin = FakeAdmin(cluster)
        return work_of(lambda: survey(admin, admin, groups, reads=0))

    assert work(400) < 2.5 * work(200)


def test_more_than_may_be_read_is_not_read_at_all() -> None:
    admin = cluster_with_lag()
    a, b = survey(admin, admin, ["a", "b"], reads=2)
    assert (a.records, b.records) == (4, 3)
    assert (a.time_ms(1_500), b.time_ms(1_700)) == (None, None)
    assert admin.read == []


def test_G13_O3_markers_in_the_middle_are_no_lag_however_many_partitions_there_are() -> None:
    cluster = FakeCluster(FakeClock(1_000))
    tps = [TopicPartition("flights", p) for p in range(1_500)]
    cluster.create_topic("flights", len(tps))
    for tp in tps:
        cluster.produce(tp, 2)
        cluster.leave_gap(tp, 3)
    cluster.produce(P0, 1)
    admin = Counting(cluster)
    admin.alter_offsets("caught-up", dict.fromkeys(tps, Committed(2)))
    admin.alter_offsets("behind", {P0: Committed(1)})
    behind, caught_up = survey(admin, admin, ["caught-up", "behind"])
    assert (behind.records, behind.is_exact) == (2, True)
    assert (caught_up.records, caught_up.is_exact) == (1, True)
    assert caught_up.lags[1].first_record_of_lag == NoLag()
    assert admin.read == [{P0: 1}, {P0: 2}], "there is nothing to read of the other 1,499"


def test_O3_uncommitted_records_are_no_lag_and_distinguished() -> None:
    cluster = FakeCluster(FakeClock(1_000))
    cluster.create_topic("flights", 1)
    cluster.produce(P0, 2)
    transaction = cluster.begin_transaction()
    cluster.produce(P0, 3, transaction=transaction)
    cluster.produce(P0, 1)
    admin = Counting(cluster)
    admin.alter_offsets("board", {P0: Committed(1)})
    (metadata_store,) = survey(admin, admin, ["board"])
    assert (metadata_store.records, metadata_store.open_records, metadata_store.is_exact) == (1, 4, True)
    transaction.abort()
    (metadata_store,) = survey(admin, admin, ["board"])
    assert (metadata_store.records, metadata_store.open_records) == (2, 0), "aborted records are not delivered"


def test_O3_what_is_not_counted_is_an_upper_bound() -> None:
    admin = cluster_with_lag()
    admin.cluster.leave_gap(P0, 10)
    a, _ = survey(admin, admin, ["a", "b"], count_bytes=0, reads=0)
    assert (a.records, a.is_exact, a.open_records) == (14, False, None)
    (lag, _) = a.lags
    assert (lag.records, lag.is_exact, lag.open_records) == (14, False, None)
    a, _ = survey(admin, admin, ["a", "b"])
    assert (a.records, a.is_exact, a.open_records) == (4, True, 0)


def test_what_was_counted_is_not_counted_again_before_something_is_written() -> None:
    admin, memory = cluster_with_lag(), Memory()
    requested: list[list[str]] = []
    count = admin.count_lag

    def counting(ranges: Collection[OffsetRange], limit_bytes: int) -> dict[TopicPartition, CountedLag]:
        requested.append([str(r) for r in ranges])
        return count(ranges, limit_bytes)

    admin.count_lag = counting  # type: ignore[method-assign]
    for _ in range(2):
        survey(admin, admin, ["a"], memory=memory)
    assert requested == [["flights-0[1,5)"]]
    admin.cluster.produce(P0, 1)
    survey(admin, admin, ["a"], memory=memory)
    assert requested[1:] == [["flights-0[1,6)"]]


def test_a_partition_that_is_owned_and_not_committed_is_shown() -> None:
    admin = cluster_with_lag()
    (s,) = survey(admin, admin, ["unknown"])
    assert (s.lags, s.description.state) == ((), "Dead")


def test_O3_a_repeated_group_counts_once() -> None:
    admin = cluster_with_lag()
    assert [it.description.group_id for it in survey(admin, admin, ["b", "a", "b"])] == ["a", "b"]


def test_O3_a_group_is_described_without_its_metadata_group() -> None:
    """Describe on the literal name of a group is enough, also for a group of another program."""
    admin = cluster_with_lag()
    members = []
    for group_id in ("a", "b"):
        group = FakeGroup(admin.cluster, group_id)
        member = FakeMember(
            group,
            "alice",
            topics=lambda: ["flights"],
            first_positions=lambda missing: {tp: Owned(0, Origin.STARTING) for tp in missing},
        )
        member.join(1_000)
        group.settle()
        members.append(member)
    entry = MemberEntry("alice", members[1].member_id, 0, None, reading_until=5).encode()
    for group_id in ("a", "b"):
        admin.cluster.commit(members_group_of(group_id), {P0: 1}, entry)
    admin.denied = {members_group_of("a")}
    a, b = survey(admin, admin, ["a", "b"])
    assert [it.records for it in (a, b)] == [4, 3]
    assert [it.lags[0].in_flight for it in (a, b)] == [0, 2]
    admin.denied = {"a"}
    with pytest.raises(NotAuthorized):
        survey(admin, admin, ["a", "b"])
    admin.denied = {members_group_of("b")}
    with pytest.raises(NotAuthorized):
        survey(admin, admin, ["b", members_group_of("b")])


def test_O3_groups_are_polled_without_metadata_groups_that_are_listed_and_denied() -> None:
    """Describe on the cluster lists all groups, and permits to read none of them."""

    class Listing(Counting):
        def list_groups(self) -> list[GroupListing]:
            denied, self.denied = self.denied, set()
            try:
                return super().list_groups()
            finally:
                self.denied = denied

    cluster = cluster_with_lag().cluster
    for group_id in ("a", "b"):
        for name in (event_time_group_of(group_id), gaps_group_of(group_id)):
            cluster.commit(name, {P0: 1}, "{}")
    admin = Listing(cluster)
    admin.denied = {event_time_group_of("a"), gaps_group_of("b")}
    monitor = Monitor(admin, admin, FakeClock(1_000), event_times=True, gaps=True)
    assert [it.snapshot.records for it in monitor.poll()] == [4, 3]


def test_G17_unreadable_gaps_do_not_count_as_none(caplog: pytest.LogCaptureFixture) -> None:
    admin = cluster_with_lag()
    stored = Gaps().plus(Gap(0, 1, Cause.EXPIRED, 1)).plus(Gap(2, 3, Cause.EXPIRED, 1)).encode()
    admin.cluster.commit(gaps_group_of("a"), {P0: 1}, stored.replace("expired", "moved", 1))
    admin.cluster.commit(gaps_group_of("b"), {P0: 1}, stored.replace('"v":1', '"v":2'))
    a, b = Monitor(admin, admin, FakeClock(1_000), gaps=True).poll()
    assert (a.gaps[P0].count, b.gaps) == (2, {})
    assert f"The metadata entries of group '{gaps_group_of('b')}' at flights-0 cannot be read" in caplog.text
    [family, _] = gap_metrics([GroupFigures(("a", ""), None, None, (), a.gaps)])
    assert {it.labels["cause"]: it.value for it in family.samples} == {"expired": 1, "unknown": 1}
