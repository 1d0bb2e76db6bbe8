"""Restarts after Kafka has forgotten the committed offsets of a group: the conclusions from the checkpoint.

Called by ``streamgroups.query.expired_offsets`` when a query is restarted. Kafka deletes the offsets of a group that had no
members for ``offsets.retention.minutes``, and an administrator can delete a group. The checkpoint remains. Source: KIP-211;
SEMANTICS F5.

The sink of an exactly-once query to Kafka commits the offsets of a batch with its output, so only these offsets show whether
an unfinished batch is written. They are there before the first batch that reads a partition is logged. If they are missing
after a restart, they were there and are gone.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping

from streamgroups.checkpoints.offset import BatchOffset
from streamgroups.errors import PositionsDiffer
from streamgroups.groups.membership import Owned
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.printable import MAX_LISTED, listed
from streamgroups.shell_quoting import command


def undecided(
    batch: BatchOffset, owned: Mapping[TopicPartition, Owned], identities: Mapping[str, TopicIdentity]
) -> tuple[OffsetRange, ...]:
    """The ranges of an unfinished batch whose output may be written or not.

    A topic that was recreated has lost its offsets with its records. Its ranges cannot be read again, and ``onDataLoss``
    decides.

    Args:
        batch: the offset of the batch in the checkpoint.
        owned: the partitions of the first assignment.
        identities: the current ids of the topics.

    >>> from streamgroups.groups.membership import Origin
    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> batch = BatchOffset(3, (OffsetRange(p0, 10, 20), OffsetRange(p1, 5, 6)))
    >>> [str(r) for r in undecided(batch, {p0: Owned.new(0, Origin.EARLIEST), p1: Owned(5)}, {})]
    ['flights-0[10,20)']
    """
    return tuple(
        r
        for r in batch.ranges
        if len(r)
        and r.topic_partition in owned
        and owned[r.topic_partition].is_silent
        and not _is_recreated(batch, r.topic_partition.topic, identities)
    )


def output_unknown(ranges: Collection[OffsetRange], group_id: str) -> PositionsDiffer:
    """The error for a batch that may be written or not.

    Args:
        ranges: the result of :func:`undecided`.
        group_id: the group.

    >>> print(output_unknown([OffsetRange(TopicPartition("flights", 0), 10, 20)], "board"))
    Group 'board' has no committed offset of flights-0: it has expired, or was deleted. The last batch of the checkpoint is \
