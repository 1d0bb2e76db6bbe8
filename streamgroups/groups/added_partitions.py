"""Partitions that are added to a topic while operators keep state by key.

Called by :mod:`streamgroups.query.join_group` when a member is assigned partitions without a committed offset. A producer with Kafka's
default partitioner writes the later records of many keys to other partitions then. The state of such a key would be in two
partitions, and its results would be split without an error. Source: SEMANTICS C4, S10; KIP-195.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum

from streamgroups.errors import PartitionsAdded
from streamgroups.partitions import TopicPartition
from streamgroups.printable import listed
from streamgroups.shell_quoting import command


class OnAddedPartitions(Enum):
    """What happens to a query with state if a topic gets more partitions: the option ``onAddedPartitions``."""

    FAIL = "fail"
    CONTINUE = "continue"


def added(missing: Collection[TopicPartition], committed: Collection[TopicPartition]) -> list[TopicPartition]:
    """The partitions that were added after the group has begun to read their topic.

    A group commits the starting positions of all partitions. New partitions have the numbers after all earlier ones.

    Args:
        missing: partitions without a committed offset.
        committed: the partitions of the same topics that have one.

    >>> old = [TopicPartition("flights", p) for p in (0, 1)]
    >>> new = TopicPartition("flights", 2)
    >>> added([new, TopicPartition("airports", 0)], old) == [new], added(old[:1], old[1:])
    (True, [])
    """
    last = {tp.topic: tp.partition for tp in sorted(committed)}
    return sorted(tp for tp in missing if tp.topic in last and tp.partition > last[tp.topic])


def not_added(missing: Collection[TopicPartition], committed: Collection[TopicPartition]) -> list[TopicPartition]:
    """The partitions without a committed offset that are before a partition of their topic that has one.

    The group has lost their offsets, or has never committed one: a partition that was added has no offset until a batch reads it.

    Args:
        missing: partitions without a committed offset.
        committed: the partitions of the same topics that have one.

    >>> first, second, third = (TopicPartition("flights", p) for p in range(3))
    >>> not_added([first, third], [second]) == [first]
    True
    """
    last = {tp.topic: tp.partition for tp in sorted(committed)}
    return sorted(tp for tp in missing if tp.partition < last.get(tp.topic, -1))


def require_none(found: Sequence[TopicPartition], group_id: str) -> None:
    """Rejects added partitions.

    Args:
        found: the result of :func:`added`.
        group_id: the group of the query.

    Raises:
        PartitionsAdded: with the partitions and the remedies.
    """
    if not found:
        return
    topic = found[0].topic
    raise PartitionsAdded(
        f"{listed(found)} {'has' if len(found) == 1 else 'have'} no committed offset, and the partitions before have one: "
        "partitions were added to the topic, or their offsets have expired or were deleted. "
        f"Group '{group_id}' keeps state by key. The later records of a key can be in another partition than its state, which would "
        "split its results.",
        remedy="Write the records to a topic with a fixed number of partitions (sg.repartition), and read that one with another "
        "group.id. If the producers choose the partition of each key themselves, and keep it, use onAddedPartitions=continue. If "
        f"an offset was deleted, commit it again: {command('groups undo', [group_id], '--execute')}, or "
        f"{command('groups reset', [group_id], '--topic TOPIC:PARTITION --to-offset OFFSET --execute')}.",
        group=group_id,
        topic=topic,
        partition=found[0].partition if len(found) == 1 else None,
    )
