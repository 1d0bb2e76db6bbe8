"""May this batch be written, though it reads nothing? The compare-and-swap of batches that positions cannot tell from their replay.

Called by ``streamgroups.ledgers.commit`` and by the sinks of Spark. A query that keeps state has output in batches that read no offset, too: time has come
further, or a timer is due. Such a *quiet* batch can only be run again by a run of the same checkpoint, for what it writes comes out of the state
that is kept there. So a sink notes, for each checkpoint, which quiet batch of it was written last, in the transaction that writes it. A number alone would
not do: a checkpoint that was restored from a copy counts on from an earlier one. So what Spark has logged of the batch before it ran is noted
with it, as a fingerprint. Source: SEMANTICS X2-X4; Spark's ``OffsetSeqLog``, which is written once for each batch.

==============================  ==============  ================================================================
noted of this checkpoint        the batch       because
==============================  ==============  ================================================================
nothing, or an earlier batch    is next         quiet batches are run in the order of their numbers
this batch                      is done         exactly this was written, and its answer was lost
another one of this number      is stale        the checkpoint was set back: what was noted came out of a later state
a later batch                   is stale        likewise, or this is a zombie
==============================  ==============  ================================================================
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from streamgroups.errors import FencedBatch
from streamgroups.json_values import string, whole
from streamgroups.ledgers.ledger import AlreadyDone, Commit
from streamgroups.metadata_entries import read_entry, write_entry
from streamgroups.partitions import TopicPartition

#: What a ledger of offsets holds: whole numbers of 64 bits, none of them negative.
_BITS = 63


@dataclass(frozen=True, slots=True)
class NoDataBatch:
    """A batch that reads nothing.

    Args:
        query_id: of the checkpoint: Spark makes one for each, and keeps it.
        batch_id: Spark's number.
        fingerprint: of what Spark has logged of the batch; at least 0, below 2^63.
    """

    query_id: str
    batch_id: int
    fingerprint: int

    @classmethod
    def logged(cls, query_id: str, batch_id: int, log: str) -> NoDataBatch:
        """A batch by what Spark has logged of it.

        Args:
            query_id: of the checkpoint.
            batch_id: Spark's number.
            log: the content of its file of offsets, the time of the batch included.

        >>> batch = NoDataBatch.logged("5f2c", 7, 'v1\\n{"batchWatermarkMs":5}')
        >>> batch == NoDataBatch.logged("5f2c", 7, 'v1\\n{"batchWatermarkMs":6}')
        False
        """
        digest = int.from_bytes(hashlib.sha256(log.encode()).digest()[:8], "big")
        return cls(query_id, batch_id, digest % 2**_BITS)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """What a ledger that keeps positions notes: as those of two partitions that nobody reads.

        >>> NoDataBatch("5f2c", 7, 99).positions
        {TopicPartition(topic='streamgroups.quiet.5f2c', partition=0): 7, TopicPartition(topic='streamgroups.quiet.5f2c', partition=1): 99}
        """
        topic = f"streamgroups.quiet.{self.query_id}"
        return {TopicPartition(topic, 0): self.batch_id, TopicPartition(topic, 1): self.fingerprint}

    def in_ledger(self, positions: Mapping[TopicPartition, int]) -> NoDataBatch | None:
        """What a ledger has noted of the same checkpoint; ``None`` if nothing.

        >>> batch = NoDataBatch("5f2c", 7, 99)
        >>> batch.in_ledger(batch.positions) == batch, batch.in_ledger({}) is None
        (True, True)
        """
        number, fingerprint = (positions.get(tp) for tp in self.positions)
        return None if number is None or fingerprint is None else NoDataBatch(self.query_id, number, fingerprint)

    def encode(self) -> str:
        """As a note: the metadata of a committed offset."""
        return write_entry({"query": self.query_id, "batch": self.batch_id, "fingerprint": self.fingerprint})

    @classmethod
    def parse(cls, metadata: str) -> NoDataBatch | None:
        """Reads a note back; ``None`` if it is none, or one of a newer version.

        >>> batch = NoDataBatch("5f2c", 7, 99)
        >>> NoDataBatch.parse(batch.encode()) == batch, NoDataBatch.parse("by hand") is None
        (True, True)
        """
        raw = read_entry(metadata)
        try:
            return cls(string(raw["query"]), whole(raw["batch"]), whole(raw["fingerprint"]))
        except (KeyError, ValueError):
            return None


def judge_no_data(batch: NoDataBatch, noted: NoDataBatch | None, *, group_id: str) -> Commit | AlreadyDone:
    """What the note says to a quiet batch.

    Args:
        batch: which is to be written.
        noted: what the sink has noted last, of whichever checkpoint.
        group_id: the group, for the text of a refusal.

    Returns:
        To commit, with what a ledger of positions notes; or that it is done.

    Raises:
        FencedBatch: if the checkpoint has been set back, or a newer run of it has gone on.

    >>> batch = NoDataBatch("5f2c", 7, 99)
    >>> [type(judge_no_data(batch, noted, group_id="board")).__name__ for noted in (None, NoDataBatch("5f2c", 5, 1), batch)]
    ['Commit', 'Commit', 'AlreadyDone']
    >>> judge_no_data(batch, NoDataBatch("5f2c", 8, 1), group_id="board")
    Traceback (most recent call last):
    streamgroups.errors.FencedBatch: No-data batch 7 of group 'board' was rejected: the sink already contains batch 8 of its checkpoint. \
The checkpoint is an old copy, or another run of the query uses it. If it is an old copy, start with a new checkpoint.
    """
    if noted is None or noted.query_id != batch.query_id or noted.batch_id < batch.batch_id:
        return Commit(batch.positions)
    if noted == batch:
        return AlreadyDone()
    raise FencedBatch(
        f"No-data batch {batch.batch_id} of group '{group_id}' was rejected: the sink already contains batch {noted.batch_id} of its "
        "checkpoint.",
        remedy="The checkpoint is an old copy, or another run of the query uses it. If it is an old copy, start with a new checkpoint.",
    )
