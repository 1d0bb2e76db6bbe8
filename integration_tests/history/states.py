"""Checks of states and watermarks (I9, S10). Called by :mod:`~integration_tests.history.checker`."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate

from integration_tests.history.anomalies import Anomaly, Name, merged
from integration_tests.history.events import Acknowledged, StateError, StateLoaded, StateWritten
from integration_tests.history.view import History
from streamgroups.partitions import TopicPartition


def check_states(history: History) -> Iterator[Anomaly]:
    """S10: a batch continues with the state that its position names."""
    found: defaultdict[TopicPartition, set[int]] = defaultdict(set)
    for it in history.of(StateLoaded):
        if it.named_offset is not None and it.loaded_offset != it.named_offset:
            found[it.topic_partition].add(it.next_offset)
    for tp, offsets in sorted(found.items()):
        yield from merged(Name.STALE_STATE, "S10", tp, offsets)
    errors = [it.error for it in history.of(StateError)]
    if errors:
        yield Anomaly(Name.STALE_STATE, "S10", len(errors), errors[0])


def check_watermarks(history: History) -> Iterator[Anomaly]:
    """I9: a watermark is at most the latest event time of the records before its offset, less the delay.

    A record that no batch has read and that is on time by this rule is never late for such a watermark.
    """
    delay_ms = history.workload.delay_ms
    assert delay_ms is not None
    found: defaultdict[TopicPartition, set[int]] = defaultdict(set)
    latest = {tp: _latest_times(history, tp) for tp in history.partitions}
    for it in history.of(StateWritten):
        offsets, times_ms = latest.get(it.topic_partition, ([], []))
        n = bisect_left(offsets, it.next_offset)
        if it.watermark_ms is not None and (n == 0 or it.watermark_ms > times_ms[n - 1] - delay_ms):
            found[it.topic_partition].add(it.next_offset)
    for tp, wrong in sorted(found.items()):
        yield from merged(Name.WATERMARK_AHEAD, "I9", tp, wrong)


def _latest_times(history: History, topic_partition: TopicPartition) -> tuple[list[int], list[int]]:
    """The offsets of a partition, and the latest event time up to each of them."""
    times = {
        n: time_ms
        for it in history.of(Acknowledged)
        if it.topic_partition == topic_partition
        for n, time_ms in zip(it.offsets, it.times_ms, strict=True)
    }
    offsets = sorted(times)
    return offsets, list(accumulate((times[n] for n in offsets), max))
