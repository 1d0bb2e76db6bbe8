"""The membership of one query in a group, as a value: owned partitions, the batch in flight and revoked partitions.

Held by ``streamgroups_kafka.membership.member_state`` (for the member, which communicates with the group) and read by
``streamgroups.query.micro_batches`` (which plans). Every change is a function from one :class:`Membership` to the next,
so that a handover can be tested without a broker. Source: KIP-429 (incremental cooperative rebalance), KIP-848;
SEMANTICS F1-F3, G2, G11, G12, S1-S3.

The life of a partition here::

    assigned ──▶ owned ──▶ planned (in flight) ──▶ finished ──▶ owned, at a later offset ──▶ ...
                   │                │
                   │                └─ revoked: no later records are planned; released when the batch in flight is finished
                   └─ lost: removed at once; the ranges in flight are abandoned and never committed from here
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias

from streamgroups.groups.applied_reset import NO_RESET, AppliedReset
from streamgroups.groups.commit_metadata import CommitMark, ToolMark, mark_of
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.printable import listed
from streamgroups.state.origins import UNNAMED, New, StateOrigin

#: The states of positions.
States: TypeAlias = Mapping[TopicPartition, StateOrigin]


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
    EARLIEST = "earliest"


@dataclass(frozen=True, slots=True)
class Owned:
    """An owned partition and its position.

    Args:
        next_offset: the next offset to read.
        origin: the origin of the first position.
        identity: the topic of the position.
        state: the state of the position.
        epoch: the ownership epoch: a number that grows with each owner of the partition. It is the generation of the group, or
            the member epoch, unless the ledger of a sink has a greater one (:mod:`streamgroups.ledgers.fences`).
        reset: the last reset that the position contains.
        leader_epoch: a leader epoch of the partition whose log contained all records before the position, and all records of
            the batch in flight (KIP-320). ``None`` if it is unknown.
        form: the form of the program that committed the first position. Empty if it is unknown.
        kept_reset: if a tool has replaced only the state of the first position: the last reset that the position contained
            before. Otherwise ``None``.
        is_restored: whether a restore of a savepoint has set the first position.
        read_from: where this owner began to read: since then it has read the records up to the position without interruption.
            ``None`` if it is unknown. Equal positions can have different ones.
    """

    next_offset: int
    origin: Origin = Origin.COMMITTED
    identity: TopicIdentity = UNKNOWN
    state: StateOrigin = UNNAMED
    epoch: int = 0
    reset: AppliedReset = NO_RESET
    leader_epoch: int | None = None
    form: str = ""
    kept_reset: AppliedReset | None = None
    is_restored: bool = False
    read_from: int | None = field(default=None, compare=False)

    @property
    def is_silent(self) -> bool:
        """Whether the group has no committed offset for it."""
        return self.origin in (Origin.STARTING, Origin.EARLIEST)

    @property
    def is_of_member(self) -> bool:
        """Whether a member, or its sink, has committed the position."""
        return self.origin in (Origin.COMMITTED, Origin.WRITTEN)

    @property
    def is_unmarked(self) -> bool:
        """Whether a client without marks has set the position: Kafka's tool, or a consumer of another kind."""
        return self.origin is Origin.FOREIGN and self.reset == NO_RESET

    @classmethod
    def committed(cls, next_offset: int, metadata: str) -> Owned:
        """A partition with a committed offset.

        >>> Owned.committed(5, "").origin
        <Origin.FOREIGN: 'foreign'>
        """
        mark = mark_of(metadata)
        if mark is None:
            return cls(next_offset, Origin.FOREIGN)
        if isinstance(mark, ToolMark):
            return cls(
                next_offset,
                Origin.FOREIGN,
                mark.identity,
                mark.state,
                reset=mark.reset,
                form=mark.form,
                kept_reset=mark.kept_reset,
                is_restored=mark.is_restored,
            )
        return cls(
            next_offset,
            Origin.WRITTEN if mark.written else Origin.COMMITTED,
            mark.identity,
            mark.state,
            reset=mark.reset,
            leader_epoch=mark.leader_epoch,
            form=mark.form,
        )

    @classmethod
    def new(cls, next_offset: int, origin: Origin) -> Owned:
        """A partition without a committed offset, whose state is empty."""
        return cls(next_offset, origin, state=New())

    def mark(self, next_offset: int, *, exclusive: bool, written: bool, form: str = "") -> CommitMark:
        """The mark of a commit of this partition.

        Args:
            next_offset: the committed offset. The mark describes it only if it is the position.
            exclusive: whether the member is an exclusive one.
            written: whether a sink commits it with its output.
            form: the form of the program of the member.
        """
        is_here = self.next_offset == next_offset
        is_known = self.read_from is not None and self.read_from <= next_offset
        return CommitMark(
            exclusive,
            written,
            self.identity,
            self.state if is_here else UNNAMED,
            self.epoch,
            self.reset,
            self.leader_epoch if is_here else None,
            form,
            self.read_from if is_known else None,
        )


