"""The offsets that a request of an instance commits, and the offsets from which it reads.

``streamgroups_kafka.cursors.instance_session`` calls this module. A cursor contains the end of the messages that its instance
has received. The holdings contain the group's committed offsets. So one cursor always returns the same messages until
later offsets are committed, and a failed request can be repeated. Source: SEMANTICS G4, G7, G8, G12.

An *ownership epoch* is here a number that the instance counts. Each assignment and each reset of a partition has the next
one. A cursor of an earlier ownership epoch commits nothing, because the next owner can have committed later offsets, and
does not determine where to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from streamgroups.groups.membership import Owned
from streamgroups.partitions import TopicPartition

_UNKNOWN = Owned(0)


@dataclass(frozen=True, slots=True)
class Holding:
    """A partition that the instance owns.

    Args:
        ownership_epoch: the number of the assignment, among those of this instance.
        next_offset: the group's committed offset.
        releasing: whether the group is revoking the partition, so that it is not read any more.
        owned: the partition in the membership of the instance.
    """

    ownership_epoch: int
    next_offset: int
    releasing: bool = False
    owned: Owned = _UNKNOWN


@dataclass(frozen=True, slots=True, order=True)
class PendingRange:
    """The end of the messages of one partition that an instance has received, and their ownership epoch."""

    topic_partition: TopicPartition
    ownership_epoch: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """The offsets that a cursor commits.

    Args:
        next_offsets: the offsets to commit; never before the committed ones.
        gone: covered partitions that this instance can no longer commit.
    """

    next_offsets: Mapping[TopicPartition, int]
    gone: tuple[PendingRange, ...]


def plan_commit(pending: Iterable[PendingRange], holdings: Mapping[TopicPartition, Holding]) -> CommitPlan:
    """Returns the offsets that a cursor commits now.

    >>> p = TopicPartition("flights", 0)
    >>> plan_commit([PendingRange(p, 1, 100)], {p: Holding(1, 0)}).next_offsets
    {TopicPartition(topic='flights', partition=0): 100}
    >>> plan_commit([PendingRange(p, 1, 100)], {p: Holding(2, 0)}).gone
    (PendingRange(topic_partition=TopicPartition(topic='flights', partition=0), ownership_epoch=1, next_offset=100),)
    """
    next_offsets, gone = {}, []
    for pending_range in pending:
        holding = holdings.get(pending_range.topic_partition)
        if holding is None or holding.ownership_epoch != pending_range.ownership_epoch:
            gone.append(pending_range)
        elif pending_range.next_offset > holding.next_offset:
            next_offsets[pending_range.topic_partition] = pending_range.next_offset
    return CommitPlan(next_offsets, tuple(gone))


def read_from(
    pending: Iterable[PendingRange],
    holdings: Mapping[TopicPartition, Holding],
    returned: Iterable[PendingRange] = (),
) -> dict[TopicPartition, int]:
    """Returns where a cursor reads: after the covered messages, never before the committed offset (G12).

    Args:
        pending: the coverage of the cursor.
        holdings: the partitions that the instance owns now.
        returned: the end of the messages that were returned of each partition. Of a revoked partition, only messages
            before it are read again.
    """
    pending_range, ends = _still_held(pending, holdings), _still_held(returned, holdings)
    positions = {
        tp: max(holding.next_offset, pending_range[tp].next_offset if tp in pending_range else 0)
        for tp, holding in holdings.items()
    }
    return {
        tp: n for tp, n in positions.items() if not holdings[tp].releasing or (tp in ends and n < ends[tp].next_offset)
    }


def pending_ranges(
    pending: Iterable[PendingRange],
    holdings: Mapping[TopicPartition, Holding],
    reached: Mapping[TopicPartition, int],
) -> tuple[PendingRange, ...]:
    """Returns the coverage of the next cursor: old coverage and new messages, without committed and lost ones.

    Args:
        pending: the coverage of the cursor of the request.
        holdings: the partitions that the instance owns now.
        reached: the next offset of each partition that was read. Gaps count as read (SEMANTICS G13).
    """
    found = {tp: c for tp, c in _still_held(pending, holdings).items() if c.next_offset > holdings[tp].next_offset}
    for tp, next_offset in reached.items():
        if tp in holdings and next_offset > holdings[tp].next_offset:
            found[tp] = PendingRange(tp, holdings[tp].ownership_epoch, next_offset)
    return tuple(sorted(found.values()))


def in_flight(
    pending: Iterable[PendingRange], holdings: Mapping[TopicPartition, Holding]
) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the uncommitted ranges of returned messages. The member keeps these partitions as long as it can."""
    return {
        tp: (holdings[tp].next_offset, pending_range.next_offset)
        for tp, pending_range in _still_held(pending, holdings).items()
        if pending_range.next_offset > holdings[tp].next_offset
    }


def retained(
    returned: Iterable[PendingRange],
    ranges: Mapping[TopicPartition, tuple[int, int]],
    holdings: Mapping[TopicPartition, Holding],
) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the uncommitted ranges of all returned messages after a request. No range gets shorter: the user can still
    process the messages of an earlier request.

    Args:
        returned: the end of the messages that were returned of each partition before.
        ranges: the uncommitted ranges of the cursor that the request returns.
        holdings: the partitions that the instance owns now. No further messages are returned of revoked ones.

    >>> p = TopicPartition("flights", 0)
    >>> retained([PendingRange(p, 1, 100)], {p: (0, 10)}, {p: Holding(1, 0)})
    {TopicPartition(topic='flights', partition=0): (0, 100)}
    """
    found = in_flight(returned, holdings)
    for tp, (first, end) in ranges.items():
        if tp in holdings and not holdings[tp].releasing:
            found[tp] = first, max(end, found[tp][1] if tp in found else end)
    return found


def acknowledge(
    before: Iterable[PendingRange], after: Iterable[PendingRange], handled: Iterable[tuple[TopicPartition, int]]
) -> tuple[PendingRange, ...]:
    """Returns the coverage if only some messages of a request have been processed.

    Args:
        before: the coverage of the cursor of the request.
        after: the coverage of the cursor that the request returned.
        handled: partition and offset of the processed messages, in the order of their return.

    >>> p = TopicPartition("flights", 0)
    >>> acknowledge([], [PendingRange(p, 1, 100)], [(p, 13), (p, 14)])
    (PendingRange(topic_partition=TopicPartition(topic='flights', partition=0), ownership_epoch=1, next_offset=15),)
    """
    next_offsets = {(c.topic_partition, c.ownership_epoch): c.next_offset for c in before}
    last_offsets = dict(handled)
    found = []
    for pending_range in after:
        tp = pending_range.topic_partition
        until = last_offsets[tp] + 1 if tp in last_offsets else next_offsets.get((tp, pending_range.ownership_epoch))
        if until is not None:
            found.append(replace(pending_range, next_offset=min(until, pending_range.next_offset)))
    return tuple(found)


def _still_held(
    pending: Iterable[PendingRange], holdings: Mapping[TopicPartition, Holding]
) -> dict[TopicPartition, PendingRange]:
    return {
        c.topic_partition: c
        for c in pending
        if c.topic_partition in holdings and holdings[c.topic_partition].ownership_epoch == c.ownership_epoch
    }
