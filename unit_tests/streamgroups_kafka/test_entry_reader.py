"""The topic of an instance: its broker fails or is no longer the leader, and the topic is recreated or truncated."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from streamgroups.errors import BrokerUnreachable, DataLoss, LoginRejected
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.admin import replaced_client
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.instances import entry_reader
from unit_tests.scripted_consumer import ScriptedConsumer, end_of, failed_fetch

BOARD = TopicPartition("board", 0)


class ScriptedAdmin:
    """An admin client whose answers to ListOffsets are scripted: offsets, or the codes of errors.

    The topic id can be changed, and its request can be left without a response.
    """

    def __init__(self, *answers: int | KafkaError, topic_id: str = "id1") -> None:
        self._answers, self.metadata_requests = list(answers), 0
        self.topic_id, self.responds, self.describe_requests = topic_id, True, 0

    def describe_topics(self, _: Any, request_timeout: float) -> dict[str, Future[Any]]:
        assert request_timeout
        self.describe_requests += 1
        future = Future[Any]()
        if self.responds:
            future.set_result(SimpleNamespace(topic_id=self.topic_id))
        return {"board": future}

    def describe_cluster(self, request_timeout: float) -> Future[Any]:
        assert request_timeout
        future = Future[Any]()
        future.set_result(SimpleNamespace(cluster_id="c"))
        return future

    def list_offsets(self, specs: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        (partition,) = specs
        future, answer = Future[Any](), self._answers.pop(0)
        if isinstance(answer, KafkaError):
            future.set_exception(KafkaException(answer))
        else:
            future.set_result(SimpleNamespace(offset=answer))
        return {partition: future}

    def list_topics(self, timeout: float) -> SimpleNamespace:
        self.metadata_requests += 1
        return SimpleNamespace(topics={"board": SimpleNamespace(error=None, partitions={0: object()})})


def reader(
    admin: ScriptedAdmin, monkeypatch: pytest.MonkeyPatch, consumer: ScriptedConsumer | None = None
) -> entry_reader.KafkaEntryReader:
    """A reader with these clients."""
    monkeypatch.setattr(replaced_client, "AdminClient", lambda _: admin)
    monkeypatch.setattr(entry_reader, "Consumer", consumer or ScriptedConsumer())
    return entry_reader.KafkaEntryReader(ClientConfig.from_options({"bootstrap.servers": "127.0.0.1:1"}), "board")


def test_a_broker_that_disconnects_is_not_the_end_of_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokerUnreachable, match="disconnected"):
        reader(ScriptedAdmin(OFFSET_INVALID), monkeypatch).read_to_end(1)


def test_the_next_leader_is_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = ScriptedAdmin(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION), 0)
    assert reader(admin, monkeypatch).read_to_end(1) == []
    assert admin.metadata_requests == 1


def test_an_error_that_no_leader_changes_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = ScriptedAdmin(KafkaError(KafkaError._TIMED_OUT))
    with pytest.raises(BrokerUnreachable, match="'board' could not be read"):
        reader(admin, monkeypatch).read_to_end(1)


def test_a_leader_that_does_not_respond_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    tested = reader(ScriptedAdmin(OFFSET_INVALID), monkeypatch)
    monkeypatch.setattr(replaced_client, "AdminClient", lambda _: ScriptedAdmin(0))
    with pytest.raises(BrokerUnreachable):
        tested.read_to_end(1)
    assert tested.read_to_end(1) == []


def test_a_login_that_all_brokers_reject_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    tested = reader(ScriptedAdmin(KafkaError(KafkaError._TIMED_OUT)), monkeypatch)
    rejection = LoginRejected("The cluster could not be read: authentication failed.")
    monkeypatch.setattr(tested._login, "judged", lambda _: rejection)
    with pytest.raises(LoginRejected):
        tested.read_to_end(1)


@pytest.mark.parametrize("end_offset", [1, 9])
def test_P2_a_recreated_topic_is_an_error_also_if_it_has_more_records(
    monkeypatch: pytest.MonkeyPatch, end_offset: int
) -> None:
    """Its entries are those of another instance, and the state is that of the earlier topic."""
    admin = ScriptedAdmin(5, end_offset)
    tested = reader(admin, monkeypatch, ScriptedConsumer().then(lambda: end_of(BOARD, 5)))
    assert tested.read_to_end(1) == []
    admin.topic_id = "id2"
    with pytest.raises(
        DataLoss,
        match=r"not in topic 'board' any more: .*\(topic id id1, .*; now topic id id2.* Start the process again",
    ):
        tested.read_to_end(1)
    for read in (tested.read_to_end, tested.poll):
        with pytest.raises(DataLoss, match="was deleted and recreated"):
            read(1)


def test_P2_a_recreated_topic_is_detected_without_a_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = ScriptedAdmin(0)
    tested = reader(admin, monkeypatch)
    tested.read_to_end(1)
    admin.topic_id = "id2"
    tested.poll(0)
    with pytest.raises(DataLoss):
        tested.poll(0)


def test_a_poll_does_not_wait_for_the_topic_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that waits misses the end of its lease."""
    admin = ScriptedAdmin()
    admin.responds = False
    tested = reader(admin, monkeypatch)
    for _ in range(3):
        assert tested.poll(0) == []
    assert admin.describe_requests == 1


def test_the_topic_id_is_requested_once_per_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = ScriptedAdmin()
    tested = reader(admin, monkeypatch)
    for _ in range(5):
        tested.poll(0)
    assert admin.describe_requests == 1
    tested._next_request_s = 0
    tested.poll(0)
    assert admin.describe_requests == 2


@pytest.mark.parametrize("topic_id", ["A" * 22, "id1"])
def test_a_broker_without_topic_ids_has_no_other_topic(monkeypatch: pytest.MonkeyPatch, topic_id: str) -> None:
    admin = ScriptedAdmin(0, 0, 0, topic_id=topic_id)
    tested = reader(admin, monkeypatch)
    for id_ in (topic_id, "A" * 22, topic_id):
        admin.topic_id = id_
        assert tested.read_to_end(1) == []


@pytest.mark.parametrize("code", [KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE])
def test_P2_an_offset_past_the_end_is_a_truncated_topic(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    consumer = ScriptedConsumer().then(lambda: end_of(BOARD, 5), lambda: failed_fetch(BOARD, code))
    tested = reader(ScriptedAdmin(5), monkeypatch, consumer)
    tested.read_to_end(1)
    assert consumer.settings["auto.offset.reset"] == "error"
    for _ in range(2):
        with pytest.raises(DataLoss, match="its log has no offset 5, so it was recreated or truncated"):
            tested.poll(0)
