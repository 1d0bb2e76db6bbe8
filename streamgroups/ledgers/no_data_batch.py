"""Decides whether a no-data batch may be written: its positions do not distinguish it from its replay.

Called by ``streamgroups.ledgers.batch_commit`` and by the sinks of Spark. A query that keeps state also has output in batches
that read no offset: the watermark has advanced, or a timer has fired. Only a run of the same checkpoint can replay such
a no-data batch, because its output is derived from the state in that checkpoint. Therefore a sink stores, for each
checkpoint, the last no-data batch that was written, in the transaction that writes it. Its number alone is not
sufficient: a checkpoint restored from a copy counts on from an earlier number. So the sink also stores a fingerprint of
the batch as Spark logged it before it ran. Source: SEMANTICS X2-X4; Spark's ``OffsetSeqLog``, which is written once for
each batch.

==============================  ==============  ================================================================
stored for this checkpoint      the batch       because
==============================  ==============  ================================================================
nothing, or an earlier batch    is next         no-data batches run in the order of their numbers
this batch                      is done         exactly this batch was written, and the response was lost
another one of this number      is stale        the checkpoint was set back: the stored one is of a later state
a later batch                   is stale        likewise, or this is a zombie
==============================  ==============  ================================================================

A checkpoint that was set back to the batch before a no-data batch is at the same positions. After a restart Spark runs no no-data
batch, so the next batch with records gets its number, and repeats its output. :func:`reject_set_back` rejects it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from streamgroups.errors import FencedBatch
from streamgroups.json_values import string, whole
from streamgroups.ledgers.compare_and_swap import AlreadyDone, Commit
from streamgroups.metadata_entries import read_entry, write_entry
from streamgroups.partitions import TopicPartition

#: A ledger of offsets stores integers of 64 bits that are not negative.
_BITS = 63


@dataclass(frozen=True, slots=True)
class QueryBatch:
    """A batch of a query that keeps state, by its number.

    Args:
        query_id: the id of the checkpoint, which Spark creates with it.
        batch_id: Spark's number of the batch.
    """

    query_id: str
    batch_id: int

    @property
    def no_data_partition(self) -> TopicPartition:
        """The partition whose position in a ledger is the number of the last no-data batch of the query."""
        return TopicPartition(f"streamgroups.no-data.{self.query_id}", 0)


@dataclass(frozen=True, slots=True)
class NoDataBatch:
    """A batch that reads no records.

    Args:
        query_id: the id of the checkpoint, which Spark creates with it.
        batch_id: Spark's number of the batch.
        fingerprint: a hash of the batch in Spark's log; at least 0 and less than 2^63.
    """

    query_id: str
    batch_id: int
    fingerprint: int

    @classmethod
    def logged(cls, query_id: str, batch_id: int, log: str) -> NoDataBatch:
        """A batch, from its content in Spark's log.

        Args:
            query_id: the id of the checkpoint.
            batch_id: Spark's number of the batch.
            log: the content of its offset file, including the time of the batch.

        >>> batch = NoDataBatch.logged("5f2c", 7, 'v1\\n{"batchWatermarkMs":5}')
        >>> batch == NoDataBatch.logged("5f2c", 7, 'v1\\n{"batchWatermarkMs":6}')
        False
        """
        digest = int.from_bytes(hashlib.sha256(log.encode()).digest()[:8], "big")
        return cls(query_id, batch_id, digest % 2**_BITS)

    @property
    def number(self) -> QueryBatch:
        """The batch by its number."""
        return QueryBatch(self.query_id, self.batch_id)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The positions that represent the batch in a ledger of positions: those of two partitions that no query reads.

        >>> NoDataBatch("5f2c", 7, 99).positions
        {TopicPartition(topic='streamgroups.no-data.5f2c', partition=0): 7, TopicPartition(topic='streamgroups.no-data.5f2c', partition=1): 99}
        """
        first = self.number.no_data_partition
        return {first: self.batch_id, TopicPartition(first.topic, 1): self.fingerprint}

    def in_ledger(self, positions: Mapping[TopicPartition, int]) -> NoDataBatch | None:
        """The last no-data batch of the same checkpoint in a ledger; ``None`` if it contains none.

        >>> batch = NoDataBatch("5f2c", 7, 99)
        >>> batch.in_ledger(batch.positions) == batch, batch.in_ledger({}) is None
        (True, True)
        """
        number, fingerprint = (positions.get(tp) for tp in self.positions)
        return None if number is None or fingerprint is None else NoDataBatch(self.query_id, number, fingerprint)

    def encode(self) -> str:
        """As a metadata entry: the metadata of a committed offset."""
        return write_entry({"query": self.query_id, "batch": self.batch_id, "fingerprint": self.fingerprint})

    @classmethod
    def parse(cls, metadata: str) -> NoDataBatch | None:
        """Parses a metadata entry; ``None`` if it is not such an entry, or has a newer version.

        >>> batch = NoDataBatch("5f2c", 7, 99)
        >>> NoDataBatch.parse(batch.encode()) == batch, NoDataBatch.parse("by hand") is None
        (True, True)
        """
        raw = read_entry(metadata)
        try:
            return cls(string(raw["query"]), whole(raw["batch"]), whole(raw["fingerprint"]))
        except (KeyError, ValueError):
            return None


