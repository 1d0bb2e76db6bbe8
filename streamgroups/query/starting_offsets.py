"""Converts positions to offsets, given the offsets of the log.

Called by :mod:`streamgroups.query.offset_lookup`, which reads the log. Source: SEMANTICS G1, G2, S4; Spark's
``startingOffsets`` family.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamgroups.errors import InvalidOption
from streamgroups.partitions import Bounds, TopicPartition
from streamgroups.positions import (
    AfterOffset,
    AtOffset,
    AtTime,
    Latest,
    Positions,
    TrimHorizon,
    WhenNoRecordMatches,
)


def requested_times(positions: Positions, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The times to look up, in milliseconds since the epoch, of the partitions whose position is a time."""
    requested = {tp: positions.of(tp) for tp in partitions}
    return {tp: p.timestamp_ms for tp, p in requested.items() if isinstance(p, AtTime)}


def nearest_offsets(
    positions: Positions, bounds: Mapping[TopicPartition, Bounds]
) -> dict[TopicPartition, tuple[int, AtOffset]]:
    """The partitions in ``bounds`` whose position is an offset outside of them: that offset, and the nearest valid one.

    >>> p = TopicPartition("t", 0)
    >>> nearest_offsets(Positions(AtOffset(2)), {p: Bounds(3, 9)})
    {TopicPartition(topic='t', partition=0): (2, AtOffset(next_offset=3))}
    """
    found = {}
    for tp, of in sorted(bounds.items()):
        position = positions.by_partition.get(tp, positions.default)
        if isinstance(position, AtOffset | AfterOffset):
            named = _named(position)
            nearest = min(max(named, of.beginning_offset), of.end_offset)
            if named != nearest:
                found[tp] = named, AtOffset(nearest)
    return found


def resolve(
    positions: Positions, bounds: Mapping[TopicPartition, Bounds], at_times: Mapping[TopicPartition, int | None]
) -> dict[TopicPartition, int]:
    """The offset of each partition in ``bounds``.

    Args:
        positions: the positions that the user named.
        bounds: the bounds of every partition to resolve.
        at_times: the results of the log for :func:`requested_times`.

    Raises:
        InvalidOption: if an offset is outside the partition, or no record matches a time and that is an error. Also if
            positions by partition do not name exactly these partitions.

    >>> p = TopicPartition("t", 0)
    >>> resolve(Positions(TrimHorizon()), {p: Bounds(3, 9)}, {})
    {TopicPartition(topic='t', partition=0): 3}
    """
    unknown = sorted(positions.by_partition.keys() - bounds.keys())
    if unknown:
        raise InvalidOption(
            f"The starting positions contain {', '.join(map(str, unknown))}, which this query does not read.",
            remedy="Name only partitions of the subscribed topics.",
        )
    return {tp: _resolve_one(positions, tp, bounds[tp], at_times) for tp in sorted(bounds)}


def _resolve_one(
    positions: Positions, tp: TopicPartition, bounds: Bounds, at_times: Mapping[TopicPartition, int | None]
) -> int:
    position = positions.of(tp)
    if isinstance(position, TrimHorizon):
        return bounds.beginning_offset
    if isinstance(position, Latest):
        return bounds.end_offset
    if isinstance(position, AtTime):
        found = at_times[tp]
        if found is not None:
            return found
        if positions.when_no_record_matches is WhenNoRecordMatches.LATEST:
            return bounds.end_offset
        raise InvalidOption(
            f"{tp} has no record at or after {position.timestamp_ms} (milliseconds since the epoch).",
            remedy="Set an earlier time, or set startingOffsetsByTimestampStrategy=latest to start at the end of the partition.",
        )
    next_offset = _named(position)
    if not bounds.beginning_offset <= next_offset <= bounds.end_offset:
        raise InvalidOption(
            f"{tp} has no offset {next_offset}: the available offsets are [{bounds.beginning_offset}, {bounds.end_offset}).",
            remedy="Use an offset in that range, or TRIM_HORIZON or LATEST (-2 or -1 in startingOffsets), or set "
            "onDataLoss=earliest to use the nearest offset.",
        )
    return next_offset


def _named(position: AtOffset | AfterOffset) -> int:
    return position.last_offset + 1 if isinstance(position, AfterOffset) else position.next_offset
