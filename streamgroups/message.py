"""The message that users read with a cursor.

Created by ``streamgroups_kafka.cursors.reader`` and, in memory, by :mod:`streamgroups.fakes`. Source: Kafka's record
format.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamgroups.partitions import TopicPartition

#: The limit of librdkafka. It delivers a record with more headers without headers.
MAX_HEADERS = 100_000


@dataclass(frozen=True, slots=True)
class Message:
    """One record of a stream.

    Args:
        topic: the stream.
        partition: the number of the partition.
        offset: the offset in the partition. Offsets increase, not always by one (SEMANTICS G13).
        timestamp_ms: milliseconds since the epoch; ``None`` in records older than Kafka 0.10.
        key: the key; ``None`` if the record has no key.
        value: the value; ``None`` in tombstones.
        headers: names and values, in order. A name may occur more than once.

    >>> Message("flights", 3, 42, 1357016400000, None, b"UA1545").topic_partition
    TopicPartition(topic='flights', partition=3)
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition as one value."""
        return TopicPartition(self.topic, self.partition)
