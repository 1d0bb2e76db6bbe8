"""One query's membership in a group, as a value: what it owns, what it reads, what it has been asked to give back.

Held by ``streamgroups_kafka.membership.state`` (for the member, which talks to the group) and read by
``streamgroups.query.micro_batches`` (which plans). Every change is a function from one :class:`Membership` to the next, so that
hand-over can be tested without a broker. Source: KIP-429 (incremental cooperative rebalance), KIP-848; SEMANTICS G2, G11, G12, S1-S3.

The life of a partition here::

    assigned ──▶ owned ──▶ planned (in flight) ──▶ finished ──▶ owned, further on ──▶ ...
                   │                │
                   │                └─ asked back: no new plan; released when the batch in flight is finished
                   └─ lost: gone at once; what was in flight is abandoned and never committed from here
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition


class Origin(Enum):
    """Where the first position of an owned partition came from."""

    #: A member like us had committed it.
    COMMITTED = "committed"
    #: A sink had committed it, in the transaction that wrote what lies before it (SEMANTICS X2).
    WRITTEN = "written"
    #: Somebody else had committed it: a tool that moved the group, or another kind of consumer.
    FOREIGN = "foreign"
    #: The group is new: the position is the one the user asked for.
    STARTING = "starting"
    #: The group is older than the partition, which is therefore read from its oldest record (SEMANTICS G2).
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class Owned:
    """An owned partition: the next offset to read, where the first one came from, and the topic that it is of."""

    next_offset: int
    origin: Origin = Origin.COMMITTED
    identity: TopicIdentity = UNKNOWN

    @property
    def is_silent(self) -> bool:
        """Whether the group has no committed offset for it."""
        return self.origin in (Origin.STARTING, Origin.OLDEST)

    @classmethod
    def committed(cls, next_offset: int, metadata: str) -> Owned:
        """A partition whose position the group knows.

        >>> Owned.committed(5, "").origin
        <Origin.FOREIGN: 'foreign'>
        """
        mark = CommitMark.parse(metadata)
        if mark is None:
            return cls(next_offset, Origin.FOREIGN)
        return cls(next_offset, Origin.WRITTEN if mark.written else Origin.COMMITTED, mark.identity)


@dataclass(frozen=True, slots=True)
class InFlight:
    """The batch that Spark is working on: its number and the ranges this member reads for it."""

    number: int
    ranges: tuple[OffsetRange, ...]

    @property
    def topic_partitions(self) -> frozenset[TopicPartition]:
        """The partitions it reads."""
        return frozenset(r.topic_partition for r in self.ranges)


@dataclass(frozen=True, slots=True)
class Membership:
    """What one member knows of its place in the group.

    Args:
        owned: the partitions it owns, those being released included.
        releasing: owned partitions that the group has asked back.
        in_flight: the batch being worked on.
        assignments: how many assignments have been received: 0 means not a member yet.

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
        """The next offset of each partition that a new batch may read: owned and not asked back."""
        return {tp: o.next_offset for tp, o in self.owned.items() if tp not in self.releasing}

    def assign(self, partitions: Mapping[TopicPartition, Owned]) -> Membership:
        """Partitions came in. They are added to those already owned (KIP-429), positions replaced."""
        return replace(
            self,
            owned={**self.owned, **partitions},
            releasing=self.releasing - partitions.keys(),
            assignments=self.assignments + 1,
        )

    def move(self, next_offsets: Mapping[TopicPartition, int]) -> Membership:
        """Positions of owned partitions change without reading (resuming from a checkpoint, a gap skipped)."""
        moved = {tp: replace(self.owned[tp], next_offset=n) for tp, n in next_offsets.items() if tp in self.owned}
        return replace(self, owned={**self.owned, **moved})

    def identify(self, identities: Mapping[TopicPartition, TopicIdentity]) -> Membership:
        """The topics that the positions of owned partitions are of become known."""
        found = {tp: replace(self.owned[tp], identity=it) for tp, it in identities.items() if tp in self.owned}
        return replace(self, owned={**self.owned, **found})

    def readable(self, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        """Those ranges that a batch may read now.

        Between the moment when ranges are chosen and the moment when they are planned, the group may have asked for a
        partition, or taken it and given it back further on: to read it from where it was would repeat records, and to
        commit what was read would set the group back.
        """
        next_offsets = self.plannable
        return tuple(r for r in sorted(ranges) if next_offsets.get(r.topic_partition) == r.next_offset)

    def plan(self, batch: InFlight) -> Membership:
        """A batch begins. A batch that was planned before and never begun is forgotten: nothing of it was read.

        Raises:
            ValueError: if it reads what is not :meth:`readable`: two members might read it (SEMANTICS G11).
        """
        foreign = sorted(set(batch.ranges) - set(self.readable(batch.ranges)))
        if foreign:
            raise ValueError(
                f"batch {batch.number} reads {', '.join(map(str, foreign))}, which this member must not read"
            )
        return replace(self, in_flight=batch)

    def finish(self, number: int) -> tuple[Membership, dict[TopicPartition, int]]:
        """Batch ``number``, and all before it, are done.

        Returns:
            The membership after it, and the offsets to commit: of the partitions still owned only, for what has been lost
            belongs to another member now, and only where nobody has moved the position meanwhile.
        """
        if self.in_flight is None or self.in_flight.number > number:
            return self, {}
        stayed = {tp: o.next_offset for tp, o in self.owned.items()}
        to_commit = {
            r.topic_partition: r.end_offset
            for r in self.in_flight.ranges
            if stayed.get(r.topic_partition) == r.next_offset
        }
        return replace(self.move(to_commit), in_flight=None), to_commit

    def revoke(self, partitions: Iterable[TopicPartition]) -> Membership:
        """The group wants partitions back: nothing new is planned on them."""
        return replace(self, releasing=self.releasing | (frozenset(partitions) & self.owned.keys()))

    def may_release(self, topic_partition: TopicPartition) -> bool:
        """Whether no batch in flight reads the partition, so that letting it go repeats no record."""
        return self.in_flight is None or topic_partition not in self.in_flight.topic_partitions

    def release(self, partitions: Iterable[TopicPartition]) -> tuple[Membership, tuple[OffsetRange, ...]]:
        """Partitions are gone: given back, or lost (SEMANTICS S3).

        Returns:
            The membership after it, and the ranges that were in flight on them: another member will read them again.
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
