"""Which dead letters of a batch are written already, if they are written before the output of the batch.

Called by ``streamgroups_spark.sinks.letters.before_output`` on the driver. Letters and output that cannot be in one transaction
are committed one after the other, the letters first. A kill between both commits leaves letters of a batch that runs
again. The replay can have other ranges: another member reads a part of the partitions, or the batch is smaller. So the
ledger of the letters contains a range for each partition: from the position of the output to the end of the written
letters. Source: SEMANTICS X9.

==================================  ================================================================================
the batch begins                    then
==================================  ================================================================================
in the range of the ledger          letters before the end of that range are written
after the range                     no letters of it are written: the range is of an earlier batch
before the range                    all its letters are written: the group was reset to an earlier offset
==================================  ================================================================================

When the output is committed too, the range is reduced to the part after it. So a reset of the group into this range
writes its letters again. A letter without origin is written already if all ranges of the batch are. So is a letter of a record
that the batch has not read, for example the earlier record of a join.

In the last row, letters of the range are written twice, if their output was missing before the reset. To recognize them, the
ledger would contain several ranges: the batch can also end before the range. A range that is wrongly kept loses letters. A
letter that is written twice has the same id, so the ledger contains the last range only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from streamgroups.dlq.letter import DeadLetter
from streamgroups.partitions import OffsetRange, TopicPartition

#: The ranges of a ledger, by partition.
Ranges = Mapping[TopicPartition, OffsetRange]


def missing_letters(letters: Iterable[DeadLetter], batch: Collection[OffsetRange], written: Ranges) -> list[DeadLetter]:
    """Returns the letters of a batch that are not written.

    Args:
        letters: its letters.
        batch: the ranges that the batch reads.
        written: the ranges of the ledger.

    >>> from streamgroups.dlq.letter import Origin
    >>> p0 = TopicPartition("flights", 0)
    >>> letters = [DeadLetter(id=str(n), group_id="b", query="q", failed_at_ms=0, attempt=1, step="s", error_class="E",
    ...                       error="", origin=Origin(p0, n)) for n in (4, 11)]
    >>> [it.id for it in missing_letters(letters, [OffsetRange(p0, 0, 20)], {p0: OffsetRange(p0, 0, 10)})]
    ['11']
    >>> len(missing_letters(letters, [OffsetRange(p0, 0, 20)], {p0: OffsetRange(p0, 20, 20)}))
    2
    """
    ranges = {r.topic_partition: r for r in batch}
    repeated = {r.topic_partition: written[r.topic_partition].end_offset for r in batch if _is_repeated(r, written)}
    is_whole = bool(batch) and all(repeated.get(r.topic_partition, 0) >= r.end_offset for r in batch)

    def is_missing(letter: DeadLetter) -> bool:
        origin = letter.origin
        read = None if origin is None else ranges.get(origin.topic_partition)
        if origin is None or read is None or not read.next_offset <= origin.offset < read.end_offset:
            return not is_whole
        return origin.offset >= repeated.get(origin.topic_partition, 0)

    return [it for it in letters if is_missing(it)]


def with_letters(batch: Collection[OffsetRange], written: Ranges) -> dict[TopicPartition, OffsetRange]:
    """Returns the ranges of the ledger after the letters of a batch are written, and before its output is.

    >>> p0 = TopicPartition("flights", 0)
    >>> with_letters([OffsetRange(p0, 5, 9)], {p0: OffsetRange(p0, 0, 20)})[p0].end_offset
    20
    """
    return {
        r.topic_partition: OffsetRange(
            r.topic_partition,
            r.next_offset,
            max(r.end_offset, written[r.topic_partition].end_offset) if _is_repeated(r, written) else r.end_offset,
        )
        for r in batch
    }


def with_output(batch: Collection[OffsetRange], written: Ranges) -> dict[TopicPartition, OffsetRange]:
    """Returns the ranges of the ledger after the output of a batch is written too.

    Args:
        batch: the ranges that the batch has read.
        written: the result of :func:`with_letters`.

    >>> p0 = TopicPartition("flights", 0)
    >>> str(with_output([OffsetRange(p0, 5, 9)], {p0: OffsetRange(p0, 5, 20)})[p0])
    'flights-0[9,20)'
    """
    return {
        r.topic_partition: OffsetRange(
            r.topic_partition, r.end_offset, max(r.end_offset, written[r.topic_partition].end_offset)
        )
        for r in batch
    }


def _is_repeated(range_: OffsetRange, written: Ranges) -> bool:
    found = written.get(range_.topic_partition)
    return found is not None and found.next_offset <= range_.next_offset < found.end_offset
