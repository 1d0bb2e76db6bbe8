"""Event time as JSON, for the next owner of a partition and for a restarted query.

The time of a partition is a metadata entry beside its committed offset. A broker limits the metadata of an offset to
4,096 bytes, for all entries together. Source: SEMANTICS W3 and the takeover of partitions. A value that cannot be
decoded, or that a newer version wrote, counts as missing. The partition then holds back the watermark until it has read
records.
"""

from __future__ import annotations

from typing import Any

from streamgroups.event_time.source_time import PartitionTime
from streamgroups.event_time.strategy import Progress
from streamgroups.event_time.watermark import At, NotYet, Watermark
from streamgroups.json_values import time_ms, time_ms_or_none, whole, whole_or_none

_VERSION = 1
_UNREADABLE = (KeyError, TypeError, ValueError)


def encode_watermark(watermark: Watermark) -> int | None:
    """Encodes a watermark as a JSON value.

    >>> encode_watermark(At(5)), encode_watermark(NotYet())
    (5, None)
    """
    return watermark.time_ms if isinstance(watermark, At) else None


def decode_watermark(value: Any) -> Watermark:
    """Decodes a watermark.

    Raises:
        ValueError: the value is not a watermark.
    """
    return NotYet() if value is None else At(time_ms(value))


def encode_partition(time: PartitionTime) -> dict[str, Any]:
    """Encodes the time of a partition as JSON.

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
