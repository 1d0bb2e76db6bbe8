"""Asking the log what positions mean in offsets.

Called wherever positions become offsets: by the Spark source at the start of a query and for batch reads. The one place
that joins the :class:`~streamgroups.ports.Log` with the rules of :mod:`streamgroups.batches.starting`.
"""

from __future__ import annotations

from collections.abc import Collection

from streamgroups.batches.starting import Bounds, resolve, times_asked
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Log
from streamgroups.positions import Positions


def offsets_of(log: Log, positions: Positions, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The offset of each partition at which reading starts (or ends, for the ``ending...`` options).

    Raises:
        InvalidOption: see :func:`streamgroups.batches.starting.resolve`.
        StreamGroupsError: see :class:`streamgroups.ports.Log`.
    """
    times = times_asked(positions, partitions)
    beginnings, ends = log.beginning_offsets(partitions), log.end_offsets(partitions)
    bounds = {tp: Bounds(beginnings[tp], ends[tp]) for tp in partitions}
    return resolve(positions, bounds, log.offsets_at_times(times) if times else {})
