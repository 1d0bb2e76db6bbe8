"""Converts the history that the product writes (option ``historyDir``) to events. Called by campaigns at their end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from integration_tests.history.events import Assigned, AssignmentBegun, Event, Gap, Moved, Read, Revoked
from streamgroups.groups.history import Event as MemberEvent
from streamgroups.groups.history import Kind

_REVOKED = (Kind.RELEASED, Kind.LOST, Kind.LEASE_EXPIRED)


def converted(events: Iterable[MemberEvent]) -> Iterator[Event]:
    """The events of members that the checker needs.

    >>> from streamgroups.partitions import OffsetRange, TopicPartition
    >>> planned = MemberEvent(7, "g", "ann", "r", Kind.PLANNED, ranges=(OffsetRange(TopicPartition("t", 0), 0, 9),), batch=3)
    >>> [str(r) for it in converted([planned]) for r in it.ranges]
    ['t-0[0,9)']
    """
    for it in events:
        who = it.time_ms, it.member
        if it.kind is Kind.ASSIGNED:
            yield Assigned(*who, it.group_id, it.offsets)
        elif it.kind in _REVOKED:
            yield Revoked(*who, it.group_id, it.offsets, it.kind.value)
        elif it.kind is Kind.PLANNED and it.batch is not None:
            yield Read(*who, it.group_id, it.batch, it.ranges)
        elif it.kind is Kind.MOVED:
            yield Moved(*who, it.group_id, it.offsets, it.ranges)
        elif it.kind is Kind.GAP:
            yield Gap(*who, it.group_id, it.ranges)


def with_generations(events: Iterable[Event]) -> Iterator[Event]:
    """Adds the generation of their member's last assignment to assignments and batches.

    Args:
        events: the events, in the order of their times.

    >>> from integration_tests.history.events import AssignmentBegun, Assigned
    >>> events = [AssignmentBegun(7, "ann", "g", 3), Assigned(7, "ann", "g", {}), Assigned(8, "bob", "g", {})]
    >>> [it.generation for it in with_generations(events)]
    [3, 3, None]
    """
    generations: dict[str, int | None] = {}
    for it in events:
        if isinstance(it, AssignmentBegun):
            generations[it.process] = it.generation
        yield replace(it, generation=generations.get(it.process)) if isinstance(it, Assigned | Read) else it
