"""The history of a group: what each member owned, read and committed, and when.

Written as JSON lines by every member that is given ``historyDir`` (``streamgroups_kafka.membership.history_file``); read by
:mod:`streamgroups.groups.audit`, the timeline report and tests. One line is one :class:`Event`. Members of one group may
run on several machines, so times are comparable only as far as their clocks are.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from streamgroups.errors import InvalidOption
from streamgroups.json_values import (
    MAX_INT32,
    MAX_INT64,
    items,
    partition_number,
    read_json,
    string,
    whole,
    whole_or_none,
)
from streamgroups.partitions import OffsetRange, TopicPartition


class Kind(Enum):
    """What happened. What an event's ``offsets`` and ``ranges`` hold depends on it."""

    #: A member asked to join the group.
    JOINING = "joining"
    #: Partitions came in; ``offsets``: the next offset of each.
    ASSIGNED = "assigned"
    #: The group asked for partitions back; ``offsets``: their next offsets.
    REVOKING = "revoking"
    #: Partitions were given back; ``ranges``: what was in flight on them.
    RELEASED = "released"
    #: Partitions were lost without being given back; ``ranges``: what was in flight on them.
    LOST = "lost"
    #: A batch was in flight for longer than its lease, and the member leaves the group until it ends; ``ranges``: what was in flight.
    LEASE_EXPIRED = "lease_expired"
    #: A batch was planned; ``ranges``: what it reads.
    PLANNED = "planned"
    #: A batch was done; ``offsets``: what is to be committed.
    FINISHED = "finished"
    #: Offsets were committed.
    COMMITTED = "committed"
    #: A commit was refused; ``note``: why.
    REJECTED = "rejected"
    #: A restarted query compared its checkpoint with the group; ``offsets``: where it goes on; ``note``: differences.
    RESUMED = "resumed"
    #: Offsets that were to be read are gone; ``offsets``: where reading goes on; ``note``: what is gone and why.
    GAP = "gap"
    #: Somebody moved the group, and the member follows; ``offsets``: where it goes on; ``ranges``: what is skipped or read
    #: again; ``note``: the order's id.
    MOVED = "moved"
    #: The member left.
    CLOSED = "closed"
    #: The member begins to leave. What it releases from now on may be uncommitted.
    CLOSING = "closing"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to one member.

    Args:
        time_ms: when, milliseconds since the epoch by the member's clock.
        group_id: the group.
        member: the member's name (its ``client.id``).
        run: tells two runs of a member with the same name apart.
        kind: what happened.
        offsets: a next offset per partition.
        ranges: ranges of offsets.
        batch: the number of the batch it is about.
        note: words for people.

    >>> event = Event(17, "g", "alice", "r1", Kind.ASSIGNED, {TopicPartition("t", 0): 5})
    >>> parse(to_line(event)) == event
    True
    """

    time_ms: int
    group_id: str
    member: str
    run: str
    kind: Kind
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    ranges: tuple[OffsetRange, ...] = ()
    batch: int | None = None
    note: str = ""


class EventRecorder:
    """Makes an :class:`Event` of what it is told, and hands it on. Implements :class:`streamgroups.ports.Recorder`.

    Args:
        keep: takes the event.
        clock: stamps it: milliseconds since the epoch.
        group_id: the group.
        member: the member's name.
        run: tells two runs of a member with the same name apart.
        guard: held while an event is stamped and kept, so that they are kept in the order of their times.

    >>> kept = []
    >>> record = EventRecorder(kept.append, lambda: 17, "airline", "alice", "1")
    >>> record(Kind.CLOSED)
    >>> [(e.time_ms, e.member, e.kind.value) for e in kept]
    [(17, 'alice', 'closed')]
    """

    def __init__(
        self,
        keep: Callable[[Event], None],
        clock: Callable[[], int],
        group_id: str,
        member: str,
        run: str,
        guard: AbstractContextManager[object] | None = None,
    ) -> None:
        self._keep, self._clock, self._guard = keep, clock, guard or nullcontext()
        self._group_id, self._member, self._run = group_id, member, run

    def __call__(
        self,
        kind: Kind,
        *,
        offsets: Mapping[TopicPartition, int] | None = None,
        ranges: Iterable[OffsetRange] = (),
        batch: int | None = None,
        note: str = "",
    ) -> None:
        """Keeps one event, stamped with the time now."""
        about = dict(offsets or {}), tuple(ranges), batch, note
        with self._guard:
            self._keep(Event(self._clock(), self._group_id, self._member, self._run, kind, *about))


def no_history(kind: Kind, **_: object) -> None:
    """A recorder that records nothing."""


def to_line(event: Event) -> str:
    """The event as one line of JSON, without the line feed."""
    offsets: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for tp, next_offset in sorted(event.offsets.items()):
        offsets[tp.topic][str(tp.partition)] = next_offset
    line: dict[str, Any] = {
        "time_ms": event.time_ms,
        "group_id": event.group_id,
        "member": event.member,
        "run": event.run,
        "event": event.kind.value,
    }
    if offsets:
        line["offsets"] = offsets
    if event.ranges:
        line["ranges"] = [
            [r.topic_partition.topic, r.topic_partition.partition, r.next_offset, r.end_offset] for r in event.ranges
        ]
    if event.batch is not None:
        line["batch"] = event.batch
    if event.note:
        line["note"] = event.note
    return json.dumps(line, separators=(",", ":"))


def parse(line: str) -> Event:
    """Reads one line back.

    Raises:
        ValueError: if it is not a line of a history.
    """
    try:
        raw = read_json(line)
        return Event(
            time_ms=whole(raw["time_ms"], least=-MAX_INT64),
            group_id=string(raw["group_id"]),
            member=string(raw["member"]),
            run=string(raw["run"]),
            kind=Kind(raw["event"]),
            offsets={
                TopicPartition(topic, partition_number(p)): whole(next_offset)
                for topic, by_partition in items(raw.get("offsets", {}))
                for p, next_offset in items(by_partition)
            },
            ranges=tuple(
                OffsetRange(TopicPartition(string(t), whole(p, most=MAX_INT32)), whole(a), whole(b))
                for t, p, a, b in raw.get("ranges", [])
            ),
            batch=whole_or_none(raw.get("batch")),
            note=string(raw.get("note", ""), most=len(line)),
        )
    except (KeyError, TypeError, AttributeError, ValueError, InvalidOption) as e:
        raise ValueError(f"invalid history line: {line[:200]!r}") from e


def parse_lines(lines: Iterable[str]) -> list[Event]:
    """Reads the lines of one or many members, ordered by time; a last line that was cut short by a kill is passed over.

    Raises:
        ValueError: if a line that is whole (it ends with a line feed) is not one of a history.

    >>> parse_lines(['{"time_ms":17,"group_id":"g","offsets":{"t":{"0":5}'])
    []
    """
    events = []
    for line in lines:
        try:
            events.append(parse(line))
        except ValueError:
            if line.endswith("\n"):
                raise
    return sorted(events, key=lambda e: e.time_ms)
