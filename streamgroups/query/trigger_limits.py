"""Decides how much a micro-batch reads: the limits per trigger.

Called by ``streamgroups.query.batch_ranges`` once per trigger. Source: SEMANTICS S4; Spark's options
``maxOffsetsPerTrigger``, ``minOffsetsPerTrigger`` and ``maxTriggerDelay``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamgroups.partitions import OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits per trigger. They count offsets, as Spark does, including gaps between offsets.

    Args:
        max_offsets: the maximum of a batch. A partition with records gets at least one offset.
        min_offsets: the minimum of a batch. A smaller batch waits ...
        max_delay_ms: ... until this time has passed since the last batch.
        max_drift_ms: how far a partition can be ahead of the watermark (:mod:`streamgroups.query.alignment`).
        target_batch_ms: the maximum duration of a batch (:mod:`streamgroups.query.batch_time`).
    """

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 15 * 60 * 1000
    max_drift_ms: int | None = None
    target_batch_ms: int | None = None


UNLIMITED = Limits()


def admit(
    available: Mapping[TopicPartition, tuple[int, int]],
    limits: Limits,
    *,
    last_batch_ms: int | None,
    now_ms: int,
) -> tuple[OffsetRange, ...]:
    """The ranges of the next batch; empty if the batch should wait.

    Args:
        available: next offset and end offset of each partition that may be read.
        limits: the limits of the user.
        last_batch_ms: when the last batch was planned; ``None`` before the first one, which never waits.
        now_ms: the current time of the same clock.

    Returns:
        Non-empty ranges, ordered by partition. Under ``max_offsets`` each partition gets a share in proportion to its
        available offsets, and at least one.

    >>> p0, p1 = TopicPartition("t", 0), TopicPartition("t", 1)
    >>> [str(r) for r in admit({p0: (0, 90), p1: (5, 15)}, Limits(max_offsets=10), last_batch_ms=None, now_ms=0)]
    ['t-0[0,8)', 't-1[5,7)']
    """
    backlog = {tp: end - next_offset for tp, (next_offset, end) in sorted(available.items()) if end > next_offset}
    total = sum(backlog.values())
    if _should_wait(total, limits, last_batch_ms=last_batch_ms, now_ms=now_ms):
        return ()
    shares = backlog if limits.max_offsets is None else share(backlog, limits.max_offsets)
    return tuple(OffsetRange(tp, available[tp][0], available[tp][0] + n) for tp, n in shares.items())


def _should_wait(total: int, limits: Limits, *, last_batch_ms: int | None, now_ms: int) -> bool:
    if limits.min_offsets is None or total >= limits.min_offsets or last_batch_ms is None:
        return False
    return now_ms - last_batch_ms < limits.max_delay_ms


def share(backlog: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
    """Divides ``most`` offsets in proportion to the backlog of each partition, by largest remainder, at least one each.

    Returns:
        Offsets per partition, at most its backlog. Their sum is ``most``, unless the backlog is smaller or there are
        more partitions than ``most``.

    >>> share({TopicPartition("t", 0): 1000, TopicPartition("t", 1): 1}, 100)[TopicPartition("t", 1)]
    1
    """
    total = sum(backlog.values())
    if total <= most:
        return dict(backlog)
    # Each partition gets one offset first. The remaining offsets are divided in proportion to the remaining backlog.
    rest, rest_total = most - len(backlog), total - len(backlog)
    if rest <= 0:
        return dict.fromkeys(backlog, 1)
    exact = {tp: (n - 1) * rest for tp, n in backlog.items()}
    shares = {tp: 1 + e // rest_total for tp, e in exact.items()}
    missing = most - sum(shares.values())
    for tp in sorted(backlog, key=lambda tp: (-(exact[tp] % rest_total), tp))[:missing]:
        shares[tp] += 1
    return shares
