"""Converts records of confluent-kafka to messages.

Used by ``streamgroups_kafka.cursors.reader`` and ``streamgroups_kafka.admin.stored_records``. Source: Kafka's record
format.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from streamgroups.message import Message
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.client.flawed_records import headers_of

#: confluent-kafka declares every field of a message as optional. A message has either an error or all fields.
KafkaMessage: TypeAlias = Any


def to_message(tp: TopicPartition, message: KafkaMessage) -> Message:
    """Converts a message without an error."""
    kind, timestamp_ms = message.timestamp()
    return Message(
        tp.topic,
        tp.partition,
        message.offset(),
        None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        message.key(),
        message.value(),
        tuple(headers_of(message) or ()),
    )