def judge_no_data(batch: NoDataBatch, recorded: NoDataBatch | None, *, group_id: str) -> Commit | AlreadyDone:
    """The verdict on a no-data batch.

    Args:
        batch: the batch to write.
        recorded: the last batch that the sink has stored, of any checkpoint.
        group_id: the group, for the text of an error.

    Returns:
        To commit, with the positions for a ledger of positions; or that the batch is done.

    Raises:
        FencedBatch: if the checkpoint has been set back, or a newer run of it has written a later batch.

    >>> batch = NoDataBatch("5f2c", 7, 99)
    >>> [type(judge_no_data(batch, recorded, group_id="board")).__name__ for recorded in (None, NoDataBatch("5f2c", 5, 1), batch)]
    ['Commit', 'Commit', 'AlreadyDone']
    >>> judge_no_data(batch, NoDataBatch("5f2c", 8, 1), group_id="board")
    Traceback (most recent call last):
    streamgroups.errors.FencedBatch: No-data batch 7 of group 'board' was rejected: the sink already contains batch 8 of its checkpoint. \
The checkpoint is an old copy, or another run of the query uses it. If it is an old copy, start with a new checkpoint.
    """
    if recorded is None or recorded.query_id != batch.query_id or recorded.batch_id < batch.batch_id:
        return Commit(batch.positions)
    if recorded == batch:
        return AlreadyDone()
    raise FencedBatch(
        f"No-data batch {batch.batch_id} of group '{group_id}' was rejected: the sink already contains batch {recorded.batch_id} of its "
        "checkpoint.",
        remedy="The checkpoint is an old copy, or another run of the query uses it. If it is an old copy, start with a new checkpoint.",
    )


def reject_set_back(batch: QueryBatch, last_no_data: int | None, *, group_id: str) -> None:
    """Rejects a batch with records if its checkpoint was set back behind a no-data batch.

    Args:
        batch: the batch to write.
        last_no_data: the number of the last no-data batch of its query that the sink has stored. ``None`` if it has none.
        group_id: the group, for the text of an error.

    Raises:
        FencedBatch: if the sink contains a no-data batch of this number, or a later one.

    >>> reject_set_back(QueryBatch("5f2c", 7), 6, group_id="board")
    >>> reject_set_back(QueryBatch("5f2c", 6), 6, group_id="board")
    Traceback (most recent call last):
    streamgroups.errors.FencedBatch: Batch 6 of group 'board' was rejected: the sink already contains no-data batch 6 of its checkpoint, \
and the batch would repeat its output. The checkpoint is an old copy: start with a new checkpoint.
    """
    if last_no_data is not None and last_no_data >= batch.batch_id:
        raise FencedBatch(
            f"Batch {batch.batch_id} of group '{group_id}' was rejected: the sink already contains no-data batch {last_no_data} of its "
            "checkpoint, and the batch would repeat its output.",
            remedy="The checkpoint is an old copy: start with a new checkpoint.",
        )
