"""Converts partitions and committed offsets between confluent-kafka and this library.

Used by every module that passes partitions to confluent-kafka. Source: ``OffsetFetch``, whose metadata can be any bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, Consumer

from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_kafka.client.responses import raise_first


def from_confluent(partition: confluent_kafka.TopicPartition) -> TopicPartition:
    """Converts a partition of confluent-kafka.

    >>> from_confluent(to_confluent(TopicPartition("flights", 3)))
    TopicPartition(topic='flights', partition=3)
    """
    return TopicPartition(partition.topic, partition.partition)


def to_confluent(
    tp: TopicPartition, offset: int = OFFSET_INVALID, metadata: str = "", leader_epoch: int | None = None
) -> confluent_kafka.TopicPartition:
    """Converts a partition for confluent-kafka, with an offset, its metadata and its leader epoch."""
    if leader_epoch is not None:
        return confluent_kafka.TopicPartition(tp.topic, tp.partition, offset, metadata, leader_epoch)
    if metadata:
        return confluent_kafka.TopicPartition(tp.topic, tp.partition, offset, metadata)
    return confluent_kafka.TopicPartition(tp.topic, tp.partition, offset)


def rows_of(offsets: Mapping[TopicPartition, Committed]) -> list[confluent_kafka.TopicPartition]:
    """Converts offsets for a commit of confluent-kafka, with their metadata."""
    return [to_confluent(tp, committed.next_offset, committed.metadata) for tp, committed in offsets.items()]


def committed_offsets(
    consumer: Consumer, partitions: Iterable[TopicPartition], timeout_s: float
) -> dict[TopicPartition, Committed]:
    """Reads the committed offsets of the group of a consumer. Partitions without one are left out.

    The admin API ends the process while a group has no coordinator, as on a new cluster (librdkafka#5040).

    Raises:
        PartRejected: if the response contains the error of a partition. Java raises the first one, too (SEMANTICS G17).
        KafkaException: if the request fails.
    """
    found: list[confluent_kafka.TopicPartition] = consumer.committed(
        [*map(to_confluent, partitions)], timeout=timeout_s
    )
    raise_first(found)
    return {from_confluent(p): Committed(p.offset, metadata_of(p)) for p in found if p.offset >= 0}


def metadata_of(committed: confluent_kafka.TopicPartition) -> str:
    """Returns the metadata of a committed offset, possibly with more text behind it.

    A consumer returns the bytes without their end, if the client that has committed them did not store a zero byte: librdkafka copies
    them by their length (``rd_kafka_topic_partition_list_update``), and confluent-kafka reads up to a zero byte. The bytes behind
    them in memory are often no text.

    >>> metadata_of(confluent_kafka.TopicPartition("flights", 0, 5, "streamgroups:shared"))
    'streamgroups:shared'
    """
    try:
        return committed.metadata or ""
    except UnicodeDecodeError as e:
        return e.object[: e.start].decode()
