"""Where a reset moves a group, partition by partition: the plan, before anything is changed.

Called by the command line (``groups reset``, ``groups import``) and by whoever moves a live group, with what the broker says. The
scenarios and their edge cases are those of ``kafka-consumer-groups.sh --reset-offsets`` (KIP-122): an offset outside the partition
is moved to its nearer end, a time without a record so late means the end, and a partition without a committed offset has no
"current" one: it goes to the end, and cannot be shifted. Source: SEMANTICS G8, O1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from streamgroups.errors import BrokerUnreachable, GroupRejected, InvalidOption, UnknownTopic
from streamgroups.groups.lag import PartitionError
from streamgroups.partitions import Bounds, TopicPartition
from streamgroups.positions import AtOffset, AtTime, Latest, TrimHorizon

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """So many offsets further (or back, if negative) than the committed one."""

    offsets: int


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """The committed offset, committed once more; the end where there is none."""


@dataclass(frozen=True, slots=True)
class ToListed:
    """An offset of its own for each partition: what a file of offsets lists."""

    next_offsets: Mapping[TopicPartition, int]


Scenario: TypeAlias = TrimHorizon | Latest | AtTime | AtOffset | ShiftBy | ToCurrent | ToListed


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a partition when a reset is planned.

    Args:
        committed_offset: the group's next offset; ``None`` if it never committed one.
        bounds: where the partition begins and ends.
        offset_at_time: the first offset at or after the time of :class:`~streamgroups.positions.AtTime`; ``None`` if there is
            no such record, or no time was asked for.
    """

    committed_offset: int | None
    bounds: Bounds
    offset_at_time: int | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """What happens to one partition.

    Args:
        topic_partition: where.
        from_offset: the committed offset; ``None`` if there is none.
        to_offset: the new one.
        asked_offset: what was asked for, if that lies outside the partition.
        bounds: where the partition begins and ends.
    """

    topic_partition: TopicPartition
    from_offset: int | None
    to_offset: int
    asked_offset: int | None
    bounds: Bounds

    @property
    def change(self) -> int | None:
        """By how many offsets the group moves: forward is positive, backward negative."""
        return None if self.from_offset is None else self.to_offset - self.from_offset


def plan(scenario: Scenario, facts: Mapping[TopicPartition, Facts], *, group_id: str) -> list[Move]:
    """Where each partition goes.

    Args:
        scenario: what was asked for.
        facts: of every partition that is to move.
        group_id: the group, for errors.

    Returns:
        One move for each partition, in order.

    Raises:
        GroupRejected: if a partition is to be shifted that has no committed offset.

    >>> tp = TopicPartition("flights", 0)
    >>> (move,) = plan(ShiftBy(-10), {tp: Facts(4, Bounds(2, 9))}, group_id="g")
    >>> move.from_offset, move.to_offset, move.asked_offset, move.change
    (4, 2, -6, -2)
    """
    moves = []
    unshiftable = []
    for tp, fact in sorted(facts.items()):
        asked = _target(scenario, tp, fact)
        if asked is None:
            unshiftable.append(tp)
            continue
        # A committed offset is left as it is, even out of bounds: Kafka's tool does so.
        within = asked if isinstance(scenario, ToCurrent) else _clamped(asked, fact.bounds)
        moves.append(Move(tp, fact.committed_offset, within, asked if asked != within else None, fact.bounds))
    if unshiftable:
        raise GroupRejected(
            f"The offsets of group '{group_id}' cannot be shifted: it has no committed offset for {names(unshiftable)}; nothing was changed.",
            remedy="Name only partitions with a committed offset, or use --to-earliest or --to-latest.",
        )
    return moves


def _target(scenario: Scenario, tp: TopicPartition, fact: Facts) -> int | None:
    match scenario:
        case TrimHorizon():
            return fact.bounds.beginning_offset
        case Latest():
            return fact.bounds.end_offset
        case AtOffset(next_offset=offset):
            return offset
        case AtTime():
            return fact.bounds.end_offset if fact.offset_at_time is None else fact.offset_at_time
        case ShiftBy(offsets=count):
            return None if fact.committed_offset is None else fact.committed_offset + count
        case ToCurrent():
            return fact.bounds.end_offset if fact.committed_offset is None else fact.committed_offset
        case ToListed(next_offsets=listed):
            return listed[tp]


def _clamped(offset: int, bounds: Bounds) -> int:
    return min(max(offset, bounds.beginning_offset), bounds.end_offset)


def require_bounds(bounds: Mapping[TopicPartition, Bounds | PartitionError]) -> dict[TopicPartition, Bounds]:
    """The bounds of partitions that all are there.

    Raises:
        UnknownTopic: naming those that do not exist.
        BrokerUnreachable: naming those that have no leader.

    >>> require_bounds({TopicPartition("flights", 9): PartitionError.NO_PARTITION})
    Traceback (most recent call last):
    streamgroups.errors.UnknownTopic: Partition flights-9 does not exist; nothing was changed. See: streamgroups topics list.
    """
    missing = [tp for tp, found in bounds.items() if found is PartitionError.NO_PARTITION]
    if missing:
        what = f"Partition {names(missing)} does not exist; nothing was changed."
        only = missing[0] if len(missing) == 1 else None
        raise UnknownTopic(
            what,
            remedy="See: streamgroups topics list.",
            topic=None if only is None else only.topic,
            partition=None if only is None else only.partition,
        )
    leaderless = [tp for tp, found in bounds.items() if isinstance(found, PartitionError)]
    if leaderless:
        raise BrokerUnreachable(
            f"Partition {names(leaderless)} has no leader; nothing was changed.",
            remedy="Start its brokers, or exclude it with --topic.",
        )
    return {tp: found for tp, found in bounds.items() if isinstance(found, Bounds)}


def out_of_range(moves: Iterable[Move]) -> list[Move]:
    """The moves that do not go where they were asked to."""
    return [move for move in moves if move.asked_offset is not None]


def parse_scope(texts: Iterable[str]) -> dict[str, frozenset[int] | None]:
    """The partitions named by ``--topic``, as Kafka's tool takes them: ``flights`` or ``flights:0,1,2``.

    Returns:
        For each topic its partitions; ``None`` for all of them.

    Raises:
        InvalidOption: if one is malformed.

    >>> parse_scope(["flights:2,0", "airports", "flights:5"])
    {'flights': frozenset({0, 2, 5}), 'airports': None}
    >>> parse_scope(["flights:a"])
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: --topic flights:a is invalid. Write --topic flights or --topic flights:0,1,2.
    """
    scope: dict[str, frozenset[int] | None] = {}
    for text in texts:
        topic, colon, listed = text.partition(":")
        numbers = listed.split(",") if colon else []
        if not topic or any(not (n.strip().isascii() and n.strip().isdigit()) for n in numbers):
            raise InvalidOption(f"--topic {text} is invalid.", remedy="Write --topic flights or --topic flights:0,1,2.")
        earlier = scope.get(topic, frozenset())
        if not colon or earlier is None:
            scope[topic] = None
        else:
            scope[topic] = earlier | {int(n) for n in numbers}
    return scope


def names(partitions: Iterable[TopicPartition]) -> str:
    """The names of the first few partitions.

    >>> names([TopicPartition("flights", p) for p in range(12)])
    'flights-0, flights-1, flights-2, flights-3, flights-4, flights-5, flights-6, flights-7, flights-8, flights-9 and 2 more'
    """
    listed = sorted(partitions)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(map(str, listed[:_SHOWN])) + more
