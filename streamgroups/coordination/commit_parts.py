"""Divides large commits of offsets. A broker stores one commit as one record batch of ``__consumer_offsets``.

Used by the metadata stores, by members, by the transactions of sinks and by the tools. A broker rejects a batch above
``message.max.bytes`` for good: with INVALID_COMMIT_OFFSET_SIZE, or with UNKNOWN_SERVER_ERROR in newer versions. The limit of
metadata (``offset.metadata.max.bytes``) is that of one partition. Source: Kafka's ``OffsetCommitKey`` and
``OffsetCommitValue``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed

#: The maximum size of one commit. It is about half of a broker's default limit (1,048,588 bytes), because brokers add fields in new
#: versions.
MAX_BYTES = 500_000
#: The size of a record without its texts: the header, the numbers of key and value, and the lengths. Kafka 4.1 needs 70.
_RECORD_BYTES = 100


def commit_parts(
    group_id: str, offsets: Mapping[TopicPartition, Committed]
) -> Iterator[dict[TopicPartition, Committed]]:
    """Divides a commit into commits that a broker stores, in the same order. Usually it is one.

    Args:
        group_id: the group. Each record contains its name.
        offsets: the offsets and their metadata.

    >>> flights = {TopicPartition("flights", p): Committed(0, "x" * 4_000) for p in range(300)}
    >>> [len(part) for part in commit_parts("billing", flights)]
    [121, 121, 58]
    >>> list(commit_parts("billing", {}))
    []
    """
    part: dict[TopicPartition, Committed] = {}
    n_bytes = 0
    for tp, committed in offsets.items():
        size = _RECORD_BYTES + sum(len(text.encode()) for text in (group_id, tp.topic, committed.metadata))
        if part and n_bytes + size > MAX_BYTES:
            yield part
            part, n_bytes = {}, 0
        part[tp] = committed
        n_bytes += size
    if part:
        yield part