@dataclass(frozen=True, slots=True)
class NewPosition:
    """A position that a member sets without reading: after a restart, a gap or an offset reset (SEMANTICS F3).

    Args:
        next_offset: the position.
        epoch: the ownership epoch of the partition when the decision was made. If the partition has been assigned again since, the
            decision changes nothing.
        identity: the topic of the position.
        state: its state. ``None``: an unchanged offset keeps its state, and another one names none.
        reset: the reset that sets the position. ``None`` if it is not a reset.
        leader_epoch: a leader epoch whose log contained all records before the position. ``None``: an unchanged offset keeps its
            leader epoch, and another one has none.
        is_read: whether the records between both positions were read: by a batch, or by an earlier run whose commit is missing.
            Equal positions can differ in it.
    """

    next_offset: int
    epoch: int
    identity: TopicIdentity = UNKNOWN
    state: StateOrigin | None = None
    reset: AppliedReset | None = None
    leader_epoch: int | None = None
    is_read: bool = field(default=False, compare=False)

    def after(self, owned: Owned) -> Owned:
        """The partition at this position."""
        is_same = owned.next_offset == self.next_offset
        state = (owned.state if is_same else UNNAMED) if self.state is None else self.state
        leader_epoch = owned.leader_epoch if is_same and self.leader_epoch is None else self.leader_epoch
        reset = owned.reset if self.reset is None else self.reset
        continues = (is_same or self.is_read) and reset == owned.reset
        return replace(
            owned,
            next_offset=self.next_offset,
            identity=self.identity,
            state=state,
            reset=reset,
            leader_epoch=leader_epoch,
            read_from=owned.read_from if continues else self.next_offset,
        )


#: Returns where reading of assigned partitions continues, given their positions in the group, and a function that returns whether
#: the broker describes the member as the owner of partitions now.
TakeOver: TypeAlias = Callable[
    [Mapping[TopicPartition, Owned], Callable[[Collection[TopicPartition]], bool]], Mapping[TopicPartition, Owned]
]
#: Sets positions of a ledger to those of these partitions. Returns the partitions whose ownership epoch the ledger has accepted.
MoveLedger: TypeAlias = Callable[[Mapping[TopicPartition, Owned]], Collection[TopicPartition]]


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
    >>> sorted(map(str, m.releasable([p0, p1])))
    ['flights-1']
    >>> m, to_commit = m.finish(1)
    >>> to_commit, len(m.releasable([p0]))
    ({TopicPartition(topic='flights', partition=0): 9}, 1)
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
        begun = {
            tp: it if it.read_from is not None else replace(it, read_from=it.next_offset)
            for tp, it in partitions.items()
        }
        return replace(
            self,
            owned={**self.owned, **begun},
            releasing=self.releasing - partitions.keys(),
            assignments=self.assignments + 1,
        )

    def current(self, decided: Mapping[TopicPartition, NewPosition]) -> dict[TopicPartition, Owned]:
        """The partitions after decisions, without those that have been released, or assigned again, since the decision."""
        return {
            tp: new.after(self.owned[tp])
            for tp, new in decided.items()
            if tp in self.owned and self.owned[tp].epoch == new.epoch
        }

    def move(self, decided: Mapping[TopicPartition, NewPosition]) -> Membership:
        """Sets positions of owned partitions without reading. Decisions of an earlier ownership epoch change nothing."""
        return replace(self, owned={**self.owned, **self.current(decided)})

    def rewind(self, decided: Mapping[TopicPartition, NewPosition]) -> Membership:
        """Sets positions of records that are read again without output. For commits, they are read once."""
        back = {tp: replace(it, read_from=self.owned[tp].read_from) for tp, it in self.current(decided).items()}
        return replace(self, owned={**self.owned, **back})

    def identify(self, found: Mapping[TopicPartition, Owned]) -> Membership:
        """Sets the topic, the state and the leader epoch of positions that have not changed.

        Args:
            found: the owned partitions, as they were when these were determined.
        """
        same = {
            tp: replace(self.owned[tp], identity=it.identity, state=it.state, leader_epoch=it.leader_epoch)
            for tp, it in found.items()
            if tp in self.owned and (self.owned[tp].epoch, self.owned[tp].next_offset) == (it.epoch, it.next_offset)
        }
        return replace(self, owned={**self.owned, **same})

    def readable(self, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        """Those ranges that a batch may read now.

        The group may have revoked a partition since the ranges were chosen. It may also have been released and assigned
        again at a later position. A read at the earlier position would then repeat records, and its commit would set
        the group back. Of a revoked partition, a new batch may only keep the rest of its range in flight.
        """
        next_offsets = {tp: o.next_offset for tp, o in self.owned.items()}
        kept = {r.topic_partition: r.end_offset for r in self.in_flight.ranges} if self.in_flight else {}
        return tuple(
            r
            for r in sorted(ranges)
            if next_offsets.get(r.topic_partition) == r.next_offset
            and (r.topic_partition not in self.releasing or r.end_offset <= kept.get(r.topic_partition, -1))
        )

    def plan(self, batch: InFlight) -> Membership:
        """Begins a batch. An earlier batch that was planned and never begun is dropped: none of it was read.

        Raises:
            ValueError: if it reads a range that is not :meth:`readable`, because two members could read it (SEMANTICS
                G11).
        """
        foreign = sorted(set(batch.ranges) - set(self.readable(batch.ranges)))
        if foreign:
            raise ValueError(f"batch {batch.number} reads {listed(foreign)}, which this member must not read")
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
        read = {
            tp: NewPosition(n, it.epoch, it.identity, states.get(tp), leader_epoch=it.leader_epoch, is_read=True)
            for tp, n in to_commit.items()
            for it in (self.owned[tp],)
        }
        return replace(self.move(read), in_flight=None), to_commit

    def revoke(self, partitions: Iterable[TopicPartition]) -> Membership:
        """Marks partitions as revoked: no new batch reads them."""
        return replace(self, releasing=self.releasing | (frozenset(partitions) & self.owned.keys()))

    def releasable(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Returns those partitions that no batch in flight reads, so that their release repeats no record."""
        in_flight = frozenset[TopicPartition]() if self.in_flight is None else self.in_flight.topic_partitions
        return frozenset(partitions) - in_flight

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
