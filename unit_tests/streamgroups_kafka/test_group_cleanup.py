"""Unused groups are deleted if the user may describe them, and else left alone."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamgroups.coordination.admin_metadata_store import AdminMetadataStore
from streamgroups.coordination.reset_protocol import MemberEntry, members_group_of
from streamgroups.coordination.reset_requests import ResetRequests
from streamgroups.errors import NotAuthorized, StreamGroupsError, UnknownTopic
from streamgroups.fakes import FakeAdmin, FakeClock, FakeCluster, FakeGroup, FakeMember
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.admin import topic_changes
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.cursors import group_cleanup

OF_CURSORS = CommitMark(False, form="cursors").encode()


class Session:
    def __init__(self, *_: object, **__: object) -> None: ...

    def close(self) -> None: ...


class Rejecting:
    """An admin client whose user may not read a topic's settings."""

    def __init__(self, code: int) -> None:
        self._code = code

    def describe_configs(self, resources: list[Any], **_: object) -> dict[Any, Future[Any]]:
        answer: Future[Any] = Future()
        answer.set_exception(KafkaException(KafkaError(self._code)))
        return {resources[0]: answer}


@pytest.fixture
def retention(monkeypatch: pytest.MonkeyPatch) -> group_cleanup.GroupRetention:
    clock, tp = FakeClock(1_000_000), TopicPartition("flights", 0)
    cluster = FakeCluster(clock)
    cluster.create_topic("flights", 1)
    cluster.commit("billing", {tp: 3}, OF_CURSORS)
    cluster.commit(members_group_of("billing"), {tp: 3}, MemberEntry("w", "w", 999_000, 1_000_000).encode())
    monkeypatch.setattr(group_cleanup, "AdminSession", Session)
    monkeypatch.setattr(group_cleanup, "KafkaGroupAdmin", lambda _session: FakeAdmin(cluster))
    return group_cleanup.GroupRetention(ClientConfig.from_options({"bootstrap.servers": "127.0.0.1:1"}), clock, most=50)


