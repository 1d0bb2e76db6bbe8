"""The requests of a query about groups, without a broker."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, ConsumerGroupState, ConsumerGroupType, KafkaError, KafkaException

from streamgroups import login_outage
from streamgroups.errors import BrokerUnreachable, LoginRejected
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.admin import cluster, replaced_client, unsupported_requests
from streamgroups_kafka.client.config import ClientConfig
from unit_tests.scripted_consumer import ScriptedConsumer


class StuckAdmin:
    """Requests of the first client fail, and those of a later one succeed."""

    created, code = 0, 0

    def __init__(self, _: dict[str, object]) -> None:
        StuckAdmin.created += 1
        self._number = StuckAdmin.created

    def describe_consumer_groups(self, group_ids: list[str], **_: object) -> dict[str, Future[Any]]:
        future = Future[Any]()
        if self._number == 1:
            future.set_exception(KafkaException(KafkaError(StuckAdmin.code)))
        else:
            member = SimpleNamespace(
                client_id="ann", host="h", member_id="m", group_instance_id=None,
                assignment=SimpleNamespace(topic_partitions=[]),
            )  # fmt: skip
            state = ConsumerGroupState.STABLE
            type_ = ConsumerGroupType.CONSUMER
            future.set_result(SimpleNamespace(members=[member], state=state, partition_assignor="range", type=type_))
        return {group_ids[0]: future}

    def list_offsets(self, specs: Mapping[Any, Any], **_: object) -> dict[Any, Future[Any]]:
        """The leader in the metadata of the first client disconnects."""
        futures = {tp: Future[Any]() for tp in specs}
        for future in futures.values():
            future.set_result(SimpleNamespace(offset=OFFSET_INVALID if self._number == 1 else 7, leader_epoch=None))
        return futures


def new_cluster(monkeypatch: pytest.MonkeyPatch) -> cluster.KafkaCluster:
    monkeypatch.setattr(replaced_client, "AdminClient", StuckAdmin)
    monkeypatch.setattr(StuckAdmin, "created", 0)
    config = ClientConfig.from_options({"bootstrap.servers": "127.0.0.1:1"})
    return cluster.KafkaCluster(config, attempts=2, retry_interval_ms=1, request_subscriptions=False)


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError.NOT_COORDINATOR])
def test_a_request_is_repeated_with_a_new_client(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StuckAdmin, "code", code)
    assert [member.client_id for member in new_cluster(monkeypatch).describe("billing").members] == ["ann"]
    assert StuckAdmin.created == 2


def test_the_next_leader_is_found_after_one_that_does_not_respond(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = TopicPartition("flights", 0)
    assert new_cluster(monkeypatch).end_offsets([partition]) == {partition: 7}
    assert StuckAdmin.created == 2


def test_a_client_that_was_replaced_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client of librdkafka has several threads, and a query repeats failed requests for a minute."""
    tested = new_cluster(monkeypatch)
    first = weakref.ref(tested._clients.current)
    gc.disable()
    try:
        tested.end_offsets([TopicPartition("flights", 0)])
        assert first() is None
    finally:
        gc.enable()


@pytest.fixture
def consumers(monkeypatch: pytest.MonkeyPatch) -> list[ScriptedConsumer]:
    """The consumers that were created."""
    created: list[ScriptedConsumer] = []

    def consumer(settings: Mapping[str, Any]) -> ScriptedConsumer:
        created.append(ScriptedConsumer()(settings))
        return created[-1]

    monkeypatch.setattr(cluster, "Consumer", consumer)
    return created


@pytest.fixture
def connected() -> cluster.KafkaCluster:
    """A cluster with a consumer for the first request."""
    tested = cluster.KafkaCluster(ClientConfig.from_options({"bootstrap.servers": "127.0.0.1:1"}))
    tested.connect("billing")
    return tested


def test_the_first_request_uses_the_consumer_that_is_connected_already(
    consumers: list[ScriptedConsumer], connected: cluster.KafkaCluster
) -> None:
    assert [it.settings["group.id"] for it in consumers] == ["billing"]
    for requests in (1, 2):
        assert connected.committed("billing", [TopicPartition("flights", 0)]) == {}
        assert [it.closed for it in consumers] == [True] * requests


def test_a_call_without_partitions_closes_the_connected_consumer(
    consumers: list[ScriptedConsumer], connected: cluster.KafkaCluster
) -> None:
    assert connected.committed("billing", []) == {}
    assert [it.closed for it in consumers] == [True]


@pytest.mark.parametrize("are_all", [True, False])
def test_S7_a_rejected_login_does_not_end_the_detection_of_truncations(
    monkeypatch: pytest.MonkeyPatch, are_all: bool
) -> None:
    """A rejection by one broker, or for a moment, is retried."""
    tested, partition = new_cluster(monkeypatch), TopicPartition("flights", 0)
    rejection = LoginRejected("The ends of leader epochs: authentication failed.")

    def rejected(*_: object) -> dict[TopicPartition, int]:
        raise rejection

    monkeypatch.setattr(unsupported_requests, "epoch_ends", rejected)
    monkeypatch.setattr(tested._login, "rejection", lambda: rejection if are_all else None)
    monkeypatch.setattr(ClientConfig, "has_login", True)
    monkeypatch.setattr(login_outage, "PERMANENT_AFTER_MS", 0)
    monkeypatch.setattr(tested, "_retrying", lambda request, *args, **more: request(*args, **more))
    with pytest.raises(LoginRejected if are_all else BrokerUnreachable):
        tested.epoch_ends({partition: 3}, {partition: 4})
