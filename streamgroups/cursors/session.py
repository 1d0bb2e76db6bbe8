"""What an instance's request commits, and where it reads on.

Called by ``streamgroups_kafka.cursors.session``. A cursor says up to where its instance was given messages; what the group
knows is in the holdings. So one cursor always leads to the same messages, as long as nothing beyond them was committed: a
request that failed half-way can be made again. Source: SEMANTICS G4, G7, G8, G12.

A *tenure* is the time from an assignment of a partition to its loss. It ends, too, when somebody moves the group. A cursor
of an earlier tenure neither commits (others may be further on by now) nor decides where to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from streamgroups.partitions import TopicPartition


@dataclass(frozen=True, slots=True)
class Holding:
    """A partition that the instance owns.

    Args:
        tenure: tells this tenure from all others of this instance.
        next_offset: the group's committed offset.
        releasing: whether the group has asked for the partition: nothing more is read from it.
    """

    ownership_epoch: int
    next_offset: int
    releasing: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Covered:
    """Up to where an instance was given the messages of one partition, and in which tenure."""

    topic_partition: TopicPartition
    ownership_epoch: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """What a cursor commits.

    Args:
        next_offsets: to be committed; never behind what is.
        gone: covered, and no longer this instance's to commit.
    """

    next_offsets: Mapping[TopicPartition, int]
    gone: tuple[Covered, ...]


def plan_commit(covers: Iterable[Covered], holdings: Mapping[TopicPartition, Holding]) -> CommitPlan:
    """What committing a cursor means now.

    >>> p = TopicPartition("flights", 0)
    >>> plan_commit([Covered(p, 1, 100)], {p: Holding(1, 0)}).next_offsets
    {TopicPartition(topic='flights', partition=0): 100}
    >>> plan_commit([Covered(p, 1, 100)], {p: Holding(2, 0)}).gone
    (Covered(topic_partition=TopicPartition(topic='flights', partition=0), ownership_epoch=1, next_offset=100),)
    """
    next_offsets, gone = {}, []
    for covered in covers:
        holding = holdings.get(covered.topic_partition)
        if holding is None or holding.ownership_epoch != covered.ownership_epoch:
            gone.append(covered)
        elif covered.next_offset > holding.next_offset:
            next_offsets[covered.topic_partition] = covered.next_offset
    return CommitPlan(next_offsets, tuple(gone))


def read_from(covers: Iterable[Covered], holdings: Mapping[TopicPartition, Holding]) -> dict[TopicPartition, int]:
    """Where the request of a cursor reads: after what the cursor covers, never before what is committed (G12)."""
    covered = _still_held(covers, holdings)
    return {
        tp: max(holding.next_offset, covered[tp].next_offset if tp in covered else 0)
        for tp, holding in holdings.items()
        if not holding.releasing
    }


def cover(
    covers: Iterable[Covered],
    holdings: Mapping[TopicPartition, Holding],
    reached: Mapping[TopicPartition, int],
) -> tuple[Covered, ...]:
    """What the next cursor covers: what this one does and what was read for it, less what is committed or gone.

    Args:
        covers: of the cursor that was presented.
        holdings: as they are now.
        reached: the next offset of each partition that was read; gaps count as read (SEMANTICS G13).
    """
    found = {tp: c for tp, c in _still_held(covers, holdings).items() if c.next_offset > holdings[tp].next_offset}
    for tp, next_offset in reached.items():
        if tp in holdings and next_offset > holdings[tp].next_offset:
            found[tp] = Covered(tp, holdings[tp].ownership_epoch, next_offset)
    return tuple(sorted(found.values()))


def in_flight(
    covers: Iterable[Covered], holdings: Mapping[TopicPartition, Holding]
) -> dict[TopicPartition, tuple[int, int]]:
    """The ranges that were given out and are not committed, which the member must hold on to while it can."""
    return {
        tp: (holdings[tp].next_offset, covered.next_offset)
        for tp, covered in _still_held(covers, holdings).items()
        if covered.next_offset > holdings[tp].next_offset
    }


def trim(
    before: Iterable[Covered], after: Iterable[Covered], handled: Iterable[tuple[TopicPartition, int]]
) -> tuple[Covered, ...]:
    """What is covered when only some of a request's messages have been handled.

    Args:
        before: what the cursor covered that the request was made with.
        after: what the cursor covers that the request returned.
        handled: partition and offset of the messages that have been handled, in the order they came.

    >>> p = TopicPartition("flights", 0)
    >>> trim([], [Covered(p, 1, 100)], [(p, 13), (p, 14)])
    (Covered(topic_partition=TopicPartition(topic='flights', partition=0), ownership_epoch=1, next_offset=15),)
    """
    next_offsets = {(c.topic_partition, c.ownership_epoch): c.next_offset for c in before}
    last_offsets = dict(handled)
    found = []
    for covered in after:
        tp = covered.topic_partition
        until = last_offsets[tp] + 1 if tp in last_offsets else next_offsets.get((tp, covered.ownership_epoch))
        if until is not None:
            found.append(replace(covered, next_offset=min(until, covered.next_offset)))
    return tuple(found)


def _still_held(covers: Iterable[Covered], holdings: Mapping[TopicPartition, Holding]) -> dict[TopicPartition, Covered]:
    return {
        c.topic_partition: c
        for c in covers
        if c.topic_partition in holdings and holdings[c.topic_partition].ownership_epoch == c.ownership_epoch
    }
