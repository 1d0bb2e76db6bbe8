"""G8: the offsets of a group are reset only if its members apply the request."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroups.coordination.admin_metadata_store import AdminMetadataStore
from streamgroups.coordination.reset_protocol import MemberEntry, members_group_of, resets_group_of
from streamgroups.coordination.reset_requests import ResetRequests
from streamgroups.errors import GroupRejected
from streamgroups.fakes import FakeAdmin, FakeClock, FakeCluster
from streamgroups.groups.description import GroupDescription, GroupMember
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups.positions import TrimHorizon
from streamgroups_kafka.cursors import group_operations
from streamgroups_kafka.cursors.group_operations import GroupOperations

P0 = TopicPartition("flights", 0)


def described(state: str, *partitions: TopicPartition) -> GroupDescription:
    member = GroupMember("worker-1", "/10.0.0.9", frozenset(partitions), member_id="worker-1-5f2c")
    return GroupDescription("billing", state, members=(member,))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A cluster with a group that has read the topic."""
    monkeypatch.setattr(group_operations, "_INTRODUCTION_S", 0.0)
    cluster = FakeCluster(FakeClock(1_000_000))
    cluster.create_topic("flights")
    cluster.produce(P0, 100)
    cluster.commit("billing", {P0: 90})
    return cluster


def reset(cluster: Any) -> dict[TopicPartition, Committed]:
    """Resets the group. Returns the reset requests."""
    clock = FakeClock(1_000_000)
    GroupOperations(cluster, AdminMetadataStore(FakeAdmin(cluster)), clock).move("flights", "billing", TrimHorizon())
    return requests(cluster)


def requests(cluster: FakeCluster) -> dict[TopicPartition, Committed]:
    return cluster.all_committed(resets_group_of("billing"))


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Assigning"])
def test_G8_a_group_whose_owners_are_not_known_is_rejected(cluster: FakeCluster, state: str) -> None:
    """In a rebalance the broker describes members without partitions, such as those of other clients."""
    cluster.host("billing", lambda: described(state))
    with pytest.raises(GroupRejected, match=rf"'billing' is rebalancing \({state}\).*worker-1") as rejection:
        reset(cluster)
    assert "again when the group is stable" in rejection.value.remedy
    assert requests(cluster) == {}


def test_G8_a_rebalance_is_waited_for(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_operations, "_INTRODUCTION_S", 3.0)
    monkeypatch.setattr(group_operations.time, "sleep", lambda _: states.pop(0))
    states = ["PreparingRebalance", "CompletingRebalance", "Stable"]
    cluster.host("billing", lambda: described(states[0], *([P0] if states[0] == "Stable" else [])))
    entry = MemberEntry("worker-1", "worker-1-5f2c", 1_000_000, 1_030_000).encode()
    cluster.commit(members_group_of("billing"), {P0: 90}, entry)
    assert reset(cluster).keys() == {P0}
    assert states == ["Stable"]


@pytest.mark.parametrize("state", ["Stable", "Reconciling"])
def test_G8_owners_without_a_metadata_entry_are_rejected(cluster: FakeCluster, state: str) -> None:
    cluster.host("billing", lambda: described(state, P0))
    with pytest.raises(GroupRejected, match="cannot apply a reset request: worker-1"):
        reset(cluster)
    entry = MemberEntry("worker-1", "worker-1-5f2c", 1_000_000, 1_030_000).encode()
    cluster.commit(members_group_of("billing"), {P0: 90}, entry)
    assert reset(cluster).keys() == {P0}


@pytest.mark.parametrize("leave", ["during the check", "after the check"])
def test_G8_a_group_whose_members_leave_meanwhile_is_reset_by_a_commit(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, leave: str
) -> None:
    monkeypatch.setattr(group_operations, "_INTRODUCTION_S", 3.0)
    monkeypatch.setattr(group_operations.time, "sleep", lambda _: None)
    entry = MemberEntry("worker-1", "worker-1-5f2c", 1_000_000, 1_030_000).encode()
    cluster.commit(members_group_of("billing"), {P0: 90}, entry)
    busy = described("PreparingRebalance") if leave == "during the check" else described("Stable", P0)
    answers = [busy] * 3
    cluster.host("billing", lambda: answers.pop(0) if answers else GroupDescription("billing", "Empty"))
    clock = FakeClock(1_000_000)
    store = AdminMetadataStore(FakeAdmin(cluster))
    GroupOperations(cluster, store, clock).move("flights", "billing", TrimHorizon())
    assert cluster.committed("billing", [P0])[P0].next_offset == 0
    assert ResetRequests(store, clock, lambda _: cluster.topics()).waiting("billing", [P0]) == {}


def test_G8_a_group_whose_members_join_and_leave_all_the_time_is_rejected(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations = GroupOperations(cluster, AdminMetadataStore(FakeAdmin(cluster)), FakeClock(1_000_000))
    monkeypatch.setattr(operations, "_commit", lambda *_: False)
    with pytest.raises(GroupRejected, match="'billing' were not reset: its members join and leave") as rejection:
        operations.move("flights", "billing", TrimHorizon())
    assert "call update_group again" in rejection.value.remedy
