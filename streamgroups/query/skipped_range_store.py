"""Stores the ranges that a query has not read in a metadata group of its group, for later runs of the query.

Created by ``streamgroups_spark.source.running_query``. Called by ``streamgroups.query.micro_batches`` after a restart, and
after a batch whose sink has not read all rows, on Spark's thread for the query. Each call is one or two requests. If the metadata group cannot be read, uncertain ranges
are read again. If skipped ranges cannot be stored, the replay fails. So no record is lost. Source: :mod:`streamgroups.checkpoints.skipped_ranges`; SEMANTICS S1,
S5.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from streamgroups.checkpoints.offset import BatchOffset
from streamgroups.checkpoints.skipped_ranges import SkippedRanges, changes, fingerprint
from streamgroups.coordination.reset_protocol import skipped_ranges_group_of
from streamgroups.errors import StreamGroupsError
from streamgroups.metadata_entries import read_entries
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed, MetadataStore

logger = logging.getLogger(__name__)


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
                skipped = ", ".join(str(r) for r in batch.ranges if r.topic_partition in left)
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
            stored = self._read(partitions)
        except StreamGroupsError as e:
            logger.warning(
                "Group '%s': the skipped ranges of batch %d in %s could not be read (%s); records without a committed offset are read again.",
                self._group_id,
                batch.number,
                ", ".join(map(str, sorted(partitions))),
                e,
            )
            return partitions
        return [tp for tp, left in stored.items() if fingerprint(batch) in left.batches]

    def _write(self, batch: BatchOffset, left: Collection[TopicPartition]) -> None:
        ends = {r.topic_partition: r.end_offset for r in batch.ranges}
        changed = changes(fingerprint(batch), {tp: tp in left for tp in ends}, self._read(ends))
        if changed:
            entries = {tp: Committed(ends[tp], it.encode()) for tp, it in changed.items()}
            self._metadata_store.write(skipped_ranges_group_of(self._group_id), entries)

    def _read(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, SkippedRanges]:
        read = self._metadata_store.read(skipped_ranges_group_of(self._group_id), sorted(partitions))
        metadata = {tp: c.metadata for tp, c in read.items()}
        return read_entries(
            skipped_ranges_group_of(self._group_id), metadata, lambda _, text: SkippedRanges.parse(text)
        )
