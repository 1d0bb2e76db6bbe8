"""The topic of an instance on a real broker: the contract of the fake, and the checks of its settings."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing
from functools import partial

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streamgroups.errors import DataLoss, InvalidOption, StreamGroupsError, UnknownTopic
from streamgroups.instances.entries import Desired, Manager
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.instances.entry_writers import manager_id
from streamgroups_kafka.instances.instance_topic import KafkaInstanceLog
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.waits import wait_until
from unit_tests.instance_log_contract import STARTED, InstanceLogContract, read_until


@pytest.fixture
def log(bootstrap: str) -> KafkaInstanceLog:
    config = ClientConfig.from_options({"bootstrap.servers": bootstrap})
    return KafkaInstanceLog(config, f"board-{uuid.uuid4().hex[:8]}")


class TestKafkaInstanceLog(InstanceLogContract):
    @pytest.fixture
    def write_raw(self, log: KafkaInstanceLog, bootstrap: str) -> Callable[[bytes | None, bytes | None], None]:
        def write(key: bytes | None, value: bytes | None) -> None:
            producer = ordered_producer(bootstrap)
            # A compacted topic rejects a record without a key.
            producer.produce(log.topic, key=b"" if key is None else key, value=value)
            producer.flush()

        return write


def test_an_instance_without_a_topic_is_reported(log: KafkaInstanceLog) -> None:
    with pytest.raises(UnknownTopic, match=r"streamgroups instance run board-"):
        log.check()


@pytest.mark.parametrize(
    ("partitions", "settings", "expected"),
    [(2, {"cleanup.policy": "compact"}, "has 2 partitions"), (1, {}, "cleanup.policy=delete")],
)
def test_a_topic_with_other_settings_is_rejected(
    log: KafkaInstanceLog, admin: AdminClient, partitions: int, settings: dict[str, str], expected: str
) -> None:
    admin.create_topics([NewTopic(log.topic, partitions, 1, config=settings)])[log.topic].result()
    with pytest.raises(InvalidOption, match=expected):
        log.create()


def test_the_open_transaction_of_a_killed_manager_is_aborted(log: KafkaInstanceLog, bootstrap: str) -> None:
    log.create()
    killed = Producer({"bootstrap.servers": bootstrap, "transactional.id": manager_id(log.instance)})
    killed.init_transactions()
    killed.begin_transaction()
    killed.produce(log.topic, key=b"desired/late", value=b'{"v":1,"running":false,"request":9}', partition=0)
    killed.flush()
    with closing(log.manager()) as manager, closing(log.writer()) as writer, closing(log.reader()) as reader:
        writer.write([STARTED])
        manager.write([Manager(2, 1, 0, 0, 6_000, 1)])
        assert [type(it) for it in read_until(reader, 2)] == [Desired, Manager]
        assert reader.state.desired["late"] == STARTED


@pytest.mark.parametrize("entries", [1, 9])
@pytest.mark.parametrize("follows", [True, False])
def test_P2_a_recreated_topic_is_an_error_of_its_readers(
    log: KafkaInstanceLog, admin: AdminClient, entries: int, follows: bool
) -> None:
    """Also if its end is past the position of the reader."""
    log.create()
    with closing(log.reader()) as reader:
        with closing(log.writer()) as writer:
            writer.write([Desired("late", True, number) for number in range(1, 6)])
        assert len(reader.read_to_end(10)) == 5
        admin.delete_topics([log.topic])[log.topic].result()
        wait_until(lambda: log.topic not in admin.list_topics(timeout=10).topics, "it is deleted", timeout_s=30)
        wait_until(partial(_is_created, log), "it is created again", timeout_s=30)
        with closing(log.writer()) as writer:
            writer.write([Desired("other", True, number) for number in range(1, entries + 1)])

        def is_detected() -> bool:
            try:
                reader.poll(0.2) if follows else reader.read_to_end(10)
            except DataLoss:
                return True
            except StreamGroupsError:
                # The metadata of a client can still be those of the deleted topic.
                pass
            return False

        wait_until(is_detected, "the reader detects it", timeout_s=30)


def _is_created(log: KafkaInstanceLog) -> bool:
    try:
        return log.create()
    except StreamGroupsError:
        return False
