"""The reset protocol, and the metadata groups in which the members of a group coordinate.

Read and written through the port :class:`streamgroups.ports.MetadataStore`, by
``streamgroups.coordination.reset_participant`` (for members) and ``streamgroups.coordination.reset_requests`` (for
tools that reset a group). There are seven groups, so that no metadata entry can overwrite another:

* ``<group>.streamgroups``, written by the owner of a partition only: its name, its lease, and the reset request for which it
  has paused.
* ``<group>.streamgroups.resets``, written by tools that reset the group: one :class:`ResetRequest` per partition.
* ``<group>.streamgroups.left``, written by restarted queries: :mod:`streamgroups.query.skipped_range_store`.
* ``<group>.streamgroups.time``, written by the owner of a partition: :mod:`streamgroups.event_time.time_entries`.
* ``<group>.streamgroups.gaps``, written by the member that detects a gap: :mod:`streamgroups.groups.gaps`.
* ``<group>.streamgroups.no_data_batch``, written by the Kafka sink, in the transaction of the no-data batch:
  :mod:`streamgroups.ledgers.no_data_batch`.
* ``<group>.streamgroups.letters``, written with dead letters that are in another transaction than the output:
  :mod:`streamgroups.dlq.written_letters`.

Every entry is a committed offset with JSON as its metadata, which a broker limits to 4,096 bytes. Source: SEMANTICS G8,
G9, G15, S6.

A live group is reset in one step: no member reads at an old position after another member has begun at a new one. The
life of a request, for each of its partitions::

    requested ──▶ paused ──▶ applied
                  │          └─ committed at the new position, with the id of the request in the mark; its owner continues there
                  └─ its owner has nothing in flight and reads nothing more, until all its partitions are paused

Each owner detects from the same entries when all partitions are paused. The tool that has written the request may have
ended by then.

The position itself shows that a request is applied (:mod:`streamgroups.groups.applied_reset`): the broker and the ledger fence it,
and nothing fences an entry. ``applied`` in an entry is for display. It counts only for a partition whose committed offset a client
without marks has written since: such a commit does not show the last request.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamgroups.groups.applied_reset import is_reset_id
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.groups.description import GroupDescription
from streamgroups.json_values import MAX_INT32, flag, items, string, time_ms, time_ms_or_none, whole
from streamgroups.metadata_entries import read_entry, write_entry
from streamgroups.partitions import TopicPartition
from streamgroups.printable import listed
from streamgroups.state import origins
from streamgroups.state.origins import UNNAMED, StateOrigin

if TYPE_CHECKING:
    # Workers import this module for the names of metadata groups, and not the ports.
    from streamgroups.ports import Committed

#: The maximum length of a request id. Each entry of an owner contains two ids and must fit beside an offset.
_MAX_ID = 64


@dataclass(frozen=True, slots=True)
class MetadataGroup:
    """A kind of metadata group. It is called with the name of a group.

    Args:
        suffix: the end of its name.

    >>> members_group_of("billing"), resets_group_of("billing")
    ('billing.streamgroups', 'billing.streamgroups.resets')
    """

    suffix: str

    def __call__(self, group: str) -> str:
        """Returns the name of the metadata group of a group."""
        return group + self.suffix


#: Owners write to it.
members_group_of = MetadataGroup(".streamgroups")
#: Reset requests are written to it.
resets_group_of = MetadataGroup(".streamgroups.resets")
#: Restarted queries write their skipped ranges to it.
skipped_ranges_group_of = MetadataGroup(".streamgroups.left")
#: Owners write the event time of their partitions to it.
event_time_group_of = MetadataGroup(".streamgroups.time")
#: The Kafka sink writes the last no-data batch of each checkpoint to it.
no_data_group_of = MetadataGroup(".streamgroups.no-data")
#: Gaps are written to it.
gaps_group_of = MetadataGroup(".streamgroups.gaps")
#: Ranges with dead letters are written to it. It also names the ledger in other sinks.
letters_group_of = MetadataGroup(".streamgroups.letters")
_ALL = (
    resets_group_of,
    skipped_ranges_group_of,
    event_time_group_of,
    no_data_group_of,
    gaps_group_of,
    letters_group_of,
    members_group_of,
)
_SUFFIXES = tuple(it.suffix for it in _ALL)


def metadata_groups_of(group: str) -> tuple[str, ...]:
    """All metadata groups of a group, in the order in which they must be deleted.

    Without the entries of the owners a reset request would count as not applied. It would then reset a group that is
    later created under the same name. Therefore the requests are deleted before the entries of the owners.

    >>> metadata_groups_of("billing")  # doctest: +NORMALIZE_WHITESPACE
    ('billing.streamgroups.resets', 'billing.streamgroups.left', 'billing.streamgroups.time', 'billing.streamgroups.no-data',
     'billing.streamgroups.gaps', 'billing.streamgroups.letters', 'billing.streamgroups')
    """
    return tuple(of(group) for of in _ALL)


def is_metadata_group(group: str) -> bool:
    """Whether a group is a metadata group. Such a group has no members.

    >>> is_metadata_group("billing"), is_metadata_group("billing.streamgroups")
    (False, True)
    """
    return group.endswith(_SUFFIXES)


def group_of(group: str) -> str:
    """The group to which a metadata group belongs. Any other group is returned itself.

    >>> group_of("billing.streamgroups.resets"), group_of("billing")
    ('billing', 'billing')
    """
    for suffix in _SUFFIXES:
        group = group.removesuffix(suffix)
    return group


@dataclass(frozen=True, slots=True)
class MemberEntry:
    """The metadata entry that the owner of a partition writes about itself.

    Args:
        instance: the name of the owner.
        member_id: the id that the group has assigned to it. Several members can have one name.
        used_ms: when it last made a request, in milliseconds since the epoch.
        until_ms: when it leaves the group if it makes no further request; ``None`` if it does not leave then (a Spark
            query).
        applied: the id of the last request that was applied to this partition.
        stopped: the id of the request for which the partition is paused.
        reading_until: the end of the range in flight: being read, or returned to the caller and not committed. If it is
            not greater than the committed offset, nothing is in flight.

    >>> entry = MemberEntry("worker-1", "worker-1-5f2c", 1_000, 31_000)
    >>> MemberEntry.parse(entry.encode()) == entry
    True
    """

    instance: str
    member_id: str
    used_ms: int
    until_ms: int | None
    applied: str = ""
    stopped: str = ""
    reading_until: int = 0

    def encode(self) -> str:
        """The entry as metadata."""
        return write_entry(
            {
                "instance": self.instance,
                "member": self.member_id,
                "used": self.used_ms,
                "until": self.until_ms,
                "applied": self.applied,
                "stopped": self.stopped,
                "reading": self.reading_until,
            }
        )

    @classmethod
    def parse(cls, metadata: str) -> MemberEntry | None:
        """Parses metadata; ``None`` if it is not such an entry, or has a newer version."""
        raw = read_entry(metadata)
        try:
            return cls(
                instance=string(raw["instance"]),
                member_id=string(raw["member"]),
                used_ms=time_ms(raw["used"]),
                until_ms=time_ms_or_none(raw["until"]),
                applied=string(raw["applied"], most=_MAX_ID),
                stopped=string(raw["stopped"], most=_MAX_ID),
                reading_until=whole(raw["reading"]),
            )
        except (KeyError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """A reset request for one partition: its owner continues at ``next_offset``.

    Args:
        id: distinguishes this request from all others (:func:`~streamgroups.groups.applied_reset.new_reset_id`). All partitions
            that are reset together have the same id.
        next_offset: the new position.
        moves: how many partitions of each topic the request resets. It is complete when the entries of all of them
            exist.
        void: whether it only cancels the one before it.
        state: the state with which the owner continues. Unnamed: the owner searches one.

    >>> order = ResetRequest("5f2c", 100, {"flights": 8})
    >>> ResetRequest.parse(order.next_offset, order.encode()) == order
    True
    """

    id: str
    next_offset: int
    moves: Mapping[str, int]
    void: bool = False
    state: StateOrigin = UNNAMED

    def encode(self) -> str:
        """The entry as metadata. The new position is the offset that is committed with it."""
        state = origins.encode(self.state)
        named = {"state": state} if state else {}
        return write_entry({"order": self.id, "moves": dict(self.moves), "void": self.void, **named})

    @classmethod
    def parse(cls, next_offset: int, metadata: str) -> ResetRequest | None:
        """Parses a reset request; ``None`` if it is not such an entry, or has a newer version."""
        raw = read_entry(metadata)
        try:
            moves = {string(topic): whole(n, most=MAX_INT32) for topic, n in items(raw["moves"])}
            id_ = string(raw["order"])
            state = origins.decode(string(raw.get("state", "")))
            return cls(id_, whole(next_offset), moves, flag(raw["void"]), state) if is_reset_id(id_) else None
        except (KeyError, ValueError):
            return None


def pending(
    resets: Mapping[TopicPartition, ResetRequest], applied: Mapping[TopicPartition, str]
) -> dict[TopicPartition, ResetRequest]:
    """The reset requests that are not applied yet.

    Args:
        resets: the last request for each partition.
        applied: the id of the last request that was applied to each partition.

    >>> p = TopicPartition("flights", 0)
    >>> list(pending({p: ResetRequest("5f2c", 100, {"flights": 1})}, {p: "5f2c"}))
    []
    """
    return {tp: order for tp, order in resets.items() if not order.void and applied.get(tp, "") != order.id}


def applied_ids(
    committed: Mapping[TopicPartition, Committed], entries: Mapping[TopicPartition, MemberEntry]
) -> dict[TopicPartition, str]:
    """The id of the last request that was applied to each partition.

    Args:
        committed: the committed offsets of the group.
        entries: the metadata entries of the owners.

    >>> from streamgroups.ports import Committed
    >>> p = TopicPartition("flights", 0)
    >>> mark = "streamgroups:shared;cluster=;topic=;reset=1.5f2c;end;"
    >>> applied_ids({p: Committed(100, mark)}, {}), applied_ids({p: Committed(100, "")}, {})
    ({TopicPartition(topic='flights', partition=0): '5f2c'}, {TopicPartition(topic='flights', partition=0): ''})
    """
    marks = {tp: CommitMark.parse(it.metadata) for tp, it in committed.items()}
    of_entries = {tp: entry.applied for tp, entry in entries.items() if marks.get(tp) is None}
    return {tp: "" if mark is None else mark.reset.id for tp, mark in marks.items()} | of_entries


@dataclass(frozen=True, slots=True)
class Step:
    """The next step of a member with its reset requests.

    Args:
        stop: partitions to pause, with the id of the request of each. The member writes this to its entries.
        resume: paused partitions whose request cannot be applied. The member resumes them and writes this to its
            entries.
        move: partitions to continue at their new position, because all partitions of the request are paused.
        incomplete: requests that cannot be applied, with the missing entries of each. Their partitions are read as
            before.
        waiting: requests that wait for other partitions to be paused, with the names of these partitions.
    """

    stop: Mapping[TopicPartition, str]
    resume: frozenset[TopicPartition]
    move: Mapping[TopicPartition, ResetRequest]
    incomplete: Mapping[str, str]
    waiting: Mapping[str, str]


def candidates(requests: Iterable[ResetRequest], counts: Mapping[str, int]) -> set[TopicPartition]:
    """Returns all partitions of the topics of requests. The partitions that they reset are among them.

    Args:
        requests: the requests. Each partition of a reset has one, with the same topics.
        counts: how many partitions each topic of the cluster has. A request cannot name other topics.

    >>> len(candidates([ResetRequest("5f2c", 100, {"flights": 8})] * 8, {"flights": 8}))
    8
    """
    topics = {topic for request in requests for topic in request.moves}
    return {TopicPartition(topic, p) for topic in topics & counts.keys() for p in range(counts[topic])}


def next_step(
    resets: Mapping[TopicPartition, ResetRequest],
    entries: Mapping[TopicPartition, MemberEntry],
    applied: Mapping[TopicPartition, str],
    owned: Collection[TopicPartition],
    group: GroupDescription,
    counts: Mapping[str, int],
    *,
    me: str,
) -> Step:
    """Decides the next step with reset requests (SEMANTICS G8, S6).

    A request for very many partitions is written in several commits, and applies when all entries exist. A request that
    never becomes complete pauses no member. The entries of a deleted topic are deleted with it, so a request no longer
    requires them.

    Args:
        resets: the last request for each partition, for all partitions to which the requests for ``owned`` may apply.
        entries: the metadata entry of the owner for each of them.
        applied: the id of the last request that was applied to each of them.
        owned: the partitions of this member.
        group: the members, according to the broker. The entry of a former owner does not apply to the present one.
        counts: how many partitions each topic of the cluster has.
        me: the id of this member.

    >>> from streamgroups.groups.description import GroupMember
    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> resets = {tp: ResetRequest("5f2c", 100, {"flights": 2}) for tp in (p0, p1)}
    >>> members = [GroupMember(name, "/10.0.0.1", frozenset([tp]), member_id=name) for name, tp in (("a", p0), ("b", p1))]
    >>> group, counts = GroupDescription("airline", "Stable", members=tuple(members)), {"flights": 2}
    >>> next_step(resets, {}, {}, [p0], group, counts, me="a").stop
    {TopicPartition(topic='flights', partition=0): '5f2c'}
    >>> stopped = {p0: MemberEntry("alice", "a", 0, None, stopped="5f2c")}
    >>> next_step(resets, stopped, {}, [p0], group, counts, me="a").waiting
    {'5f2c': 'flights-1 has not paused'}
    >>> both = {**stopped, p1: MemberEntry("bob", "b", 0, None, stopped="5f2c")}
    >>> list(next_step(resets, both, {}, [p0], group, counts, me="a").move)
    [TopicPartition(topic='flights', partition=0)]
    >>> next_step({p0: resets[p0]}, {}, {}, [p0], group, counts, me="a").incomplete
    {'5f2c': 'only 1 of 2 entries for flights exists'}
    """
    due = pending({tp: resets[tp] for tp in owned if tp in resets}, applied)
    # Counted once: a group can have as many requests as partitions.
    there: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for tp, request in resets.items():
        there[request.id][tp.topic] += 1
    requests = {request.id: request for request in due.values()}
    incomplete = {id_: missing for id_, it in requests.items() if (missing := _missing(it, there[id_], counts))}
    complete = {tp: request for tp, request in due.items() if request.id not in incomplete}
    paused = {
        tp: entries[tp].member_id
        for tp, request in resets.items()
        if tp in entries and entries[tp].stopped == request.id
    }
    resume = frozenset(tp for tp in due if tp not in complete and paused.get(tp) == me)
    stop = {tp: request.id for tp, request in complete.items() if paused.get(tp) != me}
    late: defaultdict[str, list[TopicPartition]] = defaultdict(list)
    reader = group.readers()
    for tp, request in sorted(resets.items()):
        if request.id in requests and applied.get(tp, "") != request.id and reader(tp) not in (None, paused.get(tp)):
            late[request.id].append(tp)
    move = {tp: request for tp, request in complete.items() if request.id not in late}
    waiting = {id_: _late(tps) for id_, tps in sorted(late.items()) if id_ not in incomplete}
    return Step(stop, resume, move, incomplete, waiting)


def _missing(request: ResetRequest, found: Mapping[str, int], counts: Mapping[str, int]) -> str:
    """The missing entries of a request; empty if it is complete.

    Args:
        request: the request.
        found: the number of its existing entries, by topic.
        counts: how many partitions each topic of the cluster has.
    """
    short = [
        f"only {found.get(topic, 0)} of {n} entries for {topic} {'exists' if found.get(topic) == 1 else 'exist'}"
        for topic, n in request.moves.items()
        if topic in counts and found.get(topic, 0) != n
    ]
    unnamed = [f"it does not contain {topic}" for topic in sorted(found) if topic not in request.moves]
    return ", ".join([*short, *unnamed][:3])


def _late(partitions: list[TopicPartition]) -> str:
    return f"{listed(partitions, 3)} {'has' if len(partitions) == 1 else 'have'} not paused"
