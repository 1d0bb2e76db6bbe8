"""Stores the ranges that a query has not read in a metadata group of its group, for later runs of the query.

Created by ``streamgroups_spark.source.running_query``. Called by ``streamgroups.query.micro_batches`` after a restart, and
after a batch whose sink has not read all rows, on Spark's thread for the query. Each call is one or two requests. If the
metadata group cannot be read, uncertain ranges are read again. If skipped ranges cannot be stored, the replay fails. So no
record is lost. An entry that is damaged, or that a newer version has written, can contain any batch: it is not overwritten, and
uncertain ranges of its partition are read again (SEMANTICS G17).

A restarted query replays its unfinished batch, except for partitions that another member owns by then. Spark's checkpoint
does not show that. It contains the batch with all its ranges, and the batch is done as soon as the other ranges are. Suppose
that the query is restarted again before it has logged another batch, and then owns such a partition. It would count the
range as read, although no member has read it. Therefore each run stores its skipped ranges before Spark can finish the batch.
A batch whose sink has not read all rows is stored with all its ranges, as soon as the source detects it. The store is
:func:`streamgroups.coordination.reset_protocol.skipped_ranges_group_of` the group. Each metadata entry contains the
fingerprints of batches. Source: SEMANTICS S1, S5.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from streamgroups.checkpoints.offset import BatchOffset, encode
from streamgroups.coordination.reset_protocol import skipped_ranges_group_of
from streamgroups.errors import StreamGroupsError
from streamgroups.json_values import string
from streamgroups.metadata_entries import read_entries, read_entry, unreadable_in, write_entry
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed, MetadataStore
from streamgroups.printable import listed

logger = logging.getLogger(__name__)
#: The number that fits into the 4,096 bytes of metadata that a broker permits. Earlier ones are dropped.
MOST = 200


class SkippedRangeStore:
    """Reads and writes the skipped ranges of a query.

    Args:
        metadata_store: the metadata entries of all groups. It is not closed here.
        group_id: the group of the query.
    """

    def __init__(self, metadata_store: MetadataStore, group_id: str) -> None:
        self._metadata_store, self._group_id = metadata_store, group_id

    def record(self, batch: BatchOffset, left: Collection[TopicPartition]) -> None:
        """Stores the partitions of a replayed batch that the query does not read.

        Called before Spark can finish the batch.

        Raises:
            StreamGroupsError: if they cannot be stored. After the batch, its checkpoint would count them as read.
        """
        try:
            self._write(batch, left)
        except StreamGroupsError as e:
            if left:
                skipped = listed(r for r in batch.ranges if r.topic_partition in left)
                raise e.with_text(
                    f"Group '{self._group_id}': the query does not read {skipped} of its last batch again, because it does "
                    f"not own these partitions, and this could not be stored: {e.what}",
                    f"{e.remedy} The query can be restarted.".strip(),
                ) from e

    def record_left_ranges(self, batch: BatchOffset) -> None:
        """Stores that the sink has not read all rows of a batch, which Spark counts as finished.

        Raises nothing, because the query fails with the reason. Without the entry, the stored states decide
        (:func:`streamgroups.checkpoints.restart.unread`).
        """
        try:
            self._write(batch, [r.topic_partition for r in batch.ranges])
        except StreamGroupsError as e:
            logger.warning(
                "Group '%s': it could not be stored that the sink has not read batch %d (%s); after a restart the query "
                "reads the batch again if a state of it is missing.",
                self._group_id,
                batch.number,
                e,
            )

    def among(self, batch: BatchOffset, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Those of the partitions that a finished batch has not read, or for which that is unknown."""
        try:
            stored, unreadable = self._read(partitions)
        except StreamGroupsError as e:
            logger.warning(
                "Group '%s': the skipped ranges of batch %d in %s could not be read (%s); records without a committed offset are read again.",
                self._group_id,
                batch.number,
                listed(sorted(partitions)),
                e,
            )
            return partitions
        return [*unreadable, *(tp for tp, left in stored.items() if fingerprint(batch) in left.batches)]

    def _write(self, batch: BatchOffset, left: Collection[TopicPartition]) -> None:
        ends = {r.topic_partition: r.end_offset for r in batch.ranges}
        stored, unreadable = self._read(ends)
        changed = changes(fingerprint(batch), {tp: tp in left for tp in ends.keys() - unreadable}, stored)
        if changed:
            entries = {tp: Committed(ends[tp], it.encode()) for tp, it in changed.items()}
            self._metadata_store.write(skipped_ranges_group_of(self._group_id), entries)

    def _read(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, SkippedRanges], frozenset[TopicPartition]]:
        """The entries, and the partitions whose entry cannot be read."""
        read = self._metadata_store.read(skipped_ranges_group_of(self._group_id), sorted(partitions))
        metadata = {tp: c.metadata for tp, c in read.items() if c.metadata}
        found = read_entries(
            skipped_ranges_group_of(self._group_id), metadata, lambda _, text: SkippedRanges.parse(text)
        )
        return found, frozenset(unreadable_in(metadata, found))


def fingerprint(batch: BatchOffset) -> str:
    """Identifies a batch among those of all queries of the group.

    >>> fingerprint(BatchOffset(1)) == fingerprint(BatchOffset(1, warm_ups=2)) != fingerprint(BatchOffset(2))
    True
    """
    logged = json.dumps(encode(replace(batch, warm_ups=0, group_id=None)), sort_keys=True)
    return hashlib.sha256(logged.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class SkippedRanges:
    """The batches that have not read a partition although it is in their checkpoint.

    Args:
        batches: their fingerprints, the earliest first.

    >>> left = SkippedRanges().plus("a").plus("b").minus("a")
    >>> left, SkippedRanges.parse(left.encode()) == left
    (SkippedRanges(batches=('b',)), True)
    """

    batches: tuple[str, ...] = ()

    def plus(self, batch: str) -> SkippedRanges:
        """With one more batch."""
        return SkippedRanges((*self.minus(batch).batches, batch)[-MOST:])

    def minus(self, batch: str) -> SkippedRanges:
        """Without one batch."""
        return SkippedRanges(tuple(b for b in self.batches if b != batch))

    def encode(self) -> str:
        """The entry as metadata."""
        return write_entry({"left": list(self.batches)})

    @classmethod
    def parse(cls, metadata: str) -> SkippedRanges | None:
        """Parses metadata; ``None`` if it is not such an entry, or has a newer version.

        >>> SkippedRanges.parse("by hand") is None
        True
        """
        batches = read_entry(metadata).get("left")
        try:
            return cls(tuple(string(batch, most=64) for batch in batches[:MOST])) if isinstance(batches, list) else None
        except ValueError:
            return None


def changes(
    batch: str, left: Mapping[TopicPartition, bool], stored: Mapping[TopicPartition, SkippedRanges]
) -> dict[TopicPartition, SkippedRanges]:
    """The metadata entries to write again.

    Args:
        batch: the fingerprint of a replayed batch.
        left: for each of its partitions, whether the query skips it. A partition that was skipped before may be read
            now.
        stored: the stored entries.

    >>> p0, p1 = TopicPartition("t", 0), TopicPartition("t", 1)
    >>> changes("b", {p0: True, p1: False}, {p1: SkippedRanges(("a", "b"))})[p1]
    SkippedRanges(batches=('a',))
    >>> changes("b", {p0: True}, {p0: SkippedRanges(("b",))})
    {}
    """
    found = {}
    for tp, is_left in left.items():
        before = stored.get(tp, SkippedRanges())
        if is_left != (batch in before.batches):
            found[tp] = before.plus(batch) if is_left else before.minus(batch)
    return found
