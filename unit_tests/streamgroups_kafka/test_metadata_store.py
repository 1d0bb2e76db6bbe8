"""G8, G9: metadata entries are read and written as committed offsets of groups without members; the consumers follow a script."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamgroups.errors import BrokerUnreachable, GroupRejected, LoginRejected, NotAuthorized
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_kafka.admin import metadata_store as module
from streamgroups_kafka.admin.metadata_store import KafkaMetadataStore
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_testkit.waits import wait_until
from unit_tests.scripted_consumer import Row, ScriptedConsumer

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ClientConfig.from_options({"bootstrap.servers": "broker:9092"})
P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


class Consumers:
    """One scripted consumer for each group."""

    def __init__(self) -> None:
        self.of: dict[str, ScriptedConsumer] = {}
        self.made: list[str] = []

    def __call__(self, settings: Mapping[str, Any]) -> ScriptedConsumer:
        group_id = settings["group.id"]
        self.made.append(group_id)
        return self.of.setdefault(group_id, ScriptedConsumer())(settings)


@pytest.fixture
def consumers(monkeypatch: pytest.MonkeyPatch) -> Consumers:
    consumers = Consumers()
    monkeypatch.setattr(module, "Consumer", consumers)
    return consumers


@pytest.fixture
def metadata_store(consumers: Consumers) -> Iterator[KafkaMetadataStore]:
    metadata_store = KafkaMetadataStore(CONFIG, retry_timeout_s=5.0)
    yield metadata_store
    metadata_store.close()
    # After a request that has not ended in time, the thread closes them without a wait in close().
    wait_until(lambda: all(consumer.closed for consumer in consumers.of.values()), "all consumers are closed")


def test_what_was_written_is_read_and_what_was_not_is_left_out(
    metadata_store: KafkaMetadataStore, consumers: Consumers
) -> None:
    metadata_store.write("airline.streamgroups", {P0: Committed(5, "an entry")})
    assert metadata_store.read("airline.streamgroups", [P0, P1]) == {P0: Committed(5, "an entry")}
    assert metadata_store.read("another", [P0]) == {}
    assert consumers.of["airline.streamgroups"].settings["isolation.level"] == "read_committed", (
        "a sink writes entries in transactions: only those that are committed count"
    )


def test_an_entry_may_be_nothing_but_an_offset(metadata_store: KafkaMetadataStore) -> None:
    metadata_store.write("airline", {P0: Committed(5)})
    assert metadata_store.read("airline", [P0]) == {P0: Committed(5)}


def test_requests_use_the_consumers_that_are_connected_already(
    metadata_store: KafkaMetadataStore, consumers: Consumers
) -> None:
    metadata_store.connect("airline", "another")
    assert metadata_store.read("another", [P0]) == {}
    assert metadata_store.read("airline", [P0]) == {}
    assert consumers.made == ["airline", "another"]


def test_an_empty_request_is_not_sent(metadata_store: KafkaMetadataStore, consumers: Consumers) -> None:
    assert metadata_store.read("airline", []) == {}
    metadata_store.write("airline", {})
    assert consumers.made == []


def test_a_temporary_error_is_retried(metadata_store: KafkaMetadataStore, consumers: Consumers) -> None:
    consumers.of["airline"] = consumer = ScriptedConsumer()
    consumer.rejections.extend([KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR])
    metadata_store.write("airline", {P0: Committed(5, "an entry")})
    assert consumer.names("refused", "commit") == ["refused", "refused", "commit"]


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION])
def test_a_group_with_members_takes_no_commit_and_the_error_names_the_reason(
    metadata_store: KafkaMetadataStore, consumers: Consumers, code: int
) -> None:
    consumers.of["airline"] = consumer = ScriptedConsumer()
    consumer.rejections.append(code)
    with pytest.raises(GroupRejected, match="Group 'airline' has live members"):
        metadata_store.write("airline", {P0: Committed(5)})
    assert consumer.commits == []


def test_one_rejected_partition_fails_the_commit(
    metadata_store: KafkaMetadataStore, consumers: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumers.of["airline"] = consumer = ScriptedConsumer()
    rows = [Row("flights", 0, 5), Row("flights", 1, 7, error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))]
    monkeypatch.setattr(consumer, "commit", lambda **_: rows)
    with pytest.raises(NotAuthorized, match="airline"):
        metadata_store.write("airline", {P0: Committed(5), P1: Committed(7)})


def test_a_consumer_that_may_not_find_its_group_names_the_reason(
    consumers: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka looks up the coordinator until the timeout, whatever the response is."""
    consumers.of["airline"] = consumer = ScriptedConsumer()
    consumer.rejections.extend([KafkaError._TIMED_OUT] * 2)
    rejections = iter([KafkaError.GROUP_AUTHORIZATION_FAILED, None])

    def describe(_: list[str], **__: object) -> dict[str, Any]:
        code = next(rejections)

        def result(_: float) -> None:
            if code is not None:
                raise KafkaException(KafkaError(code))

        return {"airline": SimpleNamespace(result=result)}

    monkeypatch.setattr(module, "AdminClient", lambda _: SimpleNamespace(describe_consumer_groups=describe))
    metadata_store = KafkaMetadataStore(CONFIG, retry_timeout_s=0.0)
    with pytest.raises(NotAuthorized):
        metadata_store.write("airline", {P0: Committed(5)})
    with pytest.raises(BrokerUnreachable):
        metadata_store.write("airline", {P0: Committed(5)})
    metadata_store.close()


