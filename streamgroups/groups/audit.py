"""Analyses a recorded history: ownership of partitions over time, handovers without a commit, and records that were
read twice.

Used by tests, the final check of the demo and its report. Pure: it reads events (:mod:`streamgroups.groups.history`)
and returns findings. Source: SEMANTICS G11, G12, S1, S3.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from streamgroups.groups.history import Event, Kind
from streamgroups.partitions import OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True)
class OwnershipEpoch:
    """One assignment of a partition to a member, from its time to its end.

    Args:
        topic_partition: the partition.
        member: the owner. With ``run`` it names one process.
        run: see :class:`~streamgroups.groups.history.Event`.
        begin_ms: when it was assigned.
        end_ms: when it was released, lost or closed. For a member that died, the time of its last event.
        ended: ``released``, ``lost``, ``expired``, ``closed`` or ``silent`` (the history of the member just ends).
    """

    topic_partition: TopicPartition
    member: str
    run: str
    begin_ms: int
    end_ms: int
    ended: str


_ENDS = {Kind.RELEASED: "released", Kind.LOST: "lost", Kind.LEASE_EXPIRED: "expired", Kind.CLOSED: "closed"}
#: Events of a member that stays in the group.
_STAYS = (Kind.ASSIGNED, Kind.PLANNED, Kind.FINISHED, Kind.MOVED, Kind.RESUMED)


def ownership_epochs(events: Iterable[Event]) -> list[OwnershipEpoch]:
    """The assignments in a history, ordered by partition and time.

    >>> p = TopicPartition("t", 0)
    >>> e = [Event(1, "g", "a", "r", Kind.ASSIGNED, {p: 0}), Event(5, "g", "a", "r", Kind.RELEASED, {p: 9})]
    >>> [(t.member, t.begin_ms, t.end_ms, t.ended) for t in ownership_epochs(e)]
    [('a', 1, 5, 'released')]
    """
    by_run: defaultdict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in events:
        by_run[event.member, event.run].append(event)
    found: list[OwnershipEpoch] = []
    for (member, run), own in by_run.items():
        own.sort(key=lambda e: e.time_ms)
        begins: dict[TopicPartition, int] = {}
        for event in own:
            if event.kind is Kind.ASSIGNED:
                for tp in event.offsets:
                    begins.setdefault(tp, event.time_ms)
            elif event.kind in _ENDS:
                ended = list(begins) if event.kind is Kind.CLOSED else [tp for tp in event.offsets if tp in begins]
                found += [
                    OwnershipEpoch(tp, member, run, begins.pop(tp), event.time_ms, _ENDS[event.kind]) for tp in ended
                ]
        found += [OwnershipEpoch(tp, member, run, begin, own[-1].time_ms, "silent") for tp, begin in begins.items()]
    return sorted(found, key=lambda t: (t.topic_partition, t.begin_ms, t.end_ms))


def overlaps(of: Iterable[OwnershipEpoch]) -> list[tuple[OwnershipEpoch, OwnershipEpoch]]:
    """Pairs of assignments in which two members owned one partition at the same time.

    SEMANTICS G11 permits none.
    """
    found: list[tuple[OwnershipEpoch, OwnershipEpoch]] = []
    current: list[OwnershipEpoch] = []
    for later in sorted(of, key=lambda t: (t.topic_partition, t.begin_ms, t.end_ms)):
        current = [t for t in current if t.topic_partition == later.topic_partition and t.end_ms > later.begin_ms]
        found += [(earlier, later) for earlier in current if (earlier.member, earlier.run) != (later.member, later.run)]
        current.append(later)
    return found


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """A range that a member planned and did not commit before its ownership of the partition ended.

    Args:
        offsets: the range.
        member: the member that planned it. With ``run`` it names one process.
        run: see :class:`~streamgroups.groups.history.Event`.
        ended: how the ownership ended. ``lost``; ``expired`` (the batch took longer than its lease); ``silent`` (the
            history of the member just ends: it was killed); ``closed`` (the query was stopped during the batch);
            ``moved`` (an offset reset of the group replaced the position); or ``released`` (a handover that did not
            wait for its batch).
    """

    offsets: OffsetRange
    member: str
    run: str
    ended: str


def uncommitted(events: Iterable[Event]) -> list[Uncommitted]:
    """Every range that a member planned and did not commit, ordered by time for each member.

    Other members may read these ranges again, and no others (SEMANTICS G12). A range whose ``ended`` is ``released`` is
    an error of the member: before a handover, a live owner commits its batch (SEMANTICS G11).

    >>> p = TopicPartition("t", 0)
    >>> planned = Event(1, "g", "a", "r", Kind.PLANNED, ranges=(OffsetRange(p, 5, 9),), batch=1)
    >>> released = Event(2, "g", "a", "r", Kind.RELEASED, {p: 5}, ranges=(OffsetRange(p, 5, 9),))
    >>> [found.ended for found in uncommitted([planned, released, Event(3, "g", "a", "r", Kind.FINISHED, batch=1)])]
    ['released']
    >>> [found.ended for found in uncommitted([planned, released, Event(3, "g", "a", "r", Kind.CLOSED)])]
    ['closed']
    """
    by_run: defaultdict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in sorted(events, key=lambda e: e.time_ms):
        by_run[event.member, event.run].append(event)
    return [found for (member, run), own in by_run.items() for found in _uncommitted(member, run, own)]


def _uncommitted(member: str, run: str, own: Sequence[Event]) -> list[Uncommitted]:
    """The uncommitted ranges of one run. ``own`` is in the order of time."""
    # A process can end before its member has left, so the intention counts too.
    closes = any(event.kind in (Kind.CLOSING, Kind.CLOSED) for event in own)
    last_stay = max((i for i, event in enumerate(own) if event.kind in _STAYS), default=-1)
    found: list[Uncommitted] = []
    open_ranges: list[OffsetRange] = []
    unfinished: set[OffsetRange] = set()

    def end(ranges: Collection[OffsetRange], ended: str) -> None:
        nonlocal open_ranges
        gone = frozenset(ranges)
        open_ranges = [r for r in open_ranges if r not in gone]
        found.extend(Uncommitted(r, member, run, ended) for r in ranges)

    for i, event in enumerate(own):
        here = [r for r in open_ranges if r.topic_partition in event.offsets]
        if event.kind is Kind.PLANNED:
            # An earlier batch that was planned and never begun is dropped: none of it was read.
            open_ranges = [r for r in open_ranges if r not in unfinished] + [r for r in event.ranges if len(r)]
            unfinished = set(event.ranges)
        elif event.kind is Kind.FINISHED:
            unfinished = set()
        elif event.kind is Kind.COMMITTED:
            open_ranges = [r for r in open_ranges if event.offsets.get(r.topic_partition, -1) < r.end_offset]
        elif event.kind is Kind.RELEASED:
            end(here, "closed" if closes and i > last_stay else "released")
        elif event.kind in (Kind.LOST, Kind.ASSIGNED):
            end(here, "lost")
        elif event.kind is Kind.LEASE_EXPIRED:
            end(here, "expired")
        elif event.kind is Kind.MOVED:
            end(here, "moved")
    end(open_ranges, "closed" if closes else "silent")
    return found


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """Offsets that were planned more than once, and the members, in the order of time."""

    offsets: OffsetRange
    by: tuple[str, ...]


def read_again(events: Iterable[Event]) -> list[ReadAgain]:
    """Offsets that more than one batch read, merged into ranges of the same readers.

    Only ranges that a member had in flight when it died or lost a partition may be read again (SEMANTICS G12).

    >>> p = TopicPartition("t", 0)
    >>> def planned(t, who, a, b):
    ...     return Event(t, "g", who, "r", Kind.PLANNED, ranges=(OffsetRange(p, a, b),))
    >>> [str(r.offsets) for r in read_again([planned(1, "a", 0, 10), planned(2, "b", 6, 12)])]
    ['t-0[6,10)']
    """
    by_partition: defaultdict[TopicPartition, list[tuple[OffsetRange, str]]] = defaultdict(list)
    for event in sorted(events, key=lambda e: e.time_ms):
        if event.kind is Kind.PLANNED:
            for r in event.ranges:
                by_partition[r.topic_partition].append((r, event.member))
    return [again for _, reads in sorted(by_partition.items()) for again in _again(reads)]


def _again(reads: Sequence[tuple[OffsetRange, str]]) -> list[ReadAgain]:
    """A sweep over one partition: between two neighbouring edges the set of readers is the same."""
    edges = sorted(
        edge
        for i, (r, _) in enumerate(reads)
        if len(r)
        for edge in ((r.next_offset, i, True), (r.end_offset, i, False))
    )
    found: list[ReadAgain] = []
    reading: list[int] = []
    at = 0
    for offset, i, begins in edges:
        if offset > at and len(reading) > 1:
            by = tuple(reads[j][1] for j in reading)
            first = at
            if found and found[-1].by == by and found[-1].offsets.end_offset == at:
                first = found.pop().offsets.next_offset
            found.append(ReadAgain(OffsetRange(reads[i][0].topic_partition, first, offset), by))
        if begins:
            insort(reading, i)
        else:
            reading.remove(i)
        at = offset
    return found
