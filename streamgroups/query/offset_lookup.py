"""Looks up the offsets of positions in the log, and converts positions to offsets.

Called by ``streamgroups.query.join_group`` at the start of a query, and by ``streamgroups_spark.source.readers`` for
batch reads. It reads the log by the port :class:`~streamgroups.ports.Cluster`. Source: SEMANTICS G1, G2, S4; Spark's
``startingOffsets`` family.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from streamgroups.errors import InvalidOption
from streamgroups.partitions import Bounds, OffsetRange, TopicPartition
from streamgroups.ports import Cluster
from streamgroups.positions import (
    AfterOffset,
    AtOffset,
    AtTime,
    Latest,
    Positions,
    TrimHorizon,
    WhenNoRecordMatches,
)
from streamgroups.printable import listed
from streamgroups.query.data_loss import FAIL_ON_LOSS, LossPolicies, OnDataLoss

logger = logging.getLogger(__name__)


def offsets_of(
    cluster: Cluster,
    positions: Positions,
    partitions: Collection[TopicPartition],
    *,
    on_data_loss: LossPolicies = FAIL_ON_LOSS,
) -> dict[TopicPartition, int]:
    """The offset of each partition at which reading starts.

    Args:
        cluster: the topics of the cluster.
        positions: the positions that the user named.
        partitions: all partitions to read.
        on_data_loss: whether an offset outside a partition is rejected. If not, the nearest offset of the partition is
            used, with a warning.

    Raises:
        InvalidOption: see :func:`streamgroups.query.offset_lookup.resolve`.
        StreamGroupsError: see :class:`streamgroups.ports.Cluster`.
    """
    return _offsets(cluster, positions, _bounds(cluster, partitions), on_data_loss)


def record_bytes(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, float]:
    """The average stored size of a record of each partition, in bytes, where it is known.

    Args:
        cluster: the topics of the cluster.
        partitions: the partitions.

    >>> from streamgroups.fakes import FakeCluster
    >>> cluster, tp = FakeCluster(lambda: 0), TopicPartition("flights", 0)
    >>> cluster.create_topic("flights", partitions=2)
    >>> _ = cluster.produce(tp, 5, value=b"x" * 100)
    >>> record_bytes(cluster, [tp, TopicPartition("flights", 1)])
    {TopicPartition(topic='flights', partition=0): 100.0}
    """
    stored = cluster.stored_bytes(partitions)
    if not stored:
        return {}
    beginnings, ends = cluster.beginning_offsets(stored), cluster.high_watermarks(stored)
    return {tp: n / (ends[tp] - beginnings[tp]) for tp, n in stored.items() if n and ends[tp] > beginnings[tp]}


def ranges_of(
    cluster: Cluster,
    starting: Positions,
    ending: Positions,
    partitions: Collection[TopicPartition],
    *,
    on_data_loss: LossPolicies = FAIL_ON_LOSS,
) -> list[OffsetRange]:
    """The range of each partition for a batch read, including empty ranges.

    The end of each partition is looked up first, and no range exceeds it. The first record of a time can be newer: it was published
    between the two look-ups, or belongs to an open transaction.

    Args:
        cluster: the topics of the cluster.
        starting: the positions at which reading starts.
        ending: the positions at which reading ends.
        partitions: all partitions to read.
        on_data_loss: see :func:`offsets_of`.

    Raises:
        InvalidOption: see :func:`streamgroups.query.offset_lookup.resolve`; also if a range would end before it
            begins.
        StreamGroupsError: see :class:`streamgroups.ports.Cluster`.
    """
    bounds = _bounds(cluster, partitions)
    starts, ends = (
        {tp: min(it, bounds[tp].end_offset) for tp, it in _offsets(cluster, positions, bounds, on_data_loss).items()}
        for positions in (starting, ending)
    )
    for tp in sorted(starts):
        if starts[tp] > ends[tp]:
            raise InvalidOption(
                f"{tp}: the starting offset {starts[tp]} is greater than the ending offset {ends[tp]}.",
                remedy="Set the starting options to earlier offsets or times than the ending options.",
            )
    return [OffsetRange(tp, starts[tp], ends[tp]) for tp in sorted(starts)]


def _bounds(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
    beginnings, ends = cluster.beginning_offsets(partitions), cluster.end_offsets(partitions)
    return {tp: Bounds(beginnings[tp], ends[tp]) for tp in partitions}


def _offsets(
    cluster: Cluster, positions: Positions, bounds: Mapping[TopicPartition, Bounds], on_data_loss: LossPolicies
) -> dict[TopicPartition, int]:
    lenient = {tp: it for tp, it in bounds.items() if on_data_loss.of(tp) is not OnDataLoss.FAIL}
    if lenient:
        moved = nearest_offsets(positions, lenient)
        for tp, (named, nearest) in moved.items():
            policy = on_data_loss.of(tp).value
            logger.warning(
                "%s has no offset %d; offset %d is used (onDataLoss=%s)", tp, named, nearest.next_offset, policy
            )
        inside = {tp: nearest for tp, (_, nearest) in moved.items()}
        positions = replace(positions, by_partition={**positions.by_partition, **inside})
    times = requested_times(positions, bounds)
    return resolve(positions, bounds, cluster.offsets_at_times(times) if times else {})


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
            f"The starting positions contain {listed(unknown)}, which this query does not read.",
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
            remedy="Use an offset in that range, earliest (-2) or latest (-1), or set onDataLoss=earliest to use the nearest offset.",
        )
    return next_offset


def _named(position: AtOffset | AfterOffset) -> int:
    return position.last_offset + 1 if isinstance(position, AfterOffset) else position.next_offset
