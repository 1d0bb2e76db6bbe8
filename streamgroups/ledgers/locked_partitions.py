"""The partitions whose locks protect the positions of a ledger.

Called by the ledger of PostgreSQL. A ledger has several positions for each partition of Kafka: its offset, its ownership
epoch, its last reset, its state, and the begin of its letters. One lock protects all of them. So a member with many partitions
needs a quarter of the locks. Source: SEMANTICS X2, X3.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamgroups.partitions import TopicPartition

#: The topics of :mod:`streamgroups.ledgers.fences` and :mod:`streamgroups.ledgers.ledger_states`, before the name of the topic.
_PREFIXES = ("streamgroups.epoch.", "streamgroups.reset.", "streamgroups.reset-id.", "streamgroups.state.")
#: The id of the topic follows, and its name.
_LETTERS = "streamgroups.letters."


def locked_partition(position: TopicPartition) -> TopicPartition:
    """Returns the partition whose lock protects a position.

    The result depends on nothing else, so two transactions of one position always need the same lock.

    Args:
        position: a partition of Kafka, or the partition of another position of a ledger.

    >>> str(locked_partition(TopicPartition("streamgroups.epoch.flights", 3)))
    'flights-3'
    >>> str(locked_partition(TopicPartition("streamgroups.letters.2b9f.flights", 3)))
    'flights-3'
    >>> str(locked_partition(TopicPartition("flights", 3)))
    'flights-3'
    """
    topic = position.topic
    prefix = next((it for it in _PREFIXES if topic.startswith(it)), "")
    topic = topic.removeprefix(prefix)
    if topic.startswith(_LETTERS):
        topic = topic.removeprefix(_LETTERS).partition(".")[2]
    return TopicPartition(topic or position.topic, position.partition)


def locked_partitions(positions: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Returns the partitions whose locks protect these positions.

    >>> flights = TopicPartition("flights", 3)
    >>> locked_partitions([flights, TopicPartition("streamgroups.state.flights", 3)]) == {flights}
    True
    """
    return {locked_partition(it) for it in positions}
