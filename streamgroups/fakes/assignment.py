"""Balanced, sticky assignment of partitions to members.

The in-memory group of :mod:`streamgroups.fakes` uses it, and so do checks of real groups. On a real cluster Kafka
assigns partitions (cooperative-sticky on the client, the uniform assignor on the broker). Source: SEMANTICS G10, G11;
KIP-54, KIP-848.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from streamgroups.partitions import TopicPartition

#: Faster than the comparison of partitions.
_IN_ORDER = attrgetter("topic", "partition")


def assign(
    partitions: Iterable[TopicPartition],
    members: Sequence[str],
    previous: Mapping[str, frozenset[TopicPartition]],
) -> dict[str, frozenset[TopicPartition]]:
    """Assigns every partition to one member.

    Sizes differ by at most one, and the minimum number of partitions changes its owner.

    Args:
        partitions: all partitions of the subscription.
        members: the members' names; their order only breaks ties.
        previous: the previous partitions of each member; it can contain former members.

    Returns:
        The partitions of each member; empty if there are more members than partitions (SEMANTICS G10).

    >>> eight = [TopicPartition("t", p) for p in range(8)]
    >>> [len(v) for v in assign(eight, ["a", "b", "c", "d"], {}).values()]
    [2, 2, 2, 2]
    >>> ten = [TopicPartition("t", p) for p in range(10)]
    >>> sorted(len(v) for v in assign(ten, ["a", "b", "c", "d"], {}).values())
    [2, 2, 3, 3]
    """
    remaining = set(partitions)
    if not members:
        return {}
    floor, larger = divmod(len(remaining), len(members))
    kept: dict[str, list[TopicPartition]] = {}
    # A member that already owns enough for the larger share keeps it. Any other member would have to receive a
    # partition.
    for member in members:
        had = sorted(previous.get(member, frozenset()) & remaining, key=_IN_ORDER)
        share = floor + 1 if larger > 0 and len(had) > floor else floor
        larger -= share > floor
        kept[member] = had[:share]
        remaining -= set(kept[member])
    queue = sorted(remaining, key=_IN_ORDER)
    for member in members:
        missing = floor - len(kept[member])
        kept[member] += queue[: max(missing, 0)]
        del queue[: max(missing, 0)]
    for member in members:
        if queue and len(kept[member]) == floor:
            kept[member].append(queue.pop())
    return {member: frozenset(kept[member]) for member in members}
