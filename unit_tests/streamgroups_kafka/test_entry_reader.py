"""The end of an instance's topic, while its broker fails or is no longer the leader."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from streamgroups.errors import BrokerUnreachable, LoginRejected
from streamgroups_kafka.admin import replaced_client
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.instances import entry_reader
from unit_tests.scripted_consumer import ScriptedConsumer


class ScriptedAdmin:
    """An admin client whose answers to ListOffsets are scripted: offsets, or the codes of errors."""

    def __init__(self, *answers: int | KafkaError) -> None:
        self._answers, self.metadata_requests = list(answers), 0

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


def reader(admin: ScriptedAdmin, monkeypatch: pytest.MonkeyPatch) -> entry_reader.KafkaEntryReader:
    """A reader with this client."""
    monkeypatch.setattr(replaced_client, "AdminClient", lambda _: admin)
    monkeypatch.setattr(entry_reader, "Consumer", ScriptedConsumer())
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
