"""G8, S6: what is left for the members of a group that is moved while they read, and what does not fit."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from streamgroups.coordination import reset_requests
from streamgroups.coordination.admin_metadata_store import AdminMetadataStore
from streamgroups.coordination.reset_protocol import (
    MemberEntry,
    ResetRequest,
    members_group_of,
    next_step,
    resets_group_of,
)
from streamgroups.coordination.reset_requests import ResetRequests
from streamgroups.errors import BrokerUnreachable, GroupRejected, NotAuthorized
from streamgroups.fakes import FakeAdmin, FakeClock, FakeCluster
from streamgroups.groups.applied_reset import new_reset_id
from streamgroups.groups.description import GroupDescription, GroupMember
from streamgroups.partitions import TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.origins import UNNAMED, Named
from streamgroups_admin.cluster import Cluster
from streamgroups_admin.groups.live_reset import _reset_requests
from streamgroups_kafka.client.config import ClientConfig

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(FakeClock(0))
    cluster.create_topic("flights", 2)
    return cluster


@pytest.fixture
def requests(cluster: FakeCluster) -> ResetRequests:
    return ResetRequests(AdminMetadataStore(FakeAdmin(cluster)), FakeClock(0), lambda _: cluster.topics())


def test_G8_a_step_that_a_broker_would_not_store_is_rejected_before_anything_is_written(
    cluster: FakeCluster, requests: ResetRequests
) -> None:
    """Each partition's request names all topics of the step; a broker stores 4,096 bytes beside an offset."""
    topics = {f"{'a-long-name' * 5}-{i}": 1 for i in range(100)}
    where = {TopicPartition(topic, 0): 0 for topic in topics}
    with pytest.raises(GroupRejected, match="100 topics are too many for one reset request"):
        requests.write("airline", where)
    assert cluster.committed(resets_group_of("airline"), where) == {}
    assert cluster.committed(members_group_of("airline"), where) == {}


