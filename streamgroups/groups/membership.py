"""The membership of one query in a group, as a value: owned partitions, the batch in flight and revoked partitions.

Held by ``streamgroups_kafka.membership.state`` (for the member, which communicates with the group) and read by
``streamgroups.query.micro_batches`` (which plans). Every change is a function from one :class:`Membership` to the next,
so that a handover can be tested without a broker. Source: KIP-429 (incremental cooperative rebalance), KIP-848;
SEMANTICS G2, G11, G12, S1-S3.

The life of a partition here::

    assigned ──▶ owned ──▶ planned (in flight) ──▶ finished ──▶ owned, at a later offset ──▶ ...
                   │                │
                   │                └─ revoked: no new plan; released when the batch in flight is finished
                   └─ lost: removed at once; the ranges in flight are abandoned and never committed from here
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias

from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.origins import UNNAMED, New, StateOrigin

#: The states of positions.
States: TypeAlias = Mapping[TopicPartition, StateOrigin]
#: Sets positions of a ledger, with their topics and states.
MoveLedger: TypeAlias = Callable[[Mapping[TopicPartition, int], Mapping[TopicPartition, TopicIdentity], States], None]


class Origin(Enum):
    """The origin of the first position of an owned partition."""

    #: Another member of this library had committed it.
    COMMITTED = "committed"
    #: A sink had committed it, in the transaction that wrote the output of the records before it (SEMANTICS X2).
    WRITTEN = "written"
    #: Another client had committed it: a tool that reset the group, or another kind of consumer.
    FOREIGN = "foreign"
    #: The group is new: the position is the one that the user chose.
    STARTING = "starting"
    #: The group is older than the partition, so reading starts at its earliest offset (SEMANTICS G2).
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class Owned:
    """An owned partition: the next offset to read, the origin of the first one, its topic, and the state of the offset."""

    next_offset: int
    origin: Origin = Origin.COMMITTED
    identity: TopicIdentity = UNKNOWN
    state: StateOrigin = UNNAMED

    @property
    def is_silent(self) -> bool:
        """Whether the group has no committed offset for it."""
        return self.origin in (Origin.STARTING, Origin.OLDEST)

    @classmethod
    def committed(cls, next_offset: int, metadata: str) -> Owned:
        """A partition with a committed offset.

        >>> Owned.committed(5, "").origin
        <Origin.FOREIGN: 'foreign'>
        """
        mark = CommitMark.parse(metadata)
        if mark is None:
            return cls(next_offset, Origin.FOREIGN)
        return cls(next_offset, Origin.WRITTEN if mark.written else Origin.COMMITTED, mark.identity, mark.state)

    @classmethod
    def new(cls, next_offset: int, origin: Origin) -> Owned:
        """A partition without a committed offset, whose state is empty."""
        return cls(next_offset, origin, state=New())


@dataclass(frozen=True, slots=True)
class InFlight:
    """The batch in flight: its number and the ranges that this member reads for it."""

    number: int
    ranges: tuple[OffsetRange, ...]

    @property
    def topic_partitions(self) -> frozenset[TopicPartition]:
        """The partitions it reads."""
        return frozenset(r.topic_partition for r in self.ranges)


@dataclass(frozen=True, slots=True)
class Membership:
    """The place of one member in its group.

    Args:
        owned: the partitions that it owns, including those to release.
        releasing: owned partitions that the group has revoked.
        in_flight: the batch in flight.
        assignments: how many assignments have been received. 0 means not a member yet.

    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> m = Membership().assign({p0: Owned(5), p1: Owned(7)}).plan(InFlight(1, (OffsetRange(p0, 5, 9),)))
    >>> m = m.revoke([p0, p1])
    >>> m.may_release(p0), m.may_release(p1)
    (False, True)
    >>> m, to_commit = m.finish(1)
    >>> to_commit, m.may_release(p0)
    ({TopicPartition(topic='flights', partition=0): 9}, True)
    """

    owned: Mapping[TopicPartition, Owned] = field(default_factory=dict)
    releasing: frozenset[TopicPartition] = frozenset()
    in_flight: InFlight | None = None
    assignments: int = 0

    @property
    def plannable(self) -> dict[TopicPartition, int]:
        """The next offset of each partition that a new batch may read: owned and not revoked."""
        return {tp: o.next_offset for tp, o in self.owned.items() if tp not in self.releasing}

    def assign(self, partitions: Mapping[TopicPartition, Owned]) -> Membership:
        """Adds assigned partitions to the owned ones (KIP-429), and replaces their positions."""
        return replace(
            self,
            owned={**self.owned, **partitions},
            releasing=self.releasing - partitions.keys(),
            assignments=self.assignments + 1,
        )

    def move(self, next_offsets: Mapping[TopicPartition, int], states: States = MappingProxyType({})) -> Membership:
        """Sets positions of owned partitions without reading: after a restart, a gap or an offset reset.

        Args:
            next_offsets: the positions.
            states: the states of the positions. A new position that is left out names none.
        """
        moved = {tp: _at(self.owned[tp], n, states.get(tp)) for tp, n in next_offsets.items() if tp in self.owned}
        return replace(self, owned={**self.owned, **moved})

    def states_at(self, next_offsets: Mapping[TopicPartition, int], states: States) -> States:
        """The states of owned partitions after :meth:`move`."""
        return {tp: o.state for tp, o in self.move(next_offsets, states).owned.items() if tp in next_offsets}

    def identify(self, identities: Mapping[TopicPartition, TopicIdentity]) -> Membership:
        """Sets the topics of the positions of owned partitions."""
        found = {tp: replace(self.owned[tp], identity=it) for tp, it in identities.items() if tp in self.owned}
        return replace(self, owned={**self.owned, **found})

    def readable(self, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        """Those ranges that a batch may read now.

        The group may have revoked a partition since the ranges were chosen. It may also have been released and assigned
        again at a later position. A read at the earlier position would then repeat records, and its commit would set
        the group back.
        """
        next_offsets = self.plannable
        return tuple(r for r in sorted(ranges) if next_offsets.get(r.topic_partition) == r.next_offset)

    def plan(self, batch: InFlight) -> Membership:
        """Begins a batch. An earlier batch that was planned and never begun is dropped: none of it was read.

        Raises:
            ValueError: if it reads a range that is not :meth:`readable`, because two members could read it (SEMANTICS
                G11).
        """
        foreign = sorted(set(batch.ranges) - set(self.readable(batch.ranges)))
        if foreign:
            raise ValueError(
                f"batch {batch.number} reads {', '.join(map(str, foreign))}, which this member must not read"
            )
        return replace(self, in_flight=batch)

    def finish(
        self, number: int, states: States = MappingProxyType({})
    ) -> tuple[Membership, dict[TopicPartition, int]]:
        """Ends batch ``number`` and all earlier ones.

        Args:
            number: the number of the batch.
            states: the states after the batch.

        Returns:
            The membership after it, and the offsets to commit. A lost partition belongs to another member now, so only
            owned partitions are committed. A partition is left out if its position has been changed in the meantime.
        """
        if self.in_flight is None or self.in_flight.number > number:
            return self, {}
        stayed = {tp: o.next_offset for tp, o in self.owned.items()}
        to_commit = {
            r.topic_partition: r.end_offset
            for r in self.in_flight.ranges
            if stayed.get(r.topic_partition) == r.next_offset
        }
        return replace(self.move(to_commit, states), in_flight=None), to_commit

    def revoke(self, partitions: Iterable[TopicPartition]) -> Membership:
        """Marks partitions as revoked: no new batch reads them."""
        return replace(self, releasing=self.releasing | (frozenset(partitions) & self.owned.keys()))

    def may_release(self, topic_partition: TopicPartition) -> bool:
        """Whether no batch in flight reads the partition, so that a release repeats no record."""
        return self.in_flight is None or topic_partition not in self.in_flight.topic_partitions

    def release(self, partitions: Iterable[TopicPartition]) -> tuple[Membership, tuple[OffsetRange, ...]]:
        """Removes partitions that were released or lost (SEMANTICS S3).

        Returns:
            The membership after it, and the ranges in flight on these partitions: another member will read them again.
        """
        gone = frozenset(partitions)
        batch = self.in_flight
        abandoned = tuple(r for r in batch.ranges if r.topic_partition in gone) if batch else ()
        if batch and abandoned:
            batch = replace(batch, ranges=tuple(r for r in batch.ranges if r.topic_partition not in gone))
        return (
            replace(
                self,
                owned={tp: o for tp, o in self.owned.items() if tp not in gone},
                releasing=self.releasing - gone,
                in_flight=batch,
            ),
            abandoned,
        )


def _at(owned: Owned, next_offset: int, state: StateOrigin | None) -> Owned:
    if state is None:
        state = owned.state if owned.next_offset == next_offset else UNNAMED
    return replace(owned, next_offset=next_offset, state=state)
