"""The limit of a broker for one commit of offsets, for scripted brokers: all its records are one record batch.

Source: Kafka's ``OffsetCommitKey``, ``OffsetCommitValue`` (version 4) and its record format (version 2).
"""

from __future__ import annotations

from collections.abc import Iterable

from streamgroups.partitions import TopicPartition

#: The default of ``message.max.bytes``.
MAX_COMMIT_BYTES = 1_048_588
#: The header of a record batch.
_BATCH_BYTES = 61
#: Key: version, partition, two lengths. Value: version, offset, leader epoch, length, time, topic id. Record: its numbers.
_ROW_BYTES = (2 + 4 + 2 * 2) + (2 + 8 + 4 + 2 + 8 + 16) + 12


def is_too_large(group_id: str, rows: Iterable[tuple[TopicPartition, str]]) -> bool:
    """Whether a broker rejects a commit of these partitions with this metadata.

    >>> is_too_large("billing", [(TopicPartition("flights", p), "x" * 4_000) for p in range(300)])
    True
    """
    sizes = (_ROW_BYTES + len(f"{group_id}{tp.topic}{metadata}".encode()) for tp, metadata in rows)
    return _BATCH_BYTES + sum(sizes) > MAX_COMMIT_BYTES