@pytest.mark.parametrize(("size", "fits"), [(4_095, True), (4_096, False)])
def test_G8_the_largest_step_that_a_broker_stores(
    cluster: FakeCluster, requests: ResetRequests, size: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka commits the NUL that ends a text, and the broker counts it."""
    longest_id = f"{2**63 - 1:x}"
    monkeypatch.setattr(reset_requests, "new_reset_id", lambda: longest_id)
    names = [f"t{i:02}".ljust(200, "-") for i in range(19)]
    left = size - len(ResetRequest(longest_id, 0, dict.fromkeys([*names, ""], 1)).encode())
    topics = dict.fromkeys([*names, "x" * left], 1)
    assert len(ResetRequest(longest_id, 0, topics).encode()) == size
    where = {TopicPartition(topic, 0): 0 for topic in topics}
    for topic in topics:
        cluster.create_topic(topic)
    if fits:
        requests.write("airline", where)
        return
    with pytest.raises(GroupRejected, match="20 topics are too many"):
        requests.write("airline", where)


def test_G8_what_was_not_done_yet_becomes_part_of_the_next_step(requests: ResetRequests) -> None:
    requests.write("airline", {P0: 5})
    number = requests.write("airline", {P1: 7})
    waiting = requests.waiting("airline", [P0, P1])
    assert {tp: (order.id, order.next_offset) for tp, order in waiting.items()} == {P0: (number, 5), P1: (number, 7)}


@pytest.fixture
def other_topics(cluster: FakeCluster) -> tuple[TopicPartition, TopicPartition]:
    """The partitions of two other topics."""
    cluster.create_topic("airports")
    cluster.create_topic("crews")
    return TopicPartition("airports", 0), TopicPartition("crews", 0)


def test_G8_all_topics_of_what_was_not_done_yet_become_part_of_the_next_step(
    cluster: FakeCluster, requests: ResetRequests, other_topics: tuple[TopicPartition, TopicPartition]
) -> None:
    airports, crews = other_topics
    requests.write("airline", {airports: 3, crews: 4})
    requests.write("airline", {P0: 5, airports: 3})
    number = requests.write("airline", {P0: 6})
    waiting = requests.waiting("airline", [P0, airports, crews])
    assert {tp: (order.id, order.next_offset) for tp, order in waiting.items()} == {
        P0: (number, 6),
        airports: (number, 3),
        crews: (number, 4),
    }
    assert waiting[P0].moves == {"airports": 1, "crews": 1, "flights": 1}
    cluster.delete_topic("crews")
    requests.write("airline", {P0: 7})
    assert requests.waiting("airline", [P0])[P0].moves == {"airports": 1, "flights": 1}


def test_G8_a_cancelled_partition_does_not_end_the_request_for_the_others(
    requests: ResetRequests, other_topics: tuple[TopicPartition, TopicPartition]
) -> None:
    airports, _ = other_topics
    requests.write("airline", {P0: 5, P1: 7, airports: 3})
    requests.cancel("airline", [P0])
    waiting = requests.waiting("airline", [P0, P1, airports])
    assert {tp: order.next_offset for tp, order in waiting.items()} == {P1: 7, airports: 3}
    assert [order.moves for order in waiting.values()] == [{"airports": 1, "flights": 1}] * 2
    assert len({order.id for order in waiting.values()}) == 1


def reading(*topics: str, state: str = "Stable", subscription: frozenset[str] | None = None) -> GroupDescription:
    """The group with one member that owns the first partition of each topic."""
    owned = frozenset(TopicPartition(topic, 0) for topic in topics)
    member = GroupMember("worker-1", "/10.0.0.9", owned, member_id="m", subscription=subscription)
    return GroupDescription("airline", state, members=(member,))


@pytest.mark.parametrize("subscription", [None, frozenset({"flights"})])
def test_G8_what_no_member_reads_any_more_does_not_become_part_of_the_next_step(
    requests: ResetRequests,
    other_topics: tuple[TopicPartition, TopicPartition],
    subscription: frozenset[str] | None,
) -> None:
    """A broker does not report the subscriptions of all members (KIP-848)."""
    airports, _ = other_topics
    requests.write("airline", {P0: 5, airports: 3})
    live = reading("flights", subscription=subscription)
    notice = requests.cancel_unowned(live, ["flights"])
    assert "cancelled for airports-0" in notice
    number = requests.write("airline", {P0: 6})
    waiting = requests.waiting("airline", [P0, P1, airports])
    assert {tp: (order.id, order.moves) for tp, order in waiting.items()} == {P0: (number, {"flights": 1})}
    entries = {P0: MemberEntry("worker-1", "m", 0, None, stopped=number)}
    resets = requests._resets("airline", [P0, P1, airports])
    step = next_step(resets, entries, {}, [P0], live, {"flights": 2, "airports": 1}, me="m")
    assert (list(step.move), step.waiting) == ([P0], {})


@pytest.mark.parametrize(
    "live", [reading("flights", "airports"), reading("flights", state="Reconciling")], ids=["read", "rebalancing"]
)
def test_G8_what_a_member_may_read_becomes_part_of_the_next_step(
    requests: ResetRequests, other_topics: tuple[TopicPartition, TopicPartition], live: GroupDescription
) -> None:
    airports, _ = other_topics
    requests.write("airline", {P0: 5, P1: 5, airports: 3})
    assert requests.cancel_unowned(live, ["flights"]) == ""
    requests.write("airline", {P0: 6})
    assert requests.waiting("airline", [airports])[airports].moves == {"airports": 1, "flights": 2}


def test_G8_the_remedy_for_too_many_topics_of_earlier_steps_is_to_wait_for_them(
    cluster: FakeCluster, requests: ResetRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{i:02}".ljust(200, "-") for i in range(15)]
    for topic in names:
        cluster.create_topic(topic)
    requests.write("airline", {P0: 0, **{TopicPartition(topic, 0): 0 for topic in names}})
    monkeypatch.setattr(reset_requests, "_MAX_BYTES", 3_000)
    with pytest.raises(
        GroupRejected, match=r"have not applied earlier reset requests, for t00.*these are 16 topics"
    ) as e:
        requests.write("airline", {P0: 6})
    assert "Wait until the members have applied them" in e.value.remedy
    assert "fewer" not in e.value.remedy


@pytest.mark.parametrize("action", ["reset", "cancel"])
def test_G8_topics_that_this_user_may_not_describe_and_invalid_names_are_left_out(
    cluster: FakeCluster, requests: ResetRequests, other_topics: tuple[TopicPartition, TopicPartition], action: str
) -> None:
    """A pending request names them: it was written by another user."""
    airports, _ = other_topics
    requests.write("airline", {P0: 5, P1: 7, airports: 3})
    entry = ResetRequest(new_reset_id(), 1, {"flights": 2, "not a topic": 1}).encode()
    cluster.commit(resets_group_of("airline"), {P1: 7}, entry)
    admin = FakeAdmin(cluster)
    for name in ("airports", "not a topic"):
        cluster.rejections[name] = NotAuthorized(f"Topic '{name}' could not be described.", remedy="")
    limited = _reset_requests(Cluster(ClientConfig(()), admin, admin, {}, FakeClock(0)))
    if action == "cancel":
        limited.cancel("airline", [P0])
        assert {tp: it.moves for tp, it in limited.waiting("airline", [P0, P1]).items()} == {P1: {"flights": 1}}
    else:
        limited.write("airline", {P0: 6, P1: 6})
        waiting = limited.waiting("airline", [P0, P1])
        assert {tp: (it.next_offset, it.moves) for tp, it in waiting.items()} == dict.fromkeys(
            [P0, P1], (6, {"flights": 2})
        )


def test_G8_an_error_does_not_cancel_a_part_of_a_request(cluster: FakeCluster, requests: ResetRequests) -> None:
    requests.write("airline", {P0: 5, P1: 7})

    def unreachable(_: Collection[str]) -> Mapping[str, int]:
        raise BrokerUnreachable("No broker answers.", remedy="")

    with pytest.raises(BrokerUnreachable):
        ResetRequests(AdminMetadataStore(FakeAdmin(cluster)), FakeClock(0), unreachable).cancel("airline", [P0])
    assert requests.waiting("airline", [P0, P1]).keys() == {P0, P1}


def test_C3_what_was_not_done_yet_keeps_the_state_that_it_names(requests: ResetRequests) -> None:
    named = Named(StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42), 5)
    requests.write("airline", {P0: 5}, {P0: named})
    requests.write("airline", {P1: 7})
    assert {tp: it.state for tp, it in requests.waiting("airline", [P0, P1]).items()} == {P0: named, P1: UNNAMED}
    requests.write("airline", {P0: 5})
    assert requests.waiting("airline", [P0])[P0].state == UNNAMED


def test_G8_what_was_cancelled_is_not_waited_for(requests: ResetRequests) -> None:
    requests.write("airline", {P0: 5})
    requests.cancel("airline", [P0, P1])
    assert requests.waiting("airline", [P0, P1]) == {}


def test_G8_a_request_remains_valid_until_a_commit_replaces_it(requests: ResetRequests) -> None:
    number = requests.write("airline", {P0: 5, P1: 7})
    seen: list[int] = []

    def rejected() -> None:
        raise GroupRejected("Group 'airline' has members.")

    assert not requests.replace("airline", [P0, P1], rejected)
    assert {it.id for it in requests.waiting("airline", [P0, P1]).values()} == {number}
    assert requests.replace("airline", [P0, P1], lambda: seen.append(len(requests.waiting("airline", [P0, P1]))))
    assert (seen, requests.waiting("airline", [P0, P1])) == ([2], {})