def test_without_the_right_to_read_settings_nothing_is_swept(
    retention: group_cleanup.GroupRetention, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(topic_changes, "AdminClient", lambda _: Rejecting(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert retention.sweep("flights", "billing") == []
    assert "DescribeConfigs" in caplog.text


def test_other_errors_are_reported(retention: group_cleanup.GroupRetention, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_changes, "AdminClient", lambda _: Rejecting(KafkaError.UNKNOWN_TOPIC_OR_PART))
    with pytest.raises(UnknownTopic):
        retention.sweep("flights", "billing")


def test_G17_a_metadata_group_that_remains_is_reported(
    retention: group_cleanup.GroupRetention, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(topic_changes, "AdminClient", lambda _: Retention())
    delete = FakeAdmin.delete_groups

    def reject(admin: FakeAdmin, group_ids: list[str]) -> dict[str, StreamGroupsError]:
        if "billing" in group_ids:
            return delete(admin, group_ids)
        rejected = NotAuthorized("It is denied.", remedy="Grant it.")
        return delete(admin, group_ids) | {members_group_of("billing"): rejected}

    monkeypatch.setattr(FakeAdmin, "delete_groups", reject)
    monkeypatch.setattr(retention, "_clock", FakeClock(1_000_000 + 86_400_000))
    assert retention.sweep("flights", "billing") == ["billing"]
    (warning,) = [it.getMessage() for it in caplog.records if it.levelname == "WARNING"]
    assert f"Metadata group '{members_group_of('billing')}' of a deleted group remains: It is denied" in warning


def test_G15_a_group_that_the_repeated_request_does_not_find_is_deleted(
    retention: group_cleanup.GroupRetention, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first response was lost. Its metadata groups are deleted too."""
    monkeypatch.setattr(topic_changes, "AdminClient", lambda _: Retention())
    delete, deleted = FakeAdmin.delete_groups, list[str]()

    def delete_twice(admin: FakeAdmin, group_ids: list[str]) -> dict[str, StreamGroupsError]:
        deleted.extend(group_ids)
        delete(admin, group_ids)
        return delete(admin, group_ids)

    monkeypatch.setattr(FakeAdmin, "delete_groups", delete_twice)
    monkeypatch.setattr(retention, "_clock", FakeClock(1_000_000 + 86_400_000))
    assert retention.sweep("flights", "billing") == ["billing"]
    assert members_group_of("billing") in deleted


def test_G15_the_group_of_a_stopped_query_is_kept(
    retention: group_cleanup.GroupRetention, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster(FakeClock(1_000_000))
    cluster.create_topic("flights", 2)
    partitions = [TopicPartition("flights", p) for p in range(2)]
    for p, tp in enumerate(partitions):
        cluster.commit("query", {tp: 3}, CommitMark(False, form="none").encode())
        cluster.commit(members_group_of("query"), {tp: 3}, MemberEntry("q", f"q-{p}", 999_000, None).encode())
    cluster.commit("billing", dict.fromkeys(partitions, 3), OF_CURSORS)
    cluster.commit(
        members_group_of("billing"),
        dict.fromkeys(partitions, 3),
        MemberEntry("w", "w", 999_000, 1_000_000).encode(),
    )
    monkeypatch.setattr(group_cleanup, "KafkaGroupAdmin", lambda _session: FakeAdmin(cluster))
    monkeypatch.setattr(topic_changes, "AdminClient", lambda _: Retention())
    monkeypatch.setattr(retention, "_clock", FakeClock(1_000_000 + 86_400_000))
    assert retention.sweep("flights") == ["billing"]
    assert "query" in cluster.group_ids()


def test_G15_a_group_that_was_reset_since_is_kept(
    retention: group_cleanup.GroupRetention, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its instances continue at the new offsets when they return."""
    clock, tp = FakeClock(1_000_000), TopicPartition("flights", 0)
    cluster = FakeCluster(clock)
    cluster.create_topic("flights", 1)
    cluster.commit("billing", {tp: 3}, OF_CURSORS)
    cluster.commit(members_group_of("billing"), {tp: 3}, MemberEntry("w", "w", 999_000, 1_000_000).encode())
    monkeypatch.setattr(group_cleanup, "KafkaGroupAdmin", lambda _session: FakeAdmin(cluster))
    monkeypatch.setattr(topic_changes, "AdminClient", lambda _: Retention())
    monkeypatch.setattr(retention, "_clock", clock)
    clock.advance(86_400_000)
    assert ResetRequests(AdminMetadataStore(FakeAdmin(cluster)), clock, lambda _: cluster.topics()).commit(
        "billing", {tp: 1}
    )
    clock.advance(60_000)
    assert retention.sweep("flights", "billing") == []
    assert cluster.committed("billing", [tp])[tp].next_offset == 1


class Retention:
    """An admin client of a topic that keeps messages for an hour."""

    def describe_configs(self, resources: list[Any], **_: object) -> dict[Any, Future[Any]]:
        answer: Future[Any] = Future()
        values = {"retention.ms": "3600000", "cleanup.policy": "delete"}
        answer.set_result({name: SimpleNamespace(value=value) for name, value in values.items()})
        return {resources[0]: answer}


@pytest.mark.parametrize("joins", ["before the list of groups", "before the deletion"])
def test_a_clock_that_is_ahead_deletes_no_group_with_members(joins: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses are recorded with the clocks of instances. Whether a group has members, the broker decides."""
    clock, tp = FakeClock(1_000_000), TopicPartition("flights", 0)
    cluster = FakeCluster(clock)
    cluster.create_topic("flights", 1)
    admin = FakeAdmin(cluster)
    monkeypatch.setattr(group_cleanup, "AdminSession", Session)
    monkeypatch.setattr(group_cleanup, "KafkaGroupAdmin", lambda _session: admin)
    ahead = FakeClock(clock() + 365 * 86_400_000)
    retention = group_cleanup.GroupRetention(
        ClientConfig.from_options({"bootstrap.servers": "127.0.0.1:1"}), ahead, most=50
    )
    monkeypatch.setattr(topic_changes, "AdminClient", lambda _: Retention())
    cluster.commit("billing", {tp: 3}, OF_CURSORS)
    cluster.commit(members_group_of("billing"), {tp: 3}, MemberEntry("w", "w", 999_000, 1_000_000).encode())

    def join() -> None:
        admin.before_change = lambda: None
        group = FakeGroup(cluster, "billing")
        FakeMember(group, "w", topics=lambda: ["flights"], first_positions=lambda _: {}).join(0)
        group.settle()

    if joins == "before the list of groups":
        join()
    else:
        admin.before_change = join
    assert retention.sweep("flights") == []
    assert set(cluster.group_ids()) >= {"billing", members_group_of("billing")}
    assert cluster.committed("billing", [tp])[tp].next_offset == 3


def test_G15_without_the_right_to_delete_an_unused_group_is_kept(
    retention: group_cleanup.GroupRetention, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(topic_changes, "AdminClient", lambda _: Retention())
    rejected = NotAuthorized("Group 'billing' could not be deleted.", remedy="Grant Delete on the group.")
    monkeypatch.setattr(FakeAdmin, "delete_groups", lambda _admin, group_ids: dict.fromkeys(group_ids, rejected))
    monkeypatch.setattr(retention, "_clock", FakeClock(1_000_000 + 86_400_000))
    assert retention.sweep("flights", "billing") == []
    assert "Unused group 'billing' is not deleted" in caplog.text
    assert "Grant Delete on the group." in caplog.text
