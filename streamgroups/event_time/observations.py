"""Merges the observations of tasks into observations of partitions.

``streamgroups_spark.source.source_watermark`` calls this module. Tasks run on any executor, can run twice, and report
their records in several parts. Source: SEMANTICS W2, W3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from streamgroups.event_time.idleness import Observation
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
    by_start: dict[tuple[TopicPartition, tuple[int, bool]], TaskObservation] = {}
    for it in seen:
        key = it.topic_partition, it.key
        by_start[key] = merged(by_start[key], it) if key in by_start else it
    found = {}
    for r in ranges:
        own = [
            it
            for (tp, (offset, _)), it in by_start.items()
            if tp == r.topic_partition and r.next_offset <= offset < r.end_offset
        ]
        found[r.topic_partition] = Observation(
            r.end_offset,
            r.end_offset + 1,
            sum(it.records for it in own),
            _latest(*(it.event_time_ms for it in own)),
            _latest(*(it.producer_ms for it in own)),
        )
    return found


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
