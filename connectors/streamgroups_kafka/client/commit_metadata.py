"""The text beside a committed offset, as confluent-kafka hands it over.

Used wherever committed offsets are read through it. It takes the text for one that ends with a NUL, and commits its own so; but
the text of others, kafka-python's and Java's, has none, and then what happens to lie behind it in memory is read too.
"""

from __future__ import annotations

import confluent_kafka


def metadata_of(committed: confluent_kafka.TopicPartition) -> str:
    """The metadata of a committed offset, perhaps with something behind it; nothing if that is no text.

    >>> metadata_of(confluent_kafka.TopicPartition("flights", 0, 5, "streamgroups:shared"))
    'streamgroups:shared'
    """
    try:
        return committed.metadata or ""
    except UnicodeDecodeError:
        return ""