not finished, and only this offset shows whether its output is written: flights-0[10,20). Read the end of the output topic. \
If it contains the output of these offsets: printf '%s\\n' 'flights,0,20' > positions.csv. If not: printf '%s\\n' \
'flights,0,10' > positions.csv. Then: streamgroups groups import positions.csv --group board --execute. Restart the query \
with onRestart=group.
    """
    ordered = sorted(ranges)
    one = len(ordered) == 1
    return PositionsDiffer(
        f"Group '{group_id}' has no committed offset{'' if one else 's'} of {listed([str(r.topic_partition) for r in ordered])}: "
        f"{'it has' if one else 'they have'} expired, or {'was' if one else 'were'} deleted. The last batch of the checkpoint is "
        f"not finished, and only {'this offset shows' if one else 'these offsets show'} whether its output is written: "
        f"{listed([str(r) for r in ordered])}.",
        remedy="Read the end of the output topic. If it contains the output of these offsets: "
        f"{_to_file({r.topic_partition: r.end_offset for r in ordered}, 'ends')}. "
        f"If not: {_to_file({r.topic_partition: r.next_offset for r in ordered}, 'starts')}. "
        f"Then: streamgroups groups import positions.csv --group {shlex.quote(group_id)} --execute. "
        "Restart the query with onRestart=group.",
    )


def positions_unknown(partitions: Collection[TopicPartition], group_id: str) -> PositionsDiffer:
    """The error for partitions that other members have read, and that are not in the checkpoint.

    Args:
        partitions: the partitions.
        group_id: the group.
    """
    return PositionsDiffer(
        f"Group '{group_id}' has no committed offsets: they have expired, or were deleted. The checkpoint does not contain "
        f"{listed(list(map(str, sorted(partitions))))}, so the output of earlier members would be written again.",
        remedy="Commit their positions: those after the output of the group, or 0 for partitions without output. "
        f"{_reset(group_id)}. The checkpoints of the other "
        "members contain their last positions. Then restart the query.",
    )


def no_data_unknown(batch_id: int, group_id: str) -> PositionsDiffer:
    """The error for a no-data batch that may be written or not.

    Args:
        batch_id: Spark's batch id.
        group_id: the group.
    """
    return PositionsDiffer(
        f"Group '{group_id}' has no committed offsets, and no entry of no-data batches: they have expired, or were deleted. Batch "
        f"{batch_id} of the checkpoint is not finished, and only the entry shows whether its output is written.",
        # A no-data batch changes neither the positions nor the watermark, and its state is stored before its output is committed.
        remedy="Read the end of the output topic. If it contains the output of the batch: copy the file "
        f"commits/{batch_id - 1} of the checkpoint to commits/{batch_id}. If not: commit the positions of the checkpoint with "
        f"{_reset(group_id)}. Then restart the query.",
    )


def lost_offsets(positions: Mapping[TopicPartition, int], earliest: Collection[TopicPartition], group_id: str) -> str:
    """The warning for a query that continues without the offsets of its group.

    Args:
        positions: the positions of the checkpoint or of a ledger at which it continues.
        earliest: the partitions without such a position, which it reads from the earliest offset.
        group_id: the group.

    >>> lost_offsets({TopicPartition("flights", 0): 20}, [TopicPartition("flights", 1)], "board")
    "Group 'board' has no committed offsets: they have expired, or were deleted. The query continues at flights-0: 20. \
It reads from the earliest offset: flights-1."
    """
    kept = listed([f"{tp}: {n}" for tp, n in sorted(positions.items())]) if positions else "no earlier position"
    others = f" It reads from the earliest offset: {listed(list(map(str, sorted(earliest))))}." if earliest else ""
    return f"Group '{group_id}' has no committed offsets: they have expired, or were deleted. The query continues at {kept}.{others}"


def lost_in_part(positions: Mapping[TopicPartition, int], earliest: Collection[TopicPartition], group_id: str) -> str:
    """The warning for a query whose group has lost some of its offsets.

    Args:
        positions: the positions of the checkpoint at which it continues.
        earliest: the partitions that it reads from the earliest offset, although other members may have read them.
        group_id: the group.

    >>> lost_in_part({TopicPartition("flights", 0): 20}, [], "board")
    "Group 'board' has no committed offset of flights-0, but of other partitions: it has expired, was deleted, or was never committed. \
The query continues at flights-0: 20."
    """
    lost = [str(tp) for tp in sorted({*positions, *earliest})]
    causes = (
        "it has expired, was deleted, or was never committed"
        if len(lost) == 1
        else "they have expired, were deleted, or were never committed"
    )
    offsets = "offset" if len(lost) == 1 else "offsets"
    text = f"Group '{group_id}' has no committed {offsets} of {listed(lost)}, but of other partitions: {causes}."
    if positions:
        kept = listed([f"{tp}: {n}" for tp, n in sorted(positions.items())])
        text += f" The query continues at {kept}."
    if earliest:
        text += (
            f" The query reads from the earliest offset: {listed(list(map(str, sorted(earliest))))}. If other members have read these "
            "partitions, their output is written again. To continue at another offset: stop the query, and commit the positions with "
            f"{_reset(group_id)}."
        )
    return text


def _reset(group_id: str) -> str:
    return command("groups reset", [group_id], "--topic TOPIC:PARTITION --to-offset OFFSET --execute")


def _is_recreated(batch: BatchOffset, topic: str, identities: Mapping[str, TopicIdentity]) -> bool:
    return batch.identity(topic).differs_from(identities.get(topic, UNKNOWN))


def _to_file(next_offsets: Mapping[TopicPartition, int], which: str) -> str:
    """The command that writes positions to a file. With many partitions, the user writes it."""
    if len(next_offsets) > MAX_LISTED:
        return (
            f"write the {which} of these {len(next_offsets)} ranges to positions.csv, in lines TOPIC,PARTITION,OFFSET; "
            "the checkpoint contains them (streamgroups checkpoint show)"
        )
    lines = " ".join(f"'{tp.topic},{tp.partition},{n}'" for tp, n in sorted(next_offsets.items()))
    return f"printf '%s\\n' {lines} > positions.csv"
