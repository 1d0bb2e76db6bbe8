"""The board: what members of a group tell each other, kept in auxiliary Kafka groups that nobody ever joins.

Read and written through the port :class:`streamgroups.ports.MetadataStore`, by ``streamgroups.coordination.reset_participant`` (for members) and
``streamgroups.coordination.reset_requests`` (for whoever moves a group). There are six, so that no note can wipe out another:

* ``<group>.streamgroups``, written by the owner of a partition only: its name, its lease, and which order it has obeyed.
* ``<group>.streamgroups.resets``, written by whoever moves the group: one :class:`ResetRequest` per partition.
* ``<group>.streamgroups.left``, written by restarted queries: :mod:`streamgroups.checkpoints.skipped_ranges`.
* ``<group>.streamgroups.time``, written by the owner of a partition: :mod:`streamgroups.event_time.observations`.
* ``<group>.streamgroups.gaps``, written by whoever finds records gone: :mod:`streamgroups.groups.gaps`.
* ``<group>.streamgroups.quiet``, written by the Kafka sink, in the transaction that it tells of: :mod:`streamgroups.ledgers.no_data_batch`.

Every note is a committed offset with JSON as its metadata, which a broker limits to 4,096 bytes. Source:
SEMANTICS G8, G9, G15, S6.

A live group is moved in one step: nobody reads on at the old place after anybody has begun at the new one. The life of an
order, for each of its partitions::

    ordered ──▶ stopped ──▶ obeyed
                │           └─ committed at the new place; its owner reads on there
                └─ its owner has nothing in flight and reads nothing more, until all partitions of the order have stopped

Each owner sees by itself, from the same notes, when all have stopped; whoever gave the order may be gone by then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from streamgroups.json_values import MAX_INT32, flag, items, string, time_ms, time_ms_or_none, whole
from streamgroups.metadata_entries import read_entry, write_entry
from streamgroups.partitions import TopicPartition

_BOARD = ".streamgroups"
_RESETS = ".streamgroups.resets"
_LEFT = ".streamgroups.left"
_TIMES = ".streamgroups.time"
_QUIET = ".streamgroups.quiet"
_GAPS = ".streamgroups.gaps"
_ALL = (_RESETS, _LEFT, _TIMES, _QUIET, _GAPS, _BOARD)
#: The longest id of an order. Two of them are in each note of an owner, which must fit beside an offset.
_MAX_ID = 64


def members_group_of(group: str) -> str:
    """The auxiliary group that owners write to.

    >>> members_group_of("billing")
    'billing.streamgroups'
    """
    return group + _BOARD


def resets_group_of(group: str) -> str:
    """The auxiliary group that orders are written to.

    >>> resets_group_of("billing")
    'billing.streamgroups.resets'
    """
    return group + _RESETS


def skipped_ranges_group_of(group: str) -> str:
    """The auxiliary group to which restarted queries write what they have left to the group.

    >>> skipped_ranges_group_of("billing")
    'billing.streamgroups.left'
    """
    return group + _LEFT


def event_time_group_of(group: str) -> str:
    """The auxiliary group to which owners write how far the event time of their partitions has come.

    >>> event_time_group_of("billing")
    'billing.streamgroups.time'
    """
    return group + _TIMES


def no_data_group_of(group: str) -> str:
    """The auxiliary group to which the Kafka sink writes which batch it wrote last that had read nothing.

    >>> no_data_group_of("billing")
    'billing.streamgroups.quiet'
    """
    return group + _QUIET


def gaps_group_of(group: str) -> str:
    """The metadata group to which gaps are written.

    >>> gaps_group_of("billing")
    'billing.streamgroups.gaps'
    """
    return group + _GAPS


def metadata_groups_of(group: str) -> tuple[str, ...]:
    """All of these, in the order in which they are to be deleted.

    Without its board an order to move would look as if nobody had obeyed it, and would move a group that is made later under
    that name. So orders go before boards.

    >>> metadata_groups_of("billing")  # doctest: +NORMALIZE_WHITESPACE
    ('billing.streamgroups.resets', 'billing.streamgroups.left', 'billing.streamgroups.time', 'billing.streamgroups.quiet',
     'billing.streamgroups.gaps', 'billing.streamgroups')
    """
    return tuple(group + name for name in _ALL)


def is_metadata_group(group: str) -> bool:
    """Whether a group is one of these, and so no group that anybody reads with.

    >>> is_metadata_group("billing"), is_metadata_group("billing.streamgroups")
    (False, True)
    """
    return group.endswith(_ALL)


def group_of(group: str) -> str:
    """The group that an auxiliary group is about; any other group itself.

    >>> group_of("billing.streamgroups.resets"), group_of("billing")
    ('billing', 'billing')
    """
    for name in _ALL:
        group = group.removesuffix(name)
    return group


@dataclass(frozen=True, slots=True)
class MemberEntry:
    """What the owner of a partition writes about itself.

    Args:
        instance: the owner's name.
        used_ms: when it last made a request, milliseconds since the epoch.
        until_ms: until when it is in the group if it makes none any more; ``None`` if that does not end it (a Spark query).
        obeyed: the id of the last order that was obeyed for this partition.
        stopped: the id of the order for which the partition is not read now.
        reading_until: the end of what is in flight: being read, or given out and not committed. Behind the committed offset
            there is nothing in flight.

    >>> note = MemberEntry("worker-1", 1_000, 31_000)
    >>> MemberEntry.parse(note.encode()) == note
    True
    """

    instance: str
    used_ms: int
    until_ms: int | None
    applied: str = ""
    stopped: str = ""
    reading_until: int = 0

    def encode(self) -> str:
        """As metadata."""
        return write_entry(
            {
                "instance": self.instance,
                "used": self.used_ms,
                "until": self.until_ms,
                "obeyed": self.applied,
                "stopped": self.stopped,
                "reading": self.reading_until,
            }
        )

    @classmethod
    def parse(cls, metadata: str) -> MemberEntry | None:
        """Reads metadata back; ``None`` if it is no note, or one of a newer version."""
        raw = read_entry(metadata)
        try:
            return cls(
                instance=string(raw["instance"]),
                used_ms=time_ms(raw["used"]),
                until_ms=time_ms_or_none(raw["until"]),
                applied=string(raw["obeyed"], most=_MAX_ID),
                stopped=string(raw["stopped"], most=_MAX_ID),
                reading_until=whole(raw["reading"]),
            )
        except (KeyError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """A reset request, as it concerns one partition: its owner is to read on at ``next_offset``.

    Args:
        id: tells this order from all others; the same for all partitions that move together.
        next_offset: where to go on.
        moves: how many partitions of each topic it moves. It is complete when the entries of all of them are there.
        void: whether it only cancels the one before it.

    >>> order = ResetRequest("5f2c", 100, {"flights": 8})
    >>> ResetRequest.parse(order.next_offset, order.encode()) == order
    True
    """

    id: str
    next_offset: int
    moves: Mapping[str, int]
    void: bool = False

    def candidates(self, counts: Mapping[str, int]) -> list[TopicPartition]:
        """The partitions among which those are that it moves.

        Args:
            counts: how many partitions each topic of the cluster has; the entry itself cannot name more.
        """
        return [TopicPartition(topic, p) for topic in self.moves if topic in counts for p in range(counts[topic])]

    def encode(self) -> str:
        """As metadata; the offset is committed beside it."""
        return write_entry({"order": self.id, "moves": dict(self.moves), "void": self.void})

    @classmethod
    def parse(cls, next_offset: int, metadata: str) -> ResetRequest | None:
        """Reads an order back; ``None`` if it is none, or one of a newer version."""
        raw = read_entry(metadata)
        try:
            moves = {string(topic): whole(n, most=MAX_INT32) for topic, n in items(raw["moves"])}
            return cls(string(raw["order"], most=_MAX_ID), whole(next_offset), moves, flag(raw["void"]))
        except (KeyError, ValueError):
            return None


def pending(
    resets: Mapping[TopicPartition, ResetRequest], applied: Mapping[TopicPartition, str]
) -> dict[TopicPartition, ResetRequest]:
    """The orders that are still to be obeyed.

    Args:
        orders: the last one for each partition.
        obeyed: the id of the order that was last obeyed for each partition.

    >>> p = TopicPartition("flights", 0)
    >>> list(pending({p: ResetRequest("5f2c", 100, {"flights": 1})}, {p: "5f2c"}))
    []
    """
    return {tp: order for tp, order in resets.items() if not order.void and applied.get(tp, "") != order.id}


@dataclass(frozen=True, slots=True)
class Step:
    """What the owner of partitions does next about its orders.

    Args:
        stop: stop reading, and note so: the id of the order for each partition.
        resume: the order for which these had stopped cannot be applied: read on, and note so.
        move: all have stopped: go on there.
        incomplete: orders that cannot be applied, and what is missing of each; their partitions are read on.
        waiting: orders that wait for other partitions to stop, and which those are.
    """

    stop: Mapping[TopicPartition, str]
    resume: frozenset[TopicPartition]
    move: Mapping[TopicPartition, ResetRequest]
    incomplete: Mapping[str, str]
    waiting: Mapping[str, str]


def next_step(
    resets: Mapping[TopicPartition, ResetRequest],
    notes: Mapping[TopicPartition, MemberEntry],
    owned: Collection[TopicPartition],
    owners: Mapping[TopicPartition, str] | None,
    counts: Mapping[str, int],
    *,
    me: str,
) -> Step:
    """What to do about orders (SEMANTICS G8, S6).

    An order for very many partitions is written in several commits, and holds when all of it is there: with its last commit. An order
    of which a part never comes stops no member. With a topic its entries are deleted, so a topic that is gone counts no more.

    Args:
        orders: the last one for each partition, of all partitions that the orders for ``owned`` may be about.
        notes: what is noted for each of them.
        owned: the partitions of this member.
        owners: the name of each partition's owner, by the broker; ``None`` while the group rebalances. What a former owner
            noted does not hold for the present one. A partition without an owner is not read.
        counts: how many partitions each topic of the cluster has.
        me: the name of this member.

    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> resets = {tp: ResetRequest("5f2c", 100, {"flights": 2}) for tp in (p0, p1)}
    >>> owners, counts = {p0: "alice", p1: "bob"}, {"flights": 2}
    >>> next_step(resets, {}, [p0], owners, counts, me="alice").stop
    {TopicPartition(topic='flights', partition=0): '5f2c'}
    >>> stopped = {p0: MemberEntry("alice", 0, None, stopped="5f2c")}
    >>> next_step(resets, stopped, [p0], owners, counts, me="alice").waiting
    {'5f2c': 'flights-1 has not paused'}
    >>> both = {**stopped, p1: MemberEntry("bob", 0, None, stopped="5f2c")}
    >>> list(next_step(resets, both, [p0], owners, counts, me="alice").move)
    [TopicPartition(topic='flights', partition=0)]
    >>> next_step({p0: resets[p0]}, {}, [p0], owners, counts, me="alice").incomplete
    {'5f2c': 'only 1 of 2 entries for flights exists'}
    """
    due = pending({tp: resets[tp] for tp in owned if tp in resets}, {tp: note.applied for tp, note in notes.items()})
    incomplete = {order.id: missing for order in due.values() if (missing := _missing(order, resets, counts))}
    complete = {tp: order for tp, order in due.items() if order.id not in incomplete}
    stopped = {tp for tp, order in resets.items() if tp in notes and order.id in (notes[tp].stopped, notes[tp].applied)}
    resume = frozenset(tp for tp in due if tp not in complete and tp in stopped and notes[tp].instance == me)
    stop = {tp: order.id for tp, order in complete.items() if tp not in stopped or notes[tp].instance != me}
    reads = {
        tp
        for tp in resets
        if owners is None or (tp in owners and not (tp in stopped and notes[tp].instance == owners[tp]))
    }
    late = {
        number: sorted(tp for tp in reads if resets[tp].id == number)
        for number in {order.id for order in complete.values()}
    }
    move = {tp: order for tp, order in complete.items() if not late[order.id]}
    return Step(stop, resume, move, incomplete, {number: _late(tps) for number, tps in late.items() if tps})


def _missing(order: ResetRequest, resets: Mapping[TopicPartition, ResetRequest], counts: Mapping[str, int]) -> str:
    """What of an order is not there; nothing if it is complete."""
    there = Counter(tp.topic for tp, other in resets.items() if other.id == order.id)
    short = [
        f"only {there[topic]} of {n} entries for {topic} {'exists' if there[topic] == 1 else 'exist'}"
        for topic, n in order.moves.items()
        if topic in counts and there[topic] != n
    ]
    unnamed = [f"it does not contain {topic}" for topic in sorted(there) if topic not in order.moves]
    return ", ".join([*short, *unnamed][:3])


def _late(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(map(str, partitions[:3])) + (f" and {len(partitions) - 3} more" if len(partitions) > 3 else "")
    return f"{shown} {'has' if len(partitions) == 1 else 'have'} not paused"
