"""The board: what members of a group tell each other, kept in auxiliary Kafka groups that nobody ever joins.

Read and written through the port :class:`streamgroups.ports.Board`, by ``streamgroups_kafka.follower`` (for members) and
``streamgroups_kafka.orders`` (for whoever moves a group). There are five, so that no note can wipe out another:

* ``<group>.streamgroups``, written by the owner of a partition only: its name, its lease, and which order it has obeyed.
* ``<group>.streamgroups.resets``, written by whoever moves the group: one :class:`Order` per partition.
* ``<group>.streamgroups.left``, written by restarted queries: :mod:`streamgroups.batches.left`.
* ``<group>.streamgroups.time``, written by the owner of a partition: :mod:`streamgroups.event_time.seen`.
* ``<group>.streamgroups.quiet``, written by the Kafka sink, in the transaction that it tells of: :mod:`streamgroups.ledgers.quiet`.

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

from streamgroups.notes import read_note, write_note
from streamgroups.partitions import TopicPartition

_BOARD = ".streamgroups"
_RESETS = ".streamgroups.resets"
_LEFT = ".streamgroups.left"
_TIMES = ".streamgroups.time"
_QUIET = ".streamgroups.quiet"
_ALL = (_RESETS, _LEFT, _TIMES, _QUIET, _BOARD)


def board_of(group: str) -> str:
    """The auxiliary group that owners write to.

    >>> board_of("billing")
    'billing.streamgroups'
    """
    return group + _BOARD


def resets_of(group: str) -> str:
    """The auxiliary group that orders are written to.

    >>> resets_of("billing")
    'billing.streamgroups.resets'
    """
    return group + _RESETS


def left_of(group: str) -> str:
    """The auxiliary group to which restarted queries write what they have left to the group.

    >>> left_of("billing")
    'billing.streamgroups.left'
    """
    return group + _LEFT


def times_of(group: str) -> str:
    """The auxiliary group to which owners write how far the event time of their partitions has come.

    >>> times_of("billing")
    'billing.streamgroups.time'
    """
    return group + _TIMES


def quiet_of(group: str) -> str:
    """The auxiliary group to which the Kafka sink writes which batch it wrote last that had read nothing.

    >>> quiet_of("billing")
    'billing.streamgroups.quiet'
    """
    return group + _QUIET


def auxiliaries_of(group: str) -> tuple[str, ...]:
    """All of these, in the order in which they are to be deleted.

    Without its board an order to move would look as if nobody had obeyed it, and would move a group that is made later under
    that name. So orders go before boards.

    >>> auxiliaries_of("billing")  # doctest: +NORMALIZE_WHITESPACE
    ('billing.streamgroups.resets', 'billing.streamgroups.left', 'billing.streamgroups.time', 'billing.streamgroups.quiet',
     'billing.streamgroups')
    """
    return tuple(group + name for name in _ALL)


def is_auxiliary(group: str) -> bool:
    """Whether a group is one of these, and so no group that anybody reads with.

    >>> is_auxiliary("billing"), is_auxiliary("billing.streamgroups")
    (False, True)
    """
    return group.endswith(_ALL)


def is_about(group: str) -> str:
    """The group that an auxiliary group is about; any other group itself.

    >>> is_about("billing.streamgroups.resets"), is_about("billing")
    ('billing', 'billing')
    """
    for name in _ALL:
        group = group.removesuffix(name)
    return group


@dataclass(frozen=True, slots=True)
class Note:
    """What the owner of a partition writes about itself.

    Args:
        instance: the owner's name.
        used_ms: when it last made a request, milliseconds since the epoch.
        until_ms: until when it is in the group if it makes none any more; ``None`` if that does not end it (a Spark query).
        obeyed: the id of the last order that was obeyed for this partition.
        stopped: the id of the order for which the partition is not read now.
        reading_until: the end of what is in flight: being read, or given out and not committed. Behind the committed offset
            there is nothing in flight.

    >>> note = Note("worker-1", 1_000, 31_000)
    >>> Note.parse(note.encode()) == note
    True
    """

    instance: str
    used_ms: int
    until_ms: int | None
    obeyed: str = ""
    stopped: str = ""
    reading_until: int = 0

    def encode(self) -> str:
        """As metadata."""
        return write_note(
            {
                "instance": self.instance,
                "used": self.used_ms,
                "until": self.until_ms,
                "obeyed": self.obeyed,
                "stopped": self.stopped,
                "reading": self.reading_until,
            }
        )

    @classmethod
    def parse(cls, metadata: str) -> Note | None:
        """Reads metadata back; ``None`` if it is no note, or one of a newer version."""
        raw = read_note(metadata)
        try:
            until_ms = None if raw["until"] is None else int(raw["until"])
            orders = str(raw["obeyed"]), str(raw["stopped"])
            return cls(str(raw["instance"]), int(raw["used"]), until_ms, *orders, int(raw["reading"]))
        except (KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Order:
    """Somebody moves the group: the owner of this partition is to go on at ``next_offset``.

    Args:
        id: tells this order from all others; the same for all partitions that move together.
        next_offset: where to go on.
        topics: the topics of its partitions, and how many partitions each topic has.
        count: how many partitions it moves.
        void: whether it only cancels the one before it.

    >>> order = Order("5f2c", 100, {"flights": 8}, count=8)
    >>> Order.parse(order.next_offset, order.encode()) == order
    True
    """

    id: str
    next_offset: int
    topics: Mapping[str, int]
    count: int
    void: bool = False

    @property
    def candidates(self) -> list[TopicPartition]:
        """The partitions among which those are that it moves."""
        return [TopicPartition(topic, p) for topic, count in self.topics.items() for p in range(count)]

    def encode(self) -> str:
        """As metadata; the offset is committed beside it."""
        return write_note({"order": self.id, "topics": dict(self.topics), "count": self.count, "void": self.void})

    @classmethod
    def parse(cls, next_offset: int, metadata: str) -> Order | None:
        """Reads an order back; ``None`` if it is none, or one of a newer version."""
        raw = read_note(metadata)
        try:
            topics = {str(topic): int(count) for topic, count in raw["topics"].items()}
            return cls(str(raw["order"]), next_offset, topics, int(raw["count"]), bool(raw["void"]))
        except (KeyError, TypeError, ValueError, AttributeError):
            return None


def pending(
    orders: Mapping[TopicPartition, Order], obeyed: Mapping[TopicPartition, str]
) -> dict[TopicPartition, Order]:
    """The orders that are still to be obeyed.

    Args:
        orders: the last one for each partition.
        obeyed: the id of the order that was last obeyed for each partition.

    >>> p = TopicPartition("flights", 0)
    >>> list(pending({p: Order("5f2c", 100, {"flights": 1}, 1)}, {p: "5f2c"}))
    []
    """
    return {tp: order for tp, order in orders.items() if not order.void and obeyed.get(tp, "") != order.id}


@dataclass(frozen=True, slots=True)
class Step:
    """What the owner of partitions does next about its orders.

    Args:
        stop: stop reading, and note so: the id of the order for each partition.
        move: all have stopped: go on there.
    """

    stop: Mapping[TopicPartition, str]
    move: Mapping[TopicPartition, Order]


def next_step(
    orders: Mapping[TopicPartition, Order],
    notes: Mapping[TopicPartition, Note],
    owned: Collection[TopicPartition],
    owners: Mapping[TopicPartition, str] | None,
    *,
    me: str,
) -> Step:
    """What to do about orders (SEMANTICS G8, S6).

    Args:
        orders: the last one for each partition, of all partitions that the orders for ``owned`` may be about.
        notes: what is noted for each of them.
        owned: the partitions of whoever asks.
        owners: the name of each partition's owner, by the broker; ``None`` while the group rebalances. What a former owner
            noted says nothing of what the present one does. A partition that nobody has is read by nobody.
        me: the name of whoever asks.

    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> orders = {tp: Order("5f2c", 100, {"flights": 2}, count=2) for tp in (p0, p1)}
    >>> owners = {p0: "alice", p1: "bob"}
    >>> next_step(orders, {}, [p0], owners, me="alice").stop
    {TopicPartition(topic='flights', partition=0): '5f2c'}
    >>> stopped = {p0: Note("alice", 0, None, stopped="5f2c")}
    >>> next_step(orders, stopped, [p0], owners, me="alice")
    Step(stop={}, move={})
    >>> list(next_step(orders, {**stopped, p1: Note("bob", 0, None, stopped="5f2c")}, [p0], owners, me="alice").move)
    [TopicPartition(topic='flights', partition=0)]
    """
    due = pending({tp: orders[tp] for tp in owned if tp in orders}, {tp: note.obeyed for tp, note in notes.items()})
    stopped = {tp for tp, order in orders.items() if tp in notes and order.id in (notes[tp].stopped, notes[tp].obeyed)}
    stop = {tp: order.id for tp, order in due.items() if tp not in stopped or notes[tp].instance != me}
    if owners is None:
        return Step(stop, {})
    unread = {tp for tp in orders if tp not in owners or (tp in stopped and notes[tp].instance == owners[tp])}
    # An order for very many partitions is written in several commits: it holds when all of it is there.
    ready = Counter(orders[tp].id for tp in unread)
    return Step(stop, {tp: order for tp, order in due.items() if ready[order.id] == order.count})
