"""Merges the observations of tasks into observations of partitions, and encodes the metadata entry of a partition.

``streamgroups_spark.source.query_time`` calls this module. Tasks run on any executor, can run twice, and report
their records in several parts. Source: SEMANTICS W2, W3 and the takeover of partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from streamgroups import metadata_entries as notes
from streamgroups.event_time.encoding import decode_partition, encode_partition
from streamgroups.event_time.idleness import Observation
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import PartitionTime
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


def write_entry(time: PartitionTime, settings: TimeSettings) -> str:
    """Returns the metadata entry of a partition, for its next owner and for monitoring.

    Args:
        time: the time of the partition.
        settings: the event-time settings. The next owner uses its own. For monitoring, and for groups that import the
            watermark, the entry contains their effects.

    >>> from streamgroups.event_time.strategy import Generation
    >>> note = write_entry(PartitionTime(600), TimeSettings(Generation()))
    >>> stored_watermark(read_time(note), noted_at=9, next_offset=9)
    PartitionTime(event_time_ms=600, watermark=NotYet(), progress=Progress(records=0, period_from_ms=None), next_offset=9, \
idle_since_ms=None, seen_ms=None)
    """
    told = {"asserts": settings.has_own_watermark, "idle": time.is_idle(settings.partition_idle_timeout_ms)}
    imports = {} if settings.import_from is None else {"import": settings.import_from}
    return notes.write_entry({**encode_partition(time), **told, **imports})


def read_time(metadata: str) -> PartitionTime | None:
    """Returns the time in a metadata entry. ``None`` if it cannot be decoded, or a newer version wrote it.

    >>> read_time("by hand") is None
    True
    """
    return decode_partition(notes.read_entry(metadata))


def stored_watermark(noted: PartitionTime | None, noted_at: int, next_offset: int) -> PartitionTime | None:
    """Returns the time of an assigned partition.

    Args:
        noted: the time in the metadata entry; ``None`` without an entry.
        noted_at: the position at which the entry was written.
        next_offset: the position from which the member reads the partition.

    Returns:
        Its time. ``None`` if there is no entry, or if the entry was written at a later offset. In that case the group
        was reset to an earlier offset, and the records that are read again must not be late.

    >>> stored_watermark(PartitionTime(600), noted_at=9, next_offset=5) is None
    True
    """
    if noted is None or noted_at > next_offset:
        return None
    # The new owner measures idleness itself: the partition has had no observation since.
    return replace(noted, next_offset=next_offset, idle_since_ms=None, seen_ms=None)


def came_in(
    times: Mapping[TopicPartition, PartitionTime], positions: Mapping[TopicPartition, int]
) -> set[TopicPartition]:
    """Returns the partitions whose stored time must be read: new ones, and those that another client has read or reset.

    Args:
        times: the known times.
        positions: the next offset of each owned partition.

    >>> p0 = TopicPartition("flights", 0)
    >>> came_in({p0: PartitionTime(next_offset=5)}, {p0: 5}), len(came_in({p0: PartitionTime(next_offset=5)}, {p0: 7}))
    (set(), 1)
    """
    return {tp for tp, n in positions.items() if tp not in times or times[tp].next_offset not in (None, n)}
