"""Writes dead letters before the output of their batch, if both cannot be in one transaction.

Called by ``sinks.kafka`` and ``sinks.ledger`` on the driver. The letters have a ledger of their own, which they change
in one transaction: in the table of the letters, or in offsets of a metadata group. :mod:`streamgroups.dlq.written`
compares it with a replayed batch. Source: SEMANTICS X9.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import Any, Protocol

from streamgroups.coordination.reset_protocol import letters_group_of
from streamgroups.dlq.letter import DeadLetter
from streamgroups.dlq.written import Ranges, missing_letters, with_letters, with_output
from streamgroups.errors import StreamGroupsError
from streamgroups.json_values import whole
from streamgroups.metadata_entries import read_entries, read_entry, write_entry
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Committed
from streamgroups.retry import retrying
from streamgroups_kafka.admin.metadata_store import KafkaMetadataStore
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.transactions.coordinator import Transactions
from streamgroups_spark.sinks.batch_info import BatchInfo, query_id_of
from streamgroups_spark.sinks.letters import LetterOutput, staged, write_to_topic
from streamgroups_spark.sinks.options import SinkOptions

logger = logging.getLogger(__name__)

#: The topics whose positions in a ledger of letters are the beginnings of ranges. They do not exist in Kafka.
_BEGINS = "streamgroups.letters."
_RETRY_TIMEOUT_S = 60.0


class _LetterLedger(Protocol):
    """The ledger of the letters of one group."""

    def read(self, partitions: Collection[TopicPartition]) -> Ranges: ...

    def write(self, letters: Sequence[DeadLetter], ranges: Ranges) -> None: ...


def write_first(
    output: LetterOutput, letters: Sequence[DeadLetter], batch: BatchInfo, checkpoint: str
) -> dict[str, Ranges]:
    """Writes the letters of a batch that are not written yet.

    Args:
        output: the output of dead letters.
        letters: the letters of the batch.
        batch: the batch.
        checkpoint: the checkpoint of the query.

    Returns:
        The ranges of the ledger of each group with letters, for :func:`finish`.

    Raises:
        StreamGroupsError: if the letters cannot be written. Then nothing of the batch is committed.
    """
    after: dict[str, Ranges] = {}
    for group_id in sorted({it.group_id for it in letters}):
        of_group = [it for it in letters if it.group_id == group_id]
        ranges = batch.reads.get(group_id, ())
        after[group_id] = retrying(_RETRY_TIMEOUT_S, every_s=0.05, slowest_s=2)(
            _write_missing, _ledger(output, group_id, checkpoint), of_group, ranges
        )
    return after


def finish(output: LetterOutput, batch: BatchInfo, checkpoint: str, written: Mapping[str, Ranges]) -> None:
    """Records that the output of a batch is written too.

    Without this record a reset of the group into the batch would not write its letters again. It raises nothing, because
    the batch is complete.

    Args:
        output: the output of dead letters.
        batch: the batch.
        checkpoint: the checkpoint of the query.
        written: the result of :func:`write_first`.
    """
    for group_id, found in written.items():
        if not found:
            continue
        try:
            _ledger(output, group_id, checkpoint).write((), with_output(batch.reads[group_id], found))
        except StreamGroupsError as e:
            logger.warning("The ledger of dead letters of group '%s' was not updated: %s", group_id, e)


def _write_missing(
    ledger: _LetterLedger, letters: Sequence[DeadLetter], ranges: Collection[OffsetRange]
) -> dict[TopicPartition, OffsetRange]:
    written = ledger.read([r.topic_partition for r in ranges])
    after = with_letters(ranges, written)
    missing = missing_letters(letters, ranges, written)
    if missing:
        ledger.write(missing, after)
    return after


def _ledger(output: LetterOutput, group_id: str, checkpoint: str) -> _LetterLedger:
    if not isinstance(output.sink, SinkOptions):
        return _TableLedger(output.sink, group_id)
    # Members of a shared group have checkpoints with different ids.
    own = f"streamgroups-{group_id}-{query_id_of(checkpoint)}-letters"
    return _TopicLedger(output.sink, group_id, output.sink.transactional_id or own)


class _TableLedger:
    """The ledger in the database of a table, or in its log."""

    def __init__(self, sink: Any, group_id: str) -> None:
        self._sink, self._group_id = sink, letters_group_of(group_id)

    def read(self, partitions: Collection[TopicPartition]) -> Ranges:
        begins = {_begin_of(tp): tp for tp in partitions}
        with self._sink.open(self._group_id) as ledger:
            found = ledger.positions([*partitions, *begins])
        return {
            tp: OffsetRange(tp, found[begin], found[tp])
            for begin, tp in begins.items()
            if begin in found and tp in found
        }

    def write(self, letters: Sequence[DeadLetter], ranges: Ranges) -> None:
        positions = {tp: r.end_offset for tp, r in ranges.items()}
        positions |= {_begin_of(tp): r.next_offset for tp, r in ranges.items()}
        with (
            staged(self._sink, letters) as parts,
            self._sink.open(self._group_id) as ledger,
            ledger.transaction() as transaction,
        ):
            if parts:
                transaction.write(parts)
            # Delta rejects output without a position. A no-data batch has none.
            transaction.advance(positions or {TopicPartition(_BEGINS + "none", 0): 0})


def _begin_of(tp: TopicPartition) -> TopicPartition:
    return TopicPartition(_BEGINS + tp.topic, tp.partition)


class _TopicLedger:
    """The ledger in the offsets of a metadata group, which a transaction commits with the letters."""

    def __init__(self, dead: SinkOptions, group_id: str, transactional_id: str) -> None:
        self._dead, self._group_id, self._transactional_id = dead, letters_group_of(group_id), transactional_id

    def read(self, partitions: Collection[TopicPartition]) -> Ranges:
        with closing(KafkaMetadataStore(self._dead.client)) as store:
            found = store.read(self._group_id, partitions)
        entries = read_entries(
            self._group_id, {tp: c.metadata for tp, c in found.items()}, lambda _, text: _begin(text)
        )
        return {tp: OffsetRange(tp, begin, found[tp].next_offset) for tp, begin in entries.items()}

    def write(self, letters: Sequence[DeadLetter], ranges: Ranges) -> None:
        offsets = {tp: Committed(r.end_offset, write_entry({"begin": r.next_offset})) for tp, r in ranges.items()}
        if not letters:
            with closing(KafkaMetadataStore(self._dead.client)) as store:
                store.write(self._group_id, offsets)
            return
        # confluent-kafka reads the metadata as a text that ends with a NUL, and adds none for a transaction.
        offsets = {tp: Committed(it.next_offset, it.metadata + "\0") for tp, it in offsets.items()}
        dead = self._dead
        with closing(
            Transactions(dead.client, self._transactional_id, timeout_ms=dead.transaction_timeout_ms)
        ) as transactions:
            transaction = transactions.begin()
            try:
                write_to_topic(letters, dead.client, dead, transaction)
                transactions.commit_offsets(transaction, offsets, ConsumerGroupMetadata(self._group_id, None, ""))
                transactions.commit(transaction)
            except StreamGroupsError:
                transactions.abort(transaction)
                raise


def _begin(metadata: str) -> int | None:
    try:
        return whole(read_entry(metadata)["begin"])
    except (KeyError, ValueError):
        return None
