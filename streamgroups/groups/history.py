"""The history of a group: the partitions that each member owned, read and committed, and when.

Written as JSON lines by every member with the option ``historyDir`` (``streamgroups_kafka.membership.history_file``).
Read by :mod:`streamgroups.groups.audit`, the ownership report and tests. One line is one :class:`Event`. Members of one
group may run on several machines, so times are only as comparable as their clocks. Source: SEMANTICS G11, G12.
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
    """The kind of an event. It determines the content of ``offsets`` and ``ranges``."""

    #: A member began to join the group.
    JOINING = "joining"
    #: Partitions were assigned; ``offsets``: the next offset of each.
    ASSIGNED = "assigned"
    #: The group began to revoke partitions; ``offsets``: their next offsets.
    REVOKING = "revoking"
    #: Partitions were released; ``ranges``: the ranges in flight on them.
    RELEASED = "released"
    #: Partitions were lost without a release; ``ranges``: the ranges in flight on them.
    LOST = "lost"
    #: A batch was in flight for longer than its lease, and the member leaves the group until it ends; ``ranges``: the
    #: ranges in flight.
    LEASE_EXPIRED = "lease_expired"
    #: A batch was planned; ``ranges``: the ranges that it reads.
    PLANNED = "planned"
    #: A batch was done; ``offsets``: the offsets to commit.
    FINISHED = "finished"
    #: Offsets were committed.
    COMMITTED = "committed"
    #: A commit was rejected; ``detail``: the reason.
    REJECTED = "rejected"
    #: A restarted query compared its checkpoint with the group; ``offsets``: where it continues; ``detail``: differences.
    RESUMED = "resumed"
    #: Offsets to be read no longer exist; ``offsets``: where reading continues; ``ranges``: the skipped offsets, as far as
    #: they are known; ``detail``: the lost offsets and the cause.
    GAP = "gap"
    #: The member applied a reset request; ``offsets``: where it continues; ``ranges``: skipped ranges, or ranges to
    #: read again; ``detail``: the id of the request.
    MOVED = "moved"
    #: The member left.
    CLOSED = "closed"
    #: The member began to leave. Ranges that it releases from now on may be uncommitted.
    CLOSING = "closing"


@dataclass(frozen=True, slots=True)
class MemberEvent:
    """What happened to a member.

    Args:
        kind: the kind of the event.
        offsets: a next offset per partition.
        ranges: ranges of offsets.
        batch: the number of the batch.
        detail: a text for operators.
    """

    kind: Kind
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    ranges: tuple[OffsetRange, ...] = ()
    batch: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """An event in a history: what happened to a member, and when.

    Args:
        time_ms: when, in milliseconds since the epoch by the clock of the member.
        group_id: the group.
        member: the name of the member (its ``client.id``).
        run: distinguishes two runs of a member with the same name.
        kind, offsets, ranges, batch, detail: see :class:`MemberEvent`.

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
    detail: str = ""


class EventRecorder:
    """Creates an :class:`Event` from each call: an implementation of :class:`streamgroups.ports.Recorder`.

    Args:
        keep: stores the event.
        clock: the time of the event: milliseconds since the epoch.
        group_id: the group.
        member: the name of the member.
        run: distinguishes two runs of a member with the same name.
        guard: held while an event is created and stored, so that events are stored in the order of their times.

    >>> kept = []
    >>> record = EventRecorder(kept.append, lambda: 17, "airline", "alice", "1")
    >>> record(MemberEvent(Kind.CLOSED))
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

    def __call__(self, event: MemberEvent) -> None:
        """Stores one event with the current time."""
        content = event.kind, event.offsets, event.ranges, event.batch, event.detail
        with self._guard:
            self._keep(Event(self._clock(), self._group_id, self._member, self._run, *content))


def no_history(event: MemberEvent) -> None:
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
    if event.detail:
        line["detail"] = event.detail
    return json.dumps(line, separators=(",", ":"))


def parse(line: str) -> Event:
    """Parses one line.

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
            detail=string(raw.get("detail", ""), most=len(line)),
        )
    except (KeyError, TypeError, AttributeError, ValueError, InvalidOption) as e:
        raise ValueError(f"invalid history line: {line[:200]!r}") from e


def parse_lines(lines: Iterable[str]) -> list[Event]:
    """Parses the lines of one or many members, ordered by time. The last line is ignored if a kill truncated it.

    Raises:
        ValueError: if a complete line (it ends with a line feed) is not a line of a history.

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
