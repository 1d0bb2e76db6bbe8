"""Observations of partitions: those of tasks are merged, and decide whether a partition, or a whole source, is idle.

``streamgroups_spark.source.source_watermark`` merges the observations of tasks. Tasks run on any executor, can run twice, and
report their records in several parts. :mod:`streamgroups.event_time.source_time` evaluates each observation of a partition.
Source: SEMANTICS W2, W3. In Flink a partition is idle if no records arrive. A partition that is not fetched for a while
(backpressure, or a limit per trigger) counts as idle there, and its records arrive late (FLIP-471). Here a partition with
available records is *slow*: it holds back the watermark, for any length of time.

An observation contains the position and the end of the partition. The time between two observations changes nothing:
without an observation, it is unknown whether records are available.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from streamgroups.partitions import OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True)
class TaskObservation:
    """Records of one partition that a task has read, or watermarks of its producer.

    Args:
        topic_partition: the partition.
        next_offset: the offset of the first of these records, or of the record with the first of these watermarks.
        records: the number of these records that have an event time.
        event_time_ms: the latest of their event times, in milliseconds since the epoch; ``None`` without such records.
        producer_ms: the latest of the watermarks, in milliseconds since the epoch; ``None`` without watermarks.
    """

    topic_partition: TopicPartition
    next_offset: int
    records: int
    event_time_ms: int | None
    producer_ms: int | None = None

    @property
    def key(self) -> tuple[int, bool]:
        """Distinguishes it from other observations of the partition. Records and watermarks are reported separately."""
        return self.next_offset, self.producer_ms is not None


def observations(ranges: Collection[OffsetRange], seen: Iterable[TaskObservation]) -> dict[TopicPartition, Observation]:
    """Returns an observation of each partition of a finished batch.

    The end offsets are not known yet, so each partition counts as having available records. The watermark can wait
    longer than necessary, until the next poll, but it is never too high.

    Args:
        ranges: the ranges that the batch has read.
        seen: the observations of its tasks. Those outside the ranges are ignored. Several at one offset are
            :func:`merged`.

    >>> p0 = TopicPartition("flights", 0)
    >>> observations([OffsetRange(p0, 5, 9)], [TaskObservation(p0, 5, 3, 700), TaskObservation(p0, 8, 1, 600), TaskObservation(p0, 9, 1, 900)])[p0]
    Observation(next_offset=9, end_offset=10, records=4, event_time_ms=700, producer_ms=None)
    """
    by_start: defaultdict[TopicPartition, dict[tuple[int, bool], TaskObservation]] = defaultdict(dict)
    for it in seen:
        of_partition = by_start[it.topic_partition]
        of_partition[it.key] = merged(of_partition[it.key], it) if it.key in of_partition else it
    found = {}
    for r in ranges:
        of_partition = by_start[r.topic_partition]
        own = [it for (offset, _), it in of_partition.items() if r.next_offset <= offset < r.end_offset]
        found[r.topic_partition] = Observation(
            r.end_offset,
            r.end_offset + 1,
            sum(it.records for it in own),
            _latest(*(it.event_time_ms for it in own)),
            _latest(*(it.producer_ms for it in own)),
        )
    return found


def summed(ranges: Collection[OffsetRange], seen: Iterable[TaskObservation]) -> list[TaskObservation]:
    """Returns at most two observations of each range, for which :func:`observations` has the same result.

    Args:
        ranges: ranges of different partitions.
        seen: observations in these ranges, with different keys.

    >>> p0 = TopicPartition("flights", 0)
    >>> summed([OffsetRange(p0, 5, 9)], [TaskObservation(p0, 6, 3, 700), TaskObservation(p0, 8, 1, 600)])
    [TaskObservation(topic_partition=TopicPartition(topic='flights', partition=0), next_offset=5, records=4, event_time_ms=700, producer_ms=None)]
    """
    by_kind: defaultdict[tuple[TopicPartition, bool], list[TaskObservation]] = defaultdict(list)
    for it in seen:
        by_kind[it.topic_partition, it.producer_ms is not None].append(it)
    return [
        TaskObservation(
            r.topic_partition,
            r.next_offset,
            sum(it.records for it in own),
            _latest(*(it.event_time_ms for it in own)),
            _latest(*(it.producer_ms for it in own)),
        )
        for r in ranges
        for is_producer in (False, True)
        if (own := by_kind.get((r.topic_partition, is_producer)))
    ]


def merged(one: TaskObservation, other: TaskObservation) -> TaskObservation:
    """Returns one observation for two at the same offset.

    A repeated task reports the same records again. Behind a shuffle two tasks can have copies of one record, and then of
    other records each. Their latest time counts. Their number of records is that of one of them, so a watermark that
    counts records can wait longer than necessary.

    >>> p0 = TopicPartition("flights", 0)
    >>> merged(TaskObservation(p0, 5, 3, 700), TaskObservation(p0, 5, 1, 900))
    TaskObservation(topic_partition=TopicPartition(topic='flights', partition=0), next_offset=5, records=3, event_time_ms=900, producer_ms=None)
    """
    return replace(
        one,
        records=max(one.records, other.records),
        event_time_ms=_latest(one.event_time_ms, other.event_time_ms),
        producer_ms=_latest(one.producer_ms, other.producer_ms),
    )


def _latest(*times_ms: int | None) -> int | None:
    return max((it for it in times_ms if it is not None), default=None)


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
