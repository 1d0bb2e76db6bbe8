"""Looks up the offsets of positions in the log.

Called by ``streamgroups.query.join_group`` at the start of a query, and by ``streamgroups_spark.source.readers`` for
batch reads. It connects the port :class:`~streamgroups.ports.Cluster` with the rules of
:mod:`streamgroups.query.starting_offsets`. Source: SEMANTICS G1, S4.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace

from streamgroups.errors import InvalidOption
from streamgroups.partitions import Bounds, OffsetRange, TopicPartition
from streamgroups.ports import Cluster
from streamgroups.positions import Positions
from streamgroups.query.data_loss import FAIL_ON_LOSS, LossPolicies, OnDataLoss
from streamgroups.query.starting_offsets import nearest_offsets, requested_times, resolve

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
        InvalidOption: see :func:`streamgroups.query.starting_offsets.resolve`.
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

    Args:
        cluster: the topics of the cluster.
        starting: the positions at which reading starts.
        ending: the positions at which reading ends.
        partitions: all partitions to read.
        on_data_loss: see :func:`offsets_of`.

    Raises:
        InvalidOption: see :func:`streamgroups.query.starting_offsets.resolve`; also if a range would end before it
            begins.
        StreamGroupsError: see :class:`streamgroups.ports.Cluster`.
    """
    bounds = _bounds(cluster, partitions)
    starts, ends = (_offsets(cluster, positions, bounds, on_data_loss) for positions in (starting, ending))
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
