"""Converts the history that the product writes (option ``historyDir``) to events. Called by campaigns at their end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from integration_tests.history.events import Assigned, Event, Gap, Moved, Read, Revoked
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
