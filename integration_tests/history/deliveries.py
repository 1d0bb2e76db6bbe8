"""Checks of messages that are delivered at least once (I1, I2, I3, I5). Called by :mod:`~integration_tests.history.checker`.

The next request of a session commits the messages of the last one. So only the messages of its last request may be delivered again, and
by another session.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from integration_tests.history.anomalies import Anomaly, Name, merged
from integration_tests.history.events import Delivered, Position
from integration_tests.history.view import History
from streamgroups.partitions import OffsetRange, TopicPartition


def check_deliveries(history: History) -> Iterator[Anomaly]:
    """Finds lost messages, those that are delivered again after their commit, and wrong orders."""
    delivered: defaultdict[TopicPartition, list[tuple[Delivered, OffsetRange]]] = defaultdict(list)
    last: dict[str, int] = {}
    for it in history.of(Delivered):
        last[it.session] = max(it.request, last.get(it.session, 0))
        for r in it.ranges:
            delivered[r.topic_partition].append((it, r))
    for tp in history.partitions:
        ranges = [r for _, r in delivered[tp]]
        below = history.acknowledged_in(tp, 0, history.final.get(tp, 0))
        found = _offsets(ranges)
        yield from merged(
            Name.LOST_WRITE, "I1", tp, (n for n in below if n not in found and not history.is_excused(tp, n))
        )
        known = {*history.acknowledged[tp]}
        yield from merged(Name.ABORTED_READ, "I2", tp, found - known)
        yield from merged(Name.DUPLICATE, "I2", tp, _repeated(delivered[tp], last))
        disordered = _disordered(delivered[tp]) | _passed(delivered[tp], last, history.acknowledged[tp])
        yield from merged(Name.NON_MONOTONIC_WRITE, "I5", tp, disordered)


def _offsets(ranges: list[OffsetRange]) -> set[int]:
    return {n for r in ranges for n in range(r.next_offset, r.end_offset)}


def _repeated(delivered: list[tuple[Delivered, OffsetRange]], last: dict[str, int]) -> set[int]:
    """The offsets that are delivered again although a later request of their session has committed them."""
    committed: set[int] = set()
    pending: dict[str, set[int]] = {}
    found: set[int] = set()
    for it, r in delivered:
        offsets = {*range(r.next_offset, r.end_offset)}
        found |= offsets & committed
        found |= offsets & pending.get(it.session, set())
        if it.request < last[it.session]:
            committed |= offsets
        else:
            pending.setdefault(it.session, set()).update(offsets)
    return found


def _disordered(delivered: list[tuple[Delivered, OffsetRange]]) -> set[int]:
    """The first offsets of ranges that a session has received after later ones."""
    by_session: defaultdict[str, list[OffsetRange]] = defaultdict(list)
    for it, r in delivered:
        by_session[it.session].append(r)
    return {
        after.next_offset
        for ranges in by_session.values()
        for before, after in pairwise(ranges)
        if after.next_offset < before.end_offset
    }


def _passed(delivered: list[tuple[Delivered, OffsetRange]], last: dict[str, int], acknowledged: list[int]) -> set[int]:
    """The offsets before a committed range that no session had received until then."""
    received: set[int] = set()
    found: set[int] = set()
    place = 0
    for it, r in delivered:
        while place < len(acknowledged) and acknowledged[place] < r.next_offset and it.request < last[it.session]:
            if acknowledged[place] not in received:
                found.add(acknowledged[place])
            place += 1
        received.update(range(r.next_offset, r.end_offset))
    return found


def check_ahead_of_deliveries(history: History) -> Iterator[Anomaly]:
    """I3: each record below an observed position was delivered before."""
    delivered: defaultdict[TopicPartition, set[int]] = defaultdict(set)
    checked: dict[TopicPartition, int] = {}
    found: defaultdict[TopicPartition, set[int]] = defaultdict(set)
    for it in history.events:
        if isinstance(it, Delivered) and it.group == history.workload.group:
            for r in it.ranges:
                delivered[r.topic_partition].update(range(r.next_offset, r.end_offset))
        elif isinstance(it, Position) and it.group == history.workload.group:
            for tp, end in it.offsets.items():
                new = history.acknowledged_in(tp, checked.get(tp, 0), end)
                found[tp].update(n for n in new if n not in delivered[tp] and not history.is_excused(tp, n))
                checked[tp] = max(end, checked.get(tp, 0))
    for tp, offsets in sorted(found.items()):
        yield from merged(Name.AHEAD_OF_OUTPUT, "I3", tp, offsets)
