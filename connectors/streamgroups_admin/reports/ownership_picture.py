"""The content of an ownership timeline: the members, the owners of partitions, and the batches in flight at the end.

:func:`picture` creates it from a recorded history; :mod:`streamgroups_admin.reports.ownership` draws it and exports
:class:`Mark`. Source: SEMANTICS G11, G12.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from streamgroups.groups.audit import OwnershipEpoch, ownership_epochs
from streamgroups.groups.history import Event, Kind
from streamgroups.partitions import OffsetRange, TopicPartition

_ENDED = {
    "released": "then released it",
    "lost": "then lost it",
    "expired": "then left the group, because its batch took too long",
    "closed": "then left the group",
    "silent": "its history ends here",
}


class MarkKind(Enum):
    """The kind of a mark; the value is its class in the style sheet."""

    START = "start"
    KILL = "kill"
    STOP = "stop"
    ANNOTATION = "note"


@dataclass(frozen=True, slots=True)
class Mark:
    """An action on the group from outside, which members cannot record themselves.

    Args:
        time_ms: the time of the action, by the clock of the histories.
        kind: the kind of the action.
        text: a few words, printed above the timeline.
        member: the affected member. A killed member is drawn as alive until then.
    """

    time_ms: int
    kind: MarkKind
    text: str
    member: str = ""


@dataclass(frozen=True, slots=True)
class Stay:
    """An assignment with its commits as (time, next offset), and the batch in flight when it ended."""

    ownership_epoch: OwnershipEpoch
    end_ms: int
    ended: str
    first_offset: int
    commits: tuple[tuple[int, int], ...]
    abandoned: OffsetRange | None
    abandoned_since_ms: int


@dataclass(frozen=True, slots=True)
class Life:
    """One run of a member: when its process started (if a mark contains that), when it joined, when it ended."""

    started_ms: int
    joined_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Picture:
    """The content of the drawing, and its scale."""

    stays: Mapping[TopicPartition, Sequence[Stay]]
    lives: Mapping[str, Sequence[Life]]
    marks: Sequence[Mark]
    begin_ms: int
    end_ms: int


def picture(events: Sequence[Event], marks: Sequence[Mark]) -> Picture:
    """Returns the content of the drawing.

    Args:
        events: at least one, ordered by time.
        marks: ordered by time.
    """
    by_run: defaultdict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in events:
        by_run[event.member, event.run].append(event)
    lives: defaultdict[str, list[Life]] = defaultdict(list)
    ends: dict[tuple[str, str], int | None] = {}
    for (member, run), own in by_run.items():
        killed_ms = ends[member, run] = _killed_ms(member, own, by_run, marks)
        starts = [m.time_ms for m in marks if m.kind is MarkKind.START and m.member == member]
        started_ms = max((t for t in starts if t <= own[0].time_ms), default=own[0].time_ms)
        lives[member].append(Life(started_ms, own[0].time_ms, max(own[-1].time_ms, killed_ms or 0)))
    stays: defaultdict[TopicPartition, list[Stay]] = defaultdict(list)
    progress = {key: _progress(own) for key, own in by_run.items()}
    for ownership_epoch in ownership_epochs(events):
        key, tp = (ownership_epoch.member, ownership_epoch.run), ownership_epoch.topic_partition
        stays[tp].append(_stay(ownership_epoch, progress[key][tp], ends[key]))
    for of_partition in stays.values():
        if of_partition[-1].ended == _ENDED["silent"]:
            # According to the history, it still reads, because no member has read the range again.
            of_partition[-1] = replace(of_partition[-1], abandoned=None)
    times = [e.time_ms for e in events] + [m.time_ms for m in marks]
    in_order = dict(sorted(lives.items(), key=lambda item: item[1][0].started_ms))
    return Picture(stays, in_order, marks, min(times), max(times))


def _killed_ms(
    member: str, own: Sequence[Event], by_run: Mapping[tuple[str, str], Sequence[Event]], marks: Sequence[Mark]
) -> int | None:
    """Returns when a run was killed: after its last event, and before a new member of the same name started."""
    last_ms = own[-1].time_ms
    if own[-1].kind is Kind.CLOSED:
        return None
    next_ms = min(
        (r[0].time_ms for (m, _), r in by_run.items() if m == member and r[0].time_ms > last_ms), default=None
    )
    kills = [m.time_ms for m in marks if m.kind is MarkKind.KILL and m.member == member and m.time_ms >= own[0].time_ms]
    return next((t for t in kills if next_ms is None or t < next_ms), None)


@dataclass(slots=True)
class _Progress:
    """The progress of a run with one partition: times and offsets, in the order of its events."""

    assigned: list[tuple[int, int]] = field(default_factory=list)
    committed: list[tuple[int, int]] = field(default_factory=list)
    planned: list[tuple[int, OffsetRange]] = field(default_factory=list)


def _progress(own: Iterable[Event]) -> Mapping[TopicPartition, _Progress]:
    found: defaultdict[TopicPartition, _Progress] = defaultdict(_Progress)
    for event in own:
        if event.kind is Kind.PLANNED:
            for r in event.ranges:
                found[r.topic_partition].planned.append((event.time_ms, r))
        elif event.kind in (Kind.ASSIGNED, Kind.COMMITTED):
            for tp, offset in event.offsets.items():
                of = found[tp].assigned if event.kind is Kind.ASSIGNED else found[tp].committed
                of.append((event.time_ms, offset))
    return found


def _stay(ownership_epoch: OwnershipEpoch, progress: _Progress, killed_ms: int | None) -> Stay:
    tp, begin_ms, end_ms = ownership_epoch.topic_partition, ownership_epoch.begin_ms, ownership_epoch.end_ms
    commits = tuple(it for it in progress.committed if begin_ms <= it[0] <= end_ms)
    first = next(offset for time_ms, offset in progress.assigned if begin_ms <= time_ms <= end_ms)
    done = max([first, *(offset for _, offset in commits)])
    abandoned, since_ms = None, end_ms
    planned = [it for it in progress.planned if begin_ms <= it[0] <= end_ms]
    if planned and planned[-1][1].end_offset > done:
        since_ms, latest = planned[-1]
        abandoned = OffsetRange(tp, max(done, latest.next_offset), latest.end_offset)
    if ownership_epoch.ended != "silent" or killed_ms is None:
        return Stay(
            ownership_epoch, ownership_epoch.end_ms, _ENDED[ownership_epoch.ended], first, commits, abandoned, since_ms
        )
    return Stay(
        ownership_epoch, max(ownership_epoch.end_ms, killed_ms), "then was killed", first, commits, abandoned, since_ms
    )
