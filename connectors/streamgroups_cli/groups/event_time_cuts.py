"""The positions of ``groups reset --to-event-time``: reads the timestamp index of the broker, or the headers of records.

``streamgroups_cli.groups.reset_plans`` uses it before anything changes. A position depends on its partition only, so it is
the same for all groups. :mod:`streamgroups.event_time.cuts` has the rules. Source: SEMANTICS O1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamgroups.errors import InvalidOption
from streamgroups.event_time.cuts import Cut, Scan, cut_by_header, cut_by_timestamp, scan_of, scanned
from streamgroups.event_time.header_time import header_time_ms
from streamgroups.message import Message
from streamgroups.partitions import Bounds, StampedOffset, TopicPartition
from streamgroups_cli.connection import Cluster
from streamgroups_cli.output import say


@dataclass(frozen=True, slots=True)
class HeaderTime:
    """The header that contains the event time.

    Args:
        name: the name of the header.
        scan_ms: how far the timestamps of scanned records are from the cut at most, in milliseconds.
    """

    name: str
    scan_ms: int


@dataclass(frozen=True, slots=True)
class ToEventTime:
    """A cut of event time.

    Args:
        cut_ms: the cut, in milliseconds since the epoch.
        header: the header that contains the event time; ``None`` if it is the timestamp of a record.
    """

    cut_ms: int
    header: HeaderTime | None = None


def cuts(cluster: Cluster, bounds: Mapping[TopicPartition, Bounds], target: ToEventTime) -> dict[TopicPartition, Cut]:
    """Returns the position of each partition at a cut.

    Raises:
        InvalidOption: if no scanned record has the header.
        StreamGroupsError: see :class:`streamgroups.ports.TopicAdmin`.
    """
    first = _at(cluster, bounds, 0)
    if target.header is None:
        found = _at(cluster, bounds, target.cut_ms)
        return {tp: cut_by_timestamp(it, first.get(tp), found.get(tp)) for tp, it in bounds.items()}
    scans = _scan(cluster, bounds, target.cut_ms, target.header)
    return {tp: cut_by_header(it, first.get(tp), scans[tp]) for tp, it in bounds.items()}


def _at(
    cluster: Cluster, partitions: Mapping[TopicPartition, Bounds], time_ms: int
) -> dict[TopicPartition, StampedOffset | None]:
    return cluster.topics.at_times(dict.fromkeys(partitions, max(time_ms, 0)))


def _scan(
    cluster: Cluster, bounds: Mapping[TopicPartition, Bounds], cut_ms: int, header: HeaderTime
) -> dict[TopicPartition, Scan]:
    starts, ends = _at(cluster, bounds, cut_ms - header.scan_ms), _at(cluster, bounds, cut_ms + header.scan_ms)
    scans = {tp: scan_of(tp, it, starts.get(tp), ends.get(tp)) for tp, it in bounds.items()}
    offsets = sum(len(scan.range) for scan in scans.values())
    if offsets:
        say(f"Scanning up to {offsets} offsets for header '{header.name}'.")

    def is_over(record: Message) -> bool:
        return scans[record.topic_partition].found_offset is not None

    first_offsets = {tp: scan.range.next_offset for tp, scan in scans.items()}
    end_offsets = {tp: scan.range.end_offset for tp, scan in scans.items()}
    for record in cluster.topics.read(first_offsets, end_offsets, is_over):
        tp = record.topic_partition
        scans[tp] = scanned(scans[tp], record.offset, header_time_ms(record.headers, header.name), cut_ms)
    records = sum(scan.records for scan in scans.values())
    if records and records == sum(scan.without_time for scan in scans.values()):
        raise InvalidOption(
            f"The {records} scanned records have no header '{header.name}' with milliseconds since 1970; nothing was "
            "changed.",
            remedy="Correct --event-time-header. Without it, the event time is the timestamp of a record.",
        )
    return scans
