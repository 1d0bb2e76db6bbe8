"""Finds batches at old positions in a history with a reset of offsets (SEMANTICS S6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from streamgroups.groups.history import Event, Kind


def reads_at_old_places(events: Iterable[Event]) -> list[Event]:
    """Batches at old positions that were in flight when another member had begun at its new position (SEMANTICS S6).

    A reset lasts from the first member that continues at a new position until the last one. In between, no member reads
    a partition that is not reset yet: no batch on it begins, and no batch on it is in flight.

    Args:
        events: the events of all members.

    Returns:
        The event that planned each such batch, in the order of time. SEMANTICS S6 permits none. Batches that were never
        finished are left out: their member was killed or fenced.
    """
    ordered = sorted(events, key=lambda e: e.time_ms)
    finished_ms = {(e.member, e.run, e.batch): e.time_ms for e in ordered if e.kind is Kind.FINISHED}
    moves: defaultdict[str, list[Event]] = defaultdict(list)
    for event in ordered:
        if event.kind is Kind.MOVED:
            moves[event.detail].append(event)
    found: list[Event] = []
    for of_order in moves.values():
        began_ms = of_order[0].time_ms
        moved_ms = {tp: event.time_ms for event in reversed(of_order) for tp in event.offsets}
        for event in ordered:
            old = [r for r in event.ranges if event.time_ms < moved_ms.get(r.topic_partition, 0)]
            until_ms = finished_ms.get((event.member, event.run, event.batch), event.time_ms)
            if event.kind is Kind.PLANNED and old and until_ms > began_ms:
                found.append(event)
    return found
