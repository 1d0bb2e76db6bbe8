"""Whether a partition, or a whole source, is idle: judged against where the partition ends, never by silence alone.

Called by :mod:`streamgroups.event_time.partition_time` with each look at a partition. Source: SEMANTICS W3. Flink judges by
silence, so a partition whose records it does not fetch for a while (backpressure, or a limit per trigger) is taken for idle, and its records
come late (FLIP-471). Here a partition with unread records is *slow*: it holds the watermark back, however long that takes.

A look says what was read and where the partition ended. Between two looks nothing changes: that time has passed without one
proves nothing, for nobody has looked whether there is something to read.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Observation:
    """A partition at one moment: what of it was read since the last look, and where it ended.

    Args:
        next_offset: the position: everything before it was read, and is in ``event_time_ms`` of this look or an earlier one.
        end_offset: where the partition ended, asked after that: the high watermark, records of open transactions included, for those
            are unread too.
        records: how many records with an event time were read since the last look.
        event_time_ms: the latest of their event times; ``None`` if there were none.
    """

    next_offset: int
    end_offset: int
    records: int = 0
    event_time_ms: int | None = None

    @property
    def unread(self) -> bool:
        """Whether the partition has records that nobody has read."""
        return self.next_offset < self.end_offset


@dataclass(frozen=True, slots=True)
class Idle:
    """A source has nothing unread and no new record, in none of its partitions.

    Args:
        since_ms: since when.
        until_ms: until when that is known: each partition was looked at then, or later.
    """

    since_ms: int
    until_ms: int


def idle_since(before_ms: int | None, observation: Observation, *, moved: bool, now_ms: int) -> int | None:
    """Since when a partition has nothing unread and no new record; ``None`` while it has unread ones.

    Args:
        before_ms: the same at the last look.
        sighting: this look.
        moved: whether the position has moved since the last look.
        now_ms: when it is.

    >>> idle_since(None, Observation(10, 10), moved=True, now_ms=60)
    60
    >>> idle_since(60, Observation(10, 10), moved=False, now_ms=90)
    60
    >>> idle_since(60, Observation(10, 11), moved=False, now_ms=120) is None
    True
    """
    if observation.unread:
        return None
    # The last look may have been another member's, by a clock that is ahead of ours.
    return now_ms if moved or before_ms is None else min(before_ms, now_ms)


def is_idle(idle_since_ms: int | None, seen_ms: int, timeout_ms: int | None) -> bool:
    """Whether a partition no longer holds the watermark back.

    Args:
        idle_since_ms: see :func:`idle_since`.
        seen_ms: when it was last looked at.
        timeout_ms: the partition idle timeout; ``None`` if no partition is ever idle.

    >>> is_idle(60, 90, 30), is_idle(60, 89, 30), is_idle(None, 90, 30), is_idle(60, 90, None)
    (True, False, False, False)
    """
    return timeout_ms is not None and idle_since_ms is not None and seen_ms - idle_since_ms >= timeout_ms
