"""The position of a partition at a cut of event time: no record at or after the cut lies before it.

``streamgroups_cli.groups.event_time_cuts`` calls this module with offsets and records of the cluster. Source: SEMANTICS
O1, W2.

=============================  ===================================================================================
the event time is              the position
=============================  ===================================================================================
the timestamp of the record    the first record whose timestamp is at or after the cut, by the index of the broker
in a header                    the first such record among those whose timestamps are close to the cut; the end of
                               this range if none of them has such an event time
=============================  ===================================================================================

A partition whose records are all before the cut has its end as position.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from streamgroups.partitions import Bounds, OffsetRange, StampedOffset, TopicPartition

_NO_RECORDS = "no records"
_AFTER_ALL = "after all records"
_NOTHING_TO_SCAN = "no record has a timestamp within the scan"


@dataclass(frozen=True, slots=True)
class Cut:
    """A position at a cut.

    Args:
        next_offset: the position.
        detail: how it was found, for users; can be empty.
    """

    next_offset: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan of the records of a partition for the first one at or after a cut.

    Args:
        range: the offsets to scan.
        records: the number of scanned records.
        without_time: the number of these without a readable header.
        found_offset: the offset of the record at or after the cut; ``None`` until it is found.
    """

    range: OffsetRange
    records: int = 0
    without_time: int = 0
    found_offset: int | None = None

    @property
    def position(self) -> int:
        """The first record at or after the cut, or the end of the scan."""
        return self.range.end_offset if self.found_offset is None else self.found_offset


def cut_by_timestamp(bounds: Bounds, first: StampedOffset | None, found: StampedOffset | None) -> Cut:
    """Returns the position at a cut of timestamps.

    Args:
        bounds: the earliest offset and the end of the partition.
        first: the earliest record; ``None`` without records.
        found: the first record whose timestamp is at or after the cut; ``None`` if no such record exists.

    >>> cut_by_timestamp(Bounds(2, 9), StampedOffset(2, 100), StampedOffset(5, 300))
    Cut(next_offset=5, detail='')
    >>> cut_by_timestamp(Bounds(2, 9), StampedOffset(2, 100), StampedOffset(2, 100))
    Cut(next_offset=2, detail='the earliest record; earlier ones are deleted')
    >>> cut_by_timestamp(Bounds(2, 9), StampedOffset(2, 100), None)
    Cut(next_offset=9, detail='after all records')
    """
    if first is None:
        return Cut(bounds.end_offset, _NO_RECORDS)
    if found is None:
        return Cut(bounds.end_offset, _AFTER_ALL)
    return Cut(found.offset, _deleted(bounds, first, found.offset))


def scan_of(
    topic_partition: TopicPartition, bounds: Bounds, start: StampedOffset | None, end: StampedOffset | None
) -> Scan:
    """Returns the scan of a partition before its first record.

    Args:
        topic_partition: the partition.
        bounds: its earliest offset and its end.
        start: the first record whose timestamp is not too long before the cut; ``None`` if no such record exists.
        end: the first record whose timestamp is too long after the cut; ``None`` if no such record exists.

    >>> str(scan_of(TopicPartition("flights", 0), Bounds(2, 9), StampedOffset(4, 100), None).range)
    'flights-0[4,9)'
    """
    first = bounds.end_offset if start is None else min(max(start.offset, bounds.beginning_offset), bounds.end_offset)
    last = bounds.end_offset if end is None else min(max(end.offset, first), bounds.end_offset)
    return Scan(OffsetRange(topic_partition, first, last))


def scanned(before: Scan, offset: int, event_time_ms: int | None, cut_ms: int) -> Scan:
    """Returns a scan after one more record.

    Args:
        before: the scan before.
        offset: the offset of the record.
        event_time_ms: its event time, in milliseconds since the epoch; ``None`` without a readable header.
        cut_ms: the cut.

    >>> scan = scan_of(TopicPartition("flights", 0), Bounds(2, 9), StampedOffset(4, 100), None)
    >>> scanned(scanned(scan, 4, 299, 300), 5, 300, 300).position
    5
    """
    if event_time_ms is None:
        return replace(before, records=before.records + 1, without_time=before.without_time + 1)
    is_first = before.found_offset is None and event_time_ms >= cut_ms
    found_offset = offset if is_first else before.found_offset
    return replace(before, records=before.records + 1, found_offset=found_offset)


def cut_by_header(bounds: Bounds, first: StampedOffset | None, scan: Scan) -> Cut:
    """Returns the position at a cut of event times in headers, after a scan.

    Args:
        bounds: the earliest offset and the end of the partition.
        first: the earliest record; ``None`` without records.
        scan: the scan.

    >>> scan = Scan(OffsetRange(TopicPartition("flights", 0), 4, 9), records=3, without_time=1, found_offset=6)
    >>> print(cut_by_header(Bounds(0, 20), StampedOffset(0, 50), scan).detail)
    scanned 3 records from offset 4 to 6, 1 without the header
    >>> print(cut_by_header(Bounds(0, 20), StampedOffset(0, 50), Scan(scan.range, records=5)).detail)
    scanned 5 records from offset 4 to 8, no record at or after the time
    """
    if first is None:
        return Cut(bounds.end_offset, _NO_RECORDS)
    if not len(scan.range):
        return Cut(scan.position, _AFTER_ALL if scan.position == bounds.end_offset else _NOTHING_TO_SCAN)
    last = scan.range.end_offset - 1 if scan.found_offset is None else scan.found_offset
    count = f"{scan.records} record{'' if scan.records == 1 else 's'}"
    texts = [f"scanned {count} from offset {scan.range.next_offset} to {last}"]
    if scan.without_time:
        texts.append(f"{scan.without_time} without the header")
    if scan.found_offset is None:
        texts.append("no record at or after the time")
    deleted = _deleted(bounds, first, scan.position)
    return Cut(scan.position, ", ".join(texts) + (f"; {deleted}" if deleted else ""))


def _deleted(bounds: Bounds, first: StampedOffset, position: int) -> str:
    is_earliest = position <= first.offset and bounds.beginning_offset > 0
    return "the earliest record; earlier ones are deleted" if is_earliest else ""
