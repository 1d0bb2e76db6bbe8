"""What tasks have seen of event time, put together to looks at partitions; and the note that travels with a partition.

Called by ``streamgroups_spark.event_time.query_time``. Tasks run anywhere, may run twice, and tell what they have read bit by bit. Source: SEMANTICS W2,
W3 and the takeover of partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from streamgroups import metadata_entries as notes
from streamgroups.event_time.encoding import decode_partition, encode_partition
from streamgroups.event_time.idleness import Observation
from streamgroups.event_time.partition_time import PartitionTime
from streamgroups.event_time.settings import TimeSettings
from streamgroups.partitions import OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True)
class TaskObservation:
    """Records of one partition that a task has read.

    Args:
        topic_partition: which partition.
        next_offset: the offset of the first of them.
        records: how many of them have an event time.
        event_time_ms: the latest of their event times, in milliseconds since the epoch.
    """

    topic_partition: TopicPartition
    next_offset: int
    records: int
    event_time_ms: int


def observations(ranges: Collection[OffsetRange], seen: Iterable[TaskObservation]) -> dict[TopicPartition, Observation]:
    """Looks at the partitions of a batch that is done.

    Whether there is more to read nobody has asked yet, so each partition counts as having unread records: that waits longer than it must,
    until the next look, and is never wrong.

    Args:
        ranges: what the batch has read.
        seen: what its tasks told. What is not of these ranges is left out; of what begins at one offset, the last counts: a task that is
            run again reads the same.

    >>> p0 = TopicPartition("flights", 0)
    >>> observations([OffsetRange(p0, 5, 9)], [TaskObservation(p0, 5, 3, 700), TaskObservation(p0, 8, 1, 600), TaskObservation(p0, 9, 1, 900)])[p0]
    Observation(next_offset=9, end_offset=10, records=4, event_time_ms=700)
    """
    by_start = {(it.topic_partition, it.next_offset): it for it in seen}
    found = {}
    for r in ranges:
        own = [
            it
            for (tp, offset), it in by_start.items()
            if tp == r.topic_partition and r.next_offset <= offset < r.end_offset
        ]
        found[r.topic_partition] = Observation(
            r.end_offset,
            r.end_offset + 1,
            sum(it.records for it in own),
            max((it.event_time_ms for it in own), default=None),
        )
    return found


def write_entry(time: PartitionTime, settings: TimeSettings) -> str:
    """What the next owner of a partition is told, and who watches it, as the metadata of a committed offset.

    Args:
        time: what is known.
        settings: how time is made. The next owner has its own; who watches is told what follows from them.

    >>> from streamgroups.event_time.strategy import Generation
    >>> note = write_entry(PartitionTime(600), TimeSettings(Generation()))
    >>> stored_watermark(read_time(note), noted_at=9, next_offset=9)
    PartitionTime(event_time_ms=600, watermark=NotYet(), progress=Progress(records=0, period_from_ms=None), next_offset=9, \
idle_since_ms=None, seen_ms=None)
    """
    told = {"asserts": settings.generation is not None, "idle": time.is_idle(settings.partition_idle_timeout_ms)}
    return notes.write_entry({**encode_partition(time), **told})


def read_time(metadata: str) -> PartitionTime | None:
    """The time in a note; ``None`` if it cannot be read, or was written by a newer version.

    >>> read_time("by hand") is None
    True
    """
    return decode_partition(notes.read_entry(metadata))


def stored_watermark(noted: PartitionTime | None, noted_at: int, next_offset: int) -> PartitionTime | None:
    """The time of a partition that comes in.

    Args:
        noted: the time in the note; ``None`` without one.
        noted_at: the position at which it was written.
        next_offset: where the partition is read on.

    Returns:
        Its time; ``None`` if there is no note, or it was written at a later offset: the group was reset to an earlier one, and what is read again must
        not be late.

    >>> stored_watermark(PartitionTime(600), noted_at=9, next_offset=5) is None
    True
    """
    if noted is None or noted_at > next_offset:
        return None
    # How long it was quiet is for whoever reads it to find out: nobody has looked since.
    return replace(noted, next_offset=next_offset, idle_since_ms=None, seen_ms=None)


def came_in(
    times: Mapping[TopicPartition, PartitionTime], positions: Mapping[TopicPartition, int]
) -> set[TopicPartition]:
    """The partitions whose time must be asked for: new ones, and those that others have read or moved meanwhile.

    Args:
        times: what is known.
        positions: the next offset of each partition that is owned.

    >>> p0 = TopicPartition("flights", 0)
    >>> came_in({p0: PartitionTime(next_offset=5)}, {p0: 5}), len(came_in({p0: PartitionTime(next_offset=5)}, {p0: 7}))
    (set(), 1)
    """
    return {tp for tp, n in positions.items() if tp not in times or times[tp].next_offset not in (None, n)}
