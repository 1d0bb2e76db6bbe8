"""Writes dead letters before the output of their batch, if both cannot be in one transaction.

Called by ``sinks.kafka`` and ``sinks.ledger_writer`` on the driver. The letters have a ledger of their own, which they change
in one transaction: in the table of the letters, or in offsets of a metadata group. :mod:`streamgroups.dlq.written_letters`
compares it with a replayed batch. Source: SEMANTICS F4, X9.

The owner of the ranges is the only writer of their letters. Each change of the ledger is fenced in its transaction:

* A topic is in the cluster of the group. The transaction also commits the offsets of each group at which the batch begins,
  unchanged, with the consumer group metadata of the member. The broker rejects them if a group has replaced its member.
* A table contains no members of the group. The transaction reads the ledger, requests the confirmation of the broker, and compares. If
  the member is in its group then, no other member has owned the ranges before, and the transaction of a later owner begins
  after this one. Ownership epochs of positions cannot replace the confirmation: a group that was deleted counts them from 1
  again, so the new owner can have a lower one than the ledger, and a frozen process of the deleted group a greater one.

Letters without origin belong to the first group from which the batch reads. So its ledger contains the ranges of all groups. A
no-data batch has no ranges, and no member that Spark has called after a restart: its letters are neither fenced nor compared.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from typing import Any, Protocol, TypeAlias

from streamgroups.coordination.reset_protocol import letters_group_of
from streamgroups.coordination.unreadable_entries import unreadable
from streamgroups.dlq.letter import DeadLetter
from streamgroups.dlq.written_letters import Ranges, missing_letters, with_letters, with_output
from streamgroups.errors import FencedBatch, LedgerConflict, PositionsDiffer, StreamGroupsError
from streamgroups.groups.membership import Owned
from streamgroups.json_values import string, whole
from streamgroups.metadata_entries import read_entries, read_entry, unreadable_in, write_entry
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Committed, Ledger, LedgerTransaction
from streamgroups.printable import listed
from streamgroups.retry import retrying
from streamgroups_kafka.admin.metadata_store import KafkaMetadataStore
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.transactions.coordinator import Transactions
from streamgroups_spark.messages.batch import BatchFacts
from streamgroups_spark.sinks.batch_info import BatchInfo
from streamgroups_spark.sinks.group_offsets import commit_offsets
from streamgroups_spark.sinks.letters.of_batch import LetterOutput, staged, write_to_topic
from streamgroups_spark.sinks.sink_options import SinkOptions

logger = logging.getLogger(__name__)

#: The topics whose positions in a ledger of letters are the beginnings of ranges. They do not exist in Kafka.
_BEGINS = "streamgroups.letters."
_RETRY_TIMEOUT_S = 60.0

#: Requests the facts about the batch, with the confirmation of the broker that its members are still in their groups.
Confirm: TypeAlias = Callable[[], BatchInfo]
#: Returns the id of the query of a batch.
QueryId: TypeAlias = Callable[[BatchInfo], str | None]


class _LetterLedger(Protocol):
    """The ledger of the letters of one group."""

    def read(self, partitions: Collection[TopicPartition]) -> Ranges:
        """Returns the ranges of the ledger.

        Raises:
            PositionsDiffer: if a range cannot be read.
        """
        ...

    def write(self, letters: Sequence[DeadLetter], before: Ranges, after: Ranges) -> None:
        """Writes letters and changes the ranges, in one transaction.

        Raises:
            FencedMember: if another member owns the ranges now. Nothing is changed.
            LedgerConflict: if the ledger does not contain ``before`` any more. Nothing is changed.
        """
        ...


def write_first(
    output: LetterOutput, letters: Sequence[DeadLetter], batch: BatchInfo, query_id: QueryId, confirm: Confirm
) -> frozenset[str]:
    """Writes the letters of a batch that are not written yet.

    Args:
        output: the output of dead letters.
        letters: the letters of the batch.
        batch: the batch.
        query_id: returns the id of the query.
        confirm: requests the confirmation of the broker.

    Returns:
        The groups with letters, for :func:`finish`.

    Raises:
        StreamGroupsError: if the letters cannot be written. Then nothing of the batch is committed.
    """
    groups = frozenset(it.group_id for it in letters)
    for group_id in sorted(groups):
        of_group = [it for it in letters if it.group_id == group_id]
        retrying(_RETRY_TIMEOUT_S, every_s=0.05, slowest_s=2)(
            _write_missing,
            _ledger(output, group_id, batch, query_id, confirm),
            of_group,
            _ranges(batch, group_id),
        )
    return groups


def finish(
    output: LetterOutput, batch: BatchInfo, query_id: QueryId, groups: Collection[str], confirm: Confirm
) -> None:
    """Records that the output of a batch is written too.

    Without this record a reset of the group into the batch would not write its letters again. It raises nothing, because
    the batch is complete.

    Args:
        output: the output of dead letters.
        batch: the batch.
        query_id: returns the id of the query.
        groups: the result of :func:`write_first`.
        confirm: requests the confirmation of the broker.
    """
    for group_id in sorted(groups):
        ranges = _ranges(batch, group_id)
        if not ranges:
            continue
        try:
            ledger = _ledger(output, group_id, batch, query_id, confirm)
            before = ledger.read([r.topic_partition for r in ranges])
            ledger.write((), before, with_output(ranges, with_letters(ranges, before)))
        except StreamGroupsError as e:
            logger.warning("The ledger of dead letters of group '%s' was not updated: %s", group_id, e)


def _write_missing(ledger: _LetterLedger, letters: Sequence[DeadLetter], ranges: Collection[OffsetRange]) -> None:
    written = ledger.read([r.topic_partition for r in ranges])
    missing = missing_letters(letters, ranges, written)
    if missing:
        ledger.write(missing, written, with_letters(ranges, written))


def _ranges(batch: BatchInfo, group_id: str) -> tuple[OffsetRange, ...]:
    """The ranges that the ledger of a group contains."""
    if group_id != batch.first_group:
        return batch.reads.get(group_id, ())
    ranges = tuple(r for of_group in batch.reads.values() for r in of_group)
    # Two groups can read the same partition at different offsets.
    return ranges if len({r.topic_partition for r in ranges}) == len(ranges) else batch.reads[group_id]


def _ledger(
    output: LetterOutput, group_id: str, batch: BatchInfo, query_id: QueryId, confirm: Confirm
) -> _LetterLedger:
    sources = [it for it in batch.sources if it.ranges]
    # The group's own sources are last: another group can read the same partition.
    owned = {
        tp: it for source in sorted(sources, key=lambda it: it.group_id == group_id) for tp, it in source.owned.items()
    }
    topic_ids = {tp: it.identity.topic_id or "" for tp, it in owned.items()}
    if not isinstance(output.sink, SinkOptions):
        return _TableLedger(output.sink, group_id, topic_ids, confirm)
    # Members of a shared group have checkpoints with different ids.
    own = f"streamgroups-{letters_group_of(group_id)}-{query_id(batch)}"
    transactional_id = output.sink.transactional_id or own
    return _TopicLedger(output.sink, group_id, transactional_id, sources, owned, topic_ids, confirm)


class _TableLedger:
    """The ledger in the database of a table, or in its log."""

    def __init__(self, sink: Any, group_id: str, topic_ids: Mapping[TopicPartition, str], confirm: Confirm) -> None:
        self._sink, self._group_id, self._confirm = sink, letters_group_of(group_id), confirm
        self._topic_ids = topic_ids

    def read(self, partitions: Collection[TopicPartition]) -> Ranges:
        with self._sink.open(self._group_id) as ledger:
            return self._ranges(ledger, partitions)

    def write(self, letters: Sequence[DeadLetter], before: Ranges, after: Ranges) -> None:
        positions = {tp: r.end_offset for tp, r in after.items()}
        positions |= {self._begin_of(tp): r.next_offset for tp, r in after.items()}
        with (
            staged(self._sink, letters) as parts,
            self._sink.open(self._group_id) as ledger,
            ledger.transaction() as transaction,
        ):
            if self._ranges(transaction, after.keys()) != before:
                raise LedgerConflict(
                    f"Another transaction has changed the ledger of letters '{self._group_id}'.",
                    remedy="Try again: the letters are compared with the ledger again.",
                )
            # The order matters: the positions are read, and locked by a database, before the request to the broker.
            self._confirm()
            if parts:
                transaction.write(parts)
            # Delta rejects output without a position. A no-data batch has none.
            transaction.advance(positions or {TopicPartition(_BEGINS + "none", 0): 0})

    def _begin_of(self, tp: TopicPartition) -> TopicPartition:
        # The offsets of a recreated topic begin again, so the ranges of the earlier topic do not apply to it.
        return TopicPartition(f"{_BEGINS}{self._topic_ids.get(tp, '')}.{tp.topic}", tp.partition)

    def _ranges(self, ledger: Ledger[Any] | LedgerTransaction[Any], partitions: Collection[TopicPartition]) -> Ranges:
        begins = {self._begin_of(tp): tp for tp in partitions}
        found = ledger.positions([*partitions, *begins])
        return {
            tp: OffsetRange(tp, found[begin], found[tp])
            for begin, tp in begins.items()
            if begin in found and tp in found
        }


class _TopicLedger:
    """The ledger in the offsets of a metadata group, which a transaction commits with the letters."""

    def __init__(
        self,
        dead: SinkOptions,
        group_id: str,
        transactional_id: str,
        sources: Sequence[BatchFacts],
        owned: Mapping[TopicPartition, Owned],
        topic_ids: Mapping[TopicPartition, str],
        confirm: Confirm,
    ) -> None:
        self._dead, self._group_id, self._transactional_id = dead, letters_group_of(group_id), transactional_id
        self._sources, self._owned, self._topic_ids, self._confirm = sources, owned, topic_ids, confirm

    def read(self, partitions: Collection[TopicPartition]) -> Ranges:
        with closing(KafkaMetadataStore(self._dead.client)) as store:
            found = store.read(self._group_id, partitions)
        metadata = {tp: c.metadata for tp, c in found.items()}
        entries = read_entries(self._group_id, metadata, lambda _, text: _entry(text))
        rejected = unreadable_in(metadata, entries)
        if rejected:
            what, remedy = unreadable(self._group_id, rejected)
            raise PositionsDiffer(
                f"{what} Only these entries show which dead letters of an unfinished batch are written. Nothing of the batch is "
                "committed.",
                remedy=f"{remedy} Then restart the query: without the entries, it writes these letters again, with the same ids.",
            )
        return {
            tp: OffsetRange(tp, begin, found[tp].next_offset)
            for tp, (begin, topic_id) in entries.items()
            if topic_id == self._topic_ids.get(tp, "")
        }

    def write(self, letters: Sequence[DeadLetter], before: Ranges, after: Ranges) -> None:
        # `before` needs no comparison: it was read by a member that the broker still accepts, and no other one writes.
        epochs = {tp: it.epoch for tp, it in self._owned.items()}
        fields = {
            tp: {"begin": r.next_offset, "epoch": epochs.get(tp, 0), "topic": self._topic_ids.get(tp, "")}
            for tp, r in after.items()
        }
        entries = {tp: _committed(r.end_offset, write_entry(fields[tp])) for tp, r in after.items()}
        dead = self._dead
        with closing(
            Transactions(dead.client, self._transactional_id, timeout_ms=dead.transaction_timeout_ms)
        ) as transactions:
            transaction = transactions.begin()
            with transactions.aborting(transaction):
                write_to_topic(letters, dead.client, dead, transaction)
                transactions.commit_offsets(transaction, entries, ConsumerGroupMetadata(self._group_id, None, ""))
                # Last, because the next owner waits from here until the transaction ends (KIP-447).
                for source in self._sources:
                    commit_offsets(transactions, transaction, source, _unchanged(source), self._confirm)
                transactions.commit(transaction)


def _unchanged(source: BatchFacts) -> Mapping[TopicPartition, Committed]:
    """The committed offsets of the group at which the ranges of a batch begin, with their metadata.

    A commit of the member for these offsets can be under way. It has the same offsets and metadata, so their order does not
    matter. The member commits the end of the batch later, and of two commits the later one in the log of the group counts.
    """
    moved = sorted(r for r in source.ranges if r.topic_partition not in source.marks)
    if moved:
        raise FencedBatch(
            f"Positions of group '{source.group_id}' were changed while a batch read {listed(moved)}.",
            remedy="No output of the batch is written. Restart the query: it continues at the new positions.",
        )
    return {r.topic_partition: _committed(r.next_offset, source.marks[r.topic_partition]) for r in source.ranges}


def _committed(next_offset: int, metadata: str) -> Committed:
    # confluent-kafka reads the metadata as a text that ends with a NUL, and adds none for a transaction.
    return Committed(next_offset, metadata + "\0")


def _entry(metadata: str) -> tuple[int, str] | None:
    """The begin of the range of an entry, and its topic id."""
    entry = read_entry(metadata)
    try:
        return whole(entry["begin"]), string(entry["topic"])
    except (KeyError, ValueError):
        return None
