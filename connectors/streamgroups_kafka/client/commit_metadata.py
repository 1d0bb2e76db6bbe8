"""The metadata of a committed offset, as confluent-kafka returns it.

Used by all modules that read committed offsets through confluent-kafka. confluent-kafka expects a NUL at the end of the
text, and commits its own texts with one. Texts of other clients, such as kafka-python and Java, have no NUL. Then
confluent-kafka also reads adjacent bytes of memory. Source: ``TopicPartition.metadata`` of confluent-kafka.
"""

from __future__ import annotations

import confluent_kafka


def metadata_of(committed: confluent_kafka.TopicPartition) -> str:
    """Returns the metadata of a committed offset, possibly with trailing bytes; empty if it is not text.

    >>> metadata_of(confluent_kafka.TopicPartition("flights", 0, 5, "streamgroups:shared"))
    'streamgroups:shared'
    """
    try:
        return committed.metadata or ""
    except UnicodeDecodeError:
        return ""
