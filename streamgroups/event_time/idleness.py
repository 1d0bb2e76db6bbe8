"""Whether a partition, or a whole source, is idle: its position is compared with its end offset.

:mod:`streamgroups.event_time.source_time` calls this module with each observation of a partition. Source: SEMANTICS
W3. In Flink a partition is idle if no records arrive. A partition that is not fetched for a while (backpressure, or a
limit per trigger) counts as idle there, and its records arrive late (FLIP-471). Here a partition with available records
is *slow*: it holds back the watermark, for any length of time.

An observation contains the position and the end of the partition. The time between two observations changes nothing:
without an observation, it is unknown whether records are available.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Observation:
    """A partition at one moment: the records read since the last observation, and the end of the partition.

    Args:
        next_offset: the position. All records before it were read, and count in ``event_time_ms`` of this or an earlier
            observation.
        end_offset: the end of the partition, requested after the read. It is the high watermark, which includes records
            of open transactions, because those are available later.
        records: the number of records with an event time that were read since the last observation.
        event_time_ms: the latest of their event times; ``None`` without such records.
        producer_ms: the latest watermark of the producer that was read since the last observation; ``None`` without one.
    """

    next_offset: int
    end_offset: int
    records: int = 0
    event_time_ms: int | None = None
    producer_ms: int | None = None

    @property
    def available(self) -> bool:
        """Whether the partition has available records."""
        return self.next_offset < self.end_offset


def idle_since(before_ms: int | None, observation: Observation, *, moved: bool, now_ms: int) -> int | None:
    """Returns since when a partition has no available and no new records. ``None`` while it has available records.

    Args:
        before_ms: the result of the last observation.
        observation: this observation.
        moved: whether the position has changed since the last observation.
        now_ms: the time now.

    >>> idle_since(None, Observation(10, 10), moved=True, now_ms=60)
    60
    >>> idle_since(60, Observation(10, 10), moved=False, now_ms=90)
    60
    >>> idle_since(60, Observation(10, 11), moved=False, now_ms=120) is None
    True
    """
    if observation.available:
        return None
    # The last observation may be another member's, by a clock that is ahead of this one.
    return now_ms if moved or before_ms is None else min(before_ms, now_ms)


def is_idle(idle_since_ms: int | None, seen_ms: int, timeout_ms: int | None) -> bool:
    """Returns whether a partition no longer holds back the watermark.

    Args:
        idle_since_ms: see :func:`idle_since`.
        seen_ms: when the partition was last observed.
        timeout_ms: the partition idle timeout; ``None`` if no partition is ever idle.

    >>> is_idle(60, 90, 30), is_idle(60, 89, 30), is_idle(None, 90, 30), is_idle(60, 90, None)
    (True, False, False, False)
    """
    return timeout_ms is not None and idle_since_ms is not None and seen_ms - idle_since_ms >= timeout_ms