def test_few_groups_stay_connected_those_that_were_used_last(
    metadata_store: KafkaMetadataStore, consumers: Consumers
) -> None:
    for i in range(16):
        metadata_store.read(f"group-{i}", [P0])
    metadata_store.read("group-0", [P0])
    metadata_store.read("one-more", [P0])
    assert [group_id for group_id, consumer in consumers.of.items() if consumer.closed] == ["group-1"]
    metadata_store.read("group-0", [P0])
    assert consumers.made.count("group-0") == 1


def test_a_commit_that_never_returns_is_an_error(
    monkeypatch: pytest.MonkeyPatch, metadata_store: KafkaMetadataStore
) -> None:
    released = threading.Event()
    monkeypatch.setattr(ScriptedConsumer, "commit", lambda *_, **__: released.wait(60) and [])
    monkeypatch.setattr(metadata_store, "_wait_s", 0.5)
    try:
        with pytest.raises(BrokerUnreachable, match="Committing to group 'g': no response within 0 s"):
            metadata_store.write("g", {P0: Committed(1)})
    finally:
        released.set()


def test_the_close_does_not_wait_for_a_request_that_has_not_ended_in_time(
    consumers: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread of the consumers closes them when the request has ended: no other thread may use them."""
    released, closed = threading.Event(), threading.Event()
    threads = list[threading.Thread]()
    consumers.of["g"] = consumer = ScriptedConsumer()

    def close() -> None:
        threads.append(threading.current_thread())
        closed.set()

    monkeypatch.setattr(consumer, "commit", lambda **_: released.wait(60) and [])
    monkeypatch.setattr(consumer, "close", close)
    metadata_store = KafkaMetadataStore(CONFIG, retry_timeout_s=5.0)
    monkeypatch.setattr(metadata_store, "_wait_s", 0.5)
    try:
        for n in (1, 2):
            # The second request has not started, and must not hide the first one.
            with pytest.raises(BrokerUnreachable):
                metadata_store.write("g", {P0: Committed(n)})
        # Longer than the request, so that a close that waits would find it ended.
        monkeypatch.setattr(module, "_TIMEOUT_S", 600)
        metadata_store.close()
        assert not closed.is_set()
    finally:
        released.set()
    assert closed.wait(10)
    assert [it.name for it in threads] == ["streamgroups-metadata"]


def test_a_request_that_has_not_started_in_time_is_not_sent_later(
    consumers: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, commits = threading.Event(), list[int]()
    consumers.of["g"] = consumer = ScriptedConsumer()

    def commit(*, offsets: list[Any], **_: object) -> list[Any]:
        commits.append(offsets[0].offset)
        released.wait(60)
        return []

    monkeypatch.setattr(consumer, "commit", commit)
    metadata_store = KafkaMetadataStore(CONFIG, retry_timeout_s=5.0)
    monkeypatch.setattr(metadata_store, "_wait_s", 0.5)
    try:
        for n in (1, 2):
            with pytest.raises(BrokerUnreachable):
                metadata_store.write("g", {P0: Committed(n)})
    finally:
        released.set()
    metadata_store.close()
    wait_until(lambda: consumer.closed, "the consumer is closed")
    assert commits == [1]


_ABANDONED = """
import sys, threading

sys.path[:0] = [".", "connectors"]
from streamgroups.errors import BrokerUnreachable
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_kafka.admin import metadata_store as module
from streamgroups_kafka.client.config import ClientConfig
from unit_tests.scripted_consumer import ScriptedConsumer

consumer = ScriptedConsumer()
consumer.commit = lambda **_: threading.Event().wait()
module.Consumer = consumer
store = module.KafkaMetadataStore(ClientConfig.from_options({"bootstrap.servers": "broker:9092"}))
store._wait_s = 0.05
try:
    store.write("g", {TopicPartition("t", 0): Committed(1)})
except BrokerUnreachable as e:
    print(e.retriable)
"""


def test_the_exit_of_the_process_does_not_wait_for_a_commit_that_never_returns() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _ABANDONED], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert (ended.stdout, ended.stderr) == ("True\n", "")


def test_a_login_that_all_brokers_reject_is_named(consumers: Consumers, monkeypatch: pytest.MonkeyPatch) -> None:
    consumers.of["airline"] = consumer = ScriptedConsumer()
    consumer.rejections.append(KafkaError._TIMED_OUT)
    metadata_store = KafkaMetadataStore(CONFIG, retry_timeout_s=0.0)
    rejection = LoginRejected("The cluster could not be read: authentication failed.")
    monkeypatch.setattr(metadata_store._login, "judged", lambda _: rejection)
    with pytest.raises(LoginRejected):
        metadata_store.write("airline", {P0: Committed(5)})
    metadata_store.close()
