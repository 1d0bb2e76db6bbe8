"""Plans an offset reset, partition by partition, before anything is changed.

Called by the command line (``groups reset``, ``groups import``) and by tools that reset a live group, with offsets from
the broker. The scenarios and their edge cases are those of ``kafka-consumer-groups.sh --reset-offsets``. An offset
outside the partition is replaced by its nearer end. A time after the last record means the end. A partition without a
committed offset has no "current" one: it is set to the end, and cannot be shifted. Source: KIP-122; SEMANTICS G8, O1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from streamgroups.acls import grant
from streamgroups.errors import BrokerUnreachable, GroupRejected, InvalidOption, NotAuthorized, UnknownTopic
from streamgroups.groups.lag import PartitionError
from streamgroups.json_values import MAX_INT32
from streamgroups.option_values import shown_value, whole_number
from streamgroups.partitions import Bounds, TopicPartition
from streamgroups.positions import AtOffset, AtTime, Latest, TrimHorizon
from streamgroups.printable import listed


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """The committed offset plus this number of offsets (minus, if negative)."""

    offsets: int


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """The committed offset, committed again; the end for a partition without one."""


@dataclass(frozen=True, slots=True)
class ToListed:
    """A separate offset for each partition, from an offsets file."""

    next_offsets: Mapping[TopicPartition, int]


Scenario: TypeAlias = TrimHorizon | Latest | AtTime | AtOffset | ShiftBy | ToCurrent | ToListed


@dataclass(frozen=True, slots=True)
class Facts:
    """The state of a partition when a reset is planned.

    Args:
        committed_offset: the next offset of the group; ``None`` without a committed offset.
        bounds: the earliest offset and the end of the partition.
        offset_at_time: the first offset at or after the time of :class:`~streamgroups.positions.AtTime`; ``None`` if no
            such record exists, or for another scenario.
    """

    committed_offset: int | None
    bounds: Bounds
    offset_at_time: int | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """The reset of one partition.

    Args:
        topic_partition: the partition.
        from_offset: the committed offset; ``None`` without one.
        to_offset: the new offset.
        requested_offset: the requested offset, if it is outside the partition.
        bounds: the earliest offset and the end of the partition.
    """

    topic_partition: TopicPartition
    from_offset: int | None
    to_offset: int
    requested_offset: int | None
    bounds: Bounds

    @property
    def change(self) -> int | None:
        """The difference between new and committed offset: positive is forward, negative is backward."""
        return None if self.from_offset is None else self.to_offset - self.from_offset


def plan(scenario: Scenario, facts: Mapping[TopicPartition, Facts], *, group_id: str) -> list[Move]:
    """The new offset of each partition.

    Args:
        scenario: the requested reset.
        facts: the state of every partition to reset.
        group_id: the group, for errors.

    Returns:
        One entry for each partition, in order.

    Raises:
        GroupRejected: if a partition to shift has no committed offset.

    >>> tp = TopicPartition("flights", 0)
    >>> (move,) = plan(ShiftBy(-10), {tp: Facts(4, Bounds(2, 9))}, group_id="g")
    >>> move.from_offset, move.to_offset, move.requested_offset, move.change
    (4, 2, -6, -2)
    """
    moves = []
    unshiftable = []
    for tp, fact in sorted(facts.items()):
        requested = _target(scenario, tp, fact)
        if requested is None:
            unshiftable.append(tp)
            continue
        # A committed offset stays as it is, even out of bounds, as in Kafka's tool.
        within = requested if isinstance(scenario, ToCurrent) else _clamped(requested, fact.bounds)
        moves.append(Move(tp, fact.committed_offset, within, requested if requested != within else None, fact.bounds))
    if unshiftable:
        raise GroupRejected(
            f"The offsets of group '{group_id}' cannot be shifted: it has no committed offset for {listed(sorted(unshiftable))}; nothing was changed.",
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


def require_bounds(
    bounds: Mapping[TopicPartition, Bounds | PartitionError], *, has_scope: bool = False
) -> dict[TopicPartition, Bounds]:
    """The bounds of partitions that must all exist.

    Args:
        bounds: the bounds, or why they are unknown.
        has_scope: whether the command has the option ``--topic``, which the remedies then name.

    Raises:
        UnknownTopic: if partitions do not exist. The text names them.
        NotAuthorized: if this user may not describe the topics of partitions. The text names them.
        BrokerUnreachable: if partitions have no leader. The text names them.

    >>> require_bounds({TopicPartition("flights", 9): PartitionError.NO_PARTITION})
    Traceback (most recent call last):
    streamgroups.errors.UnknownTopic: Partition flights-9 does not exist; nothing was changed. List the topics with: \
kafka-topics.sh --list.
    """
    others = " To leave it out, name the others with --topic." if has_scope else ""
    missing = [tp for tp, found in bounds.items() if found is PartitionError.NO_PARTITION]
    if missing:
        what = f"Partition {listed(sorted(missing))} does not exist; nothing was changed."
        only = missing[0] if len(missing) == 1 else None
        raise UnknownTopic(
            what,
            remedy="List the topics with: kafka-topics.sh --list." + others,
            topic=None if only is None else only.topic,
            partition=None if only is None else only.partition,
        )
    denied = sorted({tp.topic for tp, found in bounds.items() if found is PartitionError.NOT_AUTHORIZED})
    if denied:
        raise NotAuthorized(
            f"This user is not authorized to describe {listed(map(repr, denied))}; nothing was changed.",
            remedy=grant("Describe", "Topic", denied),
        )
    leaderless = [tp for tp, found in bounds.items() if isinstance(found, PartitionError)]
    if leaderless:
        raise BrokerUnreachable(
            f"Partition {listed(sorted(leaderless))} has no leader; nothing was changed.",
            remedy="Start its brokers." + others,
        )
    return {tp: found for tp, found in bounds.items() if isinstance(found, Bounds)}


def out_of_range(moves: Iterable[Move]) -> list[Move]:
    """The entries whose requested offset is outside the partition."""
    return [move for move in moves if move.requested_offset is not None]


def parse_scope(texts: Iterable[str]) -> dict[str, frozenset[int] | None]:
    """Parses the partitions of ``--topic``, in the format of Kafka's tool: ``flights`` or ``flights:0,1,2``.

    Returns:
        The partitions of each topic; ``None`` for all of them.

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
        try:
            partitions = frozenset(whole_number(n.strip(), most=MAX_INT32) for n in numbers)
        except ValueError:
            topic = ""
        if not topic:
            what = f"--topic {shown_value(text)} is invalid."
            raise InvalidOption(what, remedy="Write --topic flights or --topic flights:0,1,2.")
        earlier = scope.get(topic, frozenset())
        if not colon or earlier is None:
            scope[topic] = None
        else:
            scope[topic] = earlier | partitions
    return scope


def is_in_scope(tp: TopicPartition, scope: Mapping[str, frozenset[int] | None]) -> bool:
    """Whether the result of :func:`parse_scope` contains a partition. An empty one contains all partitions.

    >>> [is_in_scope(TopicPartition("flights", 1), parse_scope(texts)) for texts in ([], ["flights"], ["flights:0,2"])]
    [True, True, False]
    """
    numbers = scope.get(tp.topic, frozenset()) if scope else None
    return numbers is None or tp.partition in numbers
