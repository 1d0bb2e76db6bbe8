"""The metadata entry of a partition: its event time, for the next owner, for monitoring, and for other groups.

``streamgroups_spark.source.source_watermark`` writes an entry before it commits the offset of the partition, and reads those of
assigned partitions. :mod:`streamgroups.event_time.stored_time` reads those of a group. A broker limits the metadata of an
offset to 4,096 bytes, for all entries together. Source: SEMANTICS W3 and the takeover of partitions. A value that cannot be
decoded, or that a newer version wrote, counts as missing. The partition then holds back the watermark until it has read
records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streamgroups import metadata_entries as entries
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import PartitionTime
from streamgroups.event_time.strategy import Progress
from streamgroups.event_time.watermark import decode_watermark, encode_watermark
from streamgroups.json_values import time_ms_or_none, whole, whole_or_none
from streamgroups.partitions import TopicPartition

_VERSION = 1
_UNREADABLE = (KeyError, TypeError, ValueError)


def encode_partition(time: PartitionTime) -> dict[str, Any]:
    """Encodes the time of a partition as JSON.

    >>> from streamgroups.event_time.watermark import At
    >>> decode_partition(encode_partition(PartitionTime(600, At(600), next_offset=9, seen_ms=1_000))).watermark
    At(time_ms=600)
    """
    return {
        "v": _VERSION,
        "event": time.event_time_ms,
        "watermark": encode_watermark(time.watermark),
        "records": time.progress.records,
        "period": time.progress.period_from_ms,
        "next": time.next_offset,
        "idle_since": time.idle_since_ms,
        "seen": time.seen_ms,
    }


def decode_partition(raw: Any) -> PartitionTime | None:
    """Decodes the time of a partition. ``None`` if it is invalid, or a newer version wrote it.

    >>> decode_partition({"v": 99}) is None
    True
    """
    try:
        if raw["v"] != _VERSION:
            return None
        return PartitionTime(
            event_time_ms=time_ms_or_none(raw["event"]),
            watermark=decode_watermark(raw["watermark"]),
            progress=Progress(whole(raw["records"]), time_ms_or_none(raw["period"])),
            next_offset=whole_or_none(raw["next"]),
            idle_since_ms=time_ms_or_none(raw["idle_since"]),
            seen_ms=time_ms_or_none(raw["seen"]),
        )
    except _UNREADABLE:
        return None


def write_entry(time: PartitionTime, settings: TimeSettings) -> str:
    """Returns the metadata entry of a partition, for its next owner and for monitoring.

    Args:
        time: the time of the partition.
        settings: the event-time settings. The next owner uses its own. For monitoring, and for groups that import the
            watermark, the entry contains their effects.

    >>> from streamgroups.event_time.strategy import Generation
    >>> entry = write_entry(PartitionTime(600), TimeSettings(Generation()))
    >>> time_of_assigned(read_time(entry), entry_offset=9, next_offset=9)
    PartitionTime(event_time_ms=600, watermark=NotYet(), progress=Progress(records=0, period_from_ms=None), next_offset=9, \
idle_since_ms=None, seen_ms=None)
    """
    flags = {"asserts": settings.has_own_watermark, "idle": time.is_idle(settings.partition_idle_timeout_ms)}
    imports = {} if settings.import_from is None else {"import": settings.import_from}
    return entries.write_entry({**encode_partition(time), **flags, **imports})


def read_time(metadata: str) -> PartitionTime | None:
    """Returns the time in a metadata entry. ``None`` if it cannot be decoded, or a newer version wrote it.

    >>> read_time("by hand") is None
    True
    """
    return decode_partition(entries.read_entry(metadata))


def time_of_assigned(entry: PartitionTime | None, entry_offset: int, next_offset: int) -> PartitionTime | None:
    """Returns the time of an assigned partition.

    Args:
        entry: the time in the metadata entry; ``None`` without an entry.
        entry_offset: the position at which the entry was written.
        next_offset: the position from which the member reads the partition.

    Returns:
        Its time. ``None`` if there is no entry, or if the entry was written at a later offset. In that case the group
        was reset to an earlier offset, and the records that are read again must not be late.

    >>> time_of_assigned(PartitionTime(600), entry_offset=9, next_offset=5) is None
    True
    """
    if entry is None or entry_offset > next_offset:
        return None
    # The new owner measures idleness itself: the partition has had no observation since.
    return replace(entry, next_offset=next_offset, idle_since_ms=None, seen_ms=None)


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
