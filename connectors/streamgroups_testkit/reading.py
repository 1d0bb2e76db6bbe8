"""Offsets and members of groups, and committed records, by clients that are independent of this library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from streamgroups_kafka.client.described_group import request_descriptions, response
from streamgroups_kafka.client.partition_conversion import metadata_of
from streamgroups_kafka.client.responses import raise_first
from streamgroups_testkit.broker import Broker
from streamgroups_testkit.waits import wait_until


@dataclass(frozen=True)
class ConsumedRecord:
    """A record that an independent reader of committed records has read."""

    partition: int
    key: bytes | None
    value: bytes


def end_offsets(bootstrap: str, topic: str, partitions: int) -> dict[int, int]:
    """The end offset of every partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in range(partitions)}
    finally:
        consumer.close()


def read_committed(bootstrap: str, topic: str) -> list[ConsumedRecord]:
    """All committed records of a topic, in the order of their partitions."""
    found = []
    for message in committed_messages(bootstrap, topic):
        partition, value, key = message.partition(), message.value(), message.key()
        assert partition is not None
        assert value is not None
        found.append(ConsumedRecord(partition, key.encode() if isinstance(key, str) else key, value))
    return found


def committed_messages(bootstrap: str, topic: str) -> Iterator[Message]:
    """All committed records of a topic, with all their parts. Each partition is read in order."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        partitions = set(_partitions(reader, topic))
        reader.assign([TopicPartition(topic, p, 0) for p in partitions])
        while partitions:
            message = reader.poll(30)
            assert message is not None, f"no end of {partitions} of {topic}"
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                partitions.discard(message.partition())
            elif not error.retriable():
                raise KafkaException(error)
    finally:
        reader.close()


def wait_until_no_transaction_is_open(bootstrap: str, topic: str, timeout_s: float = 60) -> None:
    """Waits until readers of committed records see the whole topic.

    An open transaction of a killed query hides later records until it times out, because no process uses its
    transactional id.

    Raises:
        AssertionError: after the timeout.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partitions = _partitions(admin, topic)
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    requested = {TopicPartition(topic, p): latest for p in partitions}

    def ends(level: IsolationLevel) -> dict[int, int]:
        found = admin.list_offsets(requested, isolation_level=level)
        return {tp.partition: it.result(30).offset for tp, it in found.items()}

    wait_until(
        lambda: ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED),
        f"no transaction is open in {topic}",
        timeout_s,
    )


def committed_offsets(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """The committed offsets of a group for a topic."""
    return {tp.partition: tp.offset for tp in _committed(bootstrap, group, topic)}


def committed_metadata(bootstrap: str, group: str, topic: str) -> dict[int, str]:
    """The metadata of the committed offsets of a group for a topic."""
    return {tp.partition: metadata_of(tp) for tp in _committed(bootstrap, group, topic)}


def _committed(bootstrap: str, group: str, topic: str) -> list[TopicPartition]:
    """The committed offsets by partition.

    Uses a consumer, because the admin API ends the process while a group has no coordinator (librdkafka#5040).
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"})
    try:
        found = consumer.committed([TopicPartition(topic, p) for p in _partitions(consumer, topic)], timeout=30)
        raise_first(found)
        return [tp for tp in found if tp.offset >= 0]
    except KafkaException as e:
        # A new cluster is still creating the topic of committed offsets, so no offset is committed.
        if e.args[0].code() not in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS):
            raise
        return []
    finally:
        consumer.close()


def _partitions(client: Consumer | AdminClient, topic: str) -> list[int]:
    """The partitions of a topic.

    Raises:
        KafkaException: the error of the topic. It has no partitions then.
    """
    found = client.list_topics(topic, timeout=30).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return list(found.partitions)


def describe_group(kafka: Broker, group: str) -> list[dict[str, str]]:
    """The description of a group's partitions by Kafka's own tool: one row each, by the names of the columns."""
    result = kafka.run_tool("consumer-groups", "--describe", "--group", group).stdout.splitlines()
    table = [line.split() for line in result if line.strip()]
    header = next((i for i, words in enumerate(table) if words[0] == "GROUP"), len(table) - 1)
    return [dict(zip(table[header], words, strict=False)) for words in table[header + 1 :]]


def wait_until_group_is_empty(admin: AdminClient, group: str) -> None:
    """Waits until the last member has left. Spark stops the stream runner of a query shortly after the query."""

    def empty() -> bool:
        return not response(request_descriptions(admin, [group])[group], 30).members

    wait_until(empty, f"all members of {group} have left")
