"""Writes a micro-batch to Kafka: ``writeStream.format("streamgroups")``.

Created by ``source.data_source`` (``StreamGroupsDataSource.streamWriter``). Spark creates a writer twice for each
batch, in two processes of the driver. It pickles one to the tasks, and calls ``commit`` of the other with their
messages. A transaction therefore begins when the writer is pickled, and each message returns it::

    driver   __getstate__   check for output ── InitProducerId      (streamgroups_kafka.transactions.coordinator)
    tasks    write          AddPartitionsToTxn, Produce             (streamgroups_kafka.transactions.output)
    driver   commit         check for output ── TxnOffsetCommit, EndTxn

The source detects from the group whether a replayed batch was committed (``sinks.batch_info``). For a no-data batch, a
metadata entry records it (``sinks.no_data_entries``). Source: Spark's ``DataSourceStreamArrowWriter``; KIP-98, KIP-447;
SEMANTICS X1-X4; DESIGN "Exactly once".
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from streamgroups.checkpoints.offset import decode
from streamgroups.errors import (
    FencedBatch,
    FencedMember,
    InvalidOption,
    SinkUnreachable,
    StreamGroupsError,
    TransactionFailed,
)
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups.retry import comes_true
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.transactions.coordinator import Transactions
from streamgroups_kafka.transactions.output import OutputSettings, Written, write_records, written_twice
from streamgroups_kafka.transactions.session import OpenTransaction
from streamgroups_spark.internals.python_worker import prepare_python_worker
from streamgroups_spark.internals.rpc import ask
from streamgroups_spark.internals.shipping import Shipped
from streamgroups_spark.sinks.batch_info import BatchInfo, batch_info, query_id_of
from streamgroups_spark.sinks.no_data_entries import NoDataEntry
from streamgroups_spark.sinks.options import Delivery, SinkOptions
from streamgroups_spark.source.batch_messages import BatchFacts, BatchWritten

logger = logging.getLogger(__name__)

#: How long a source may take to receive the next generation of the group after the last one was rejected.
_NEXT_GENERATION_S = 30.0
_AGAIN_S = 0.05
#: How long a run checks whether its output exists before it fences other runs.
_FIRST_LOOK_S = 3.0


@dataclass
class TaskWritten(WriterCommitMessage):
    """The result of a task, for the driver.

    Args:
        written: the partitions and records that it has written.
        transaction: the transaction of the output. ``None`` if there was no transaction.
    """

    written: Written
    transaction: OpenTransaction | None


class KafkaStreamWriter(Shipped, DataSourceStreamArrowWriter):
    """Writes batches to Kafka, with their offsets in one transaction.

    Args:
        options: the options of the user.
        session: the session in which the sources of the query run.
        tasks: the usual number of tasks.
    """

    def __init__(self, options: SinkOptions, session: str, tasks: int) -> None:
        self._options, self._session = options, session
        self._settings = OutputSettings(options.topic, options.batches, options.with_headers, tasks)
        #: The transaction of the tasks. ``None`` if they write nothing, or before the writer is pickled.
        self._begun: OpenTransaction | None = None
        self._is_written: bool | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Begins the transaction on the driver, before the writer is pickled to the tasks."""
        if self._is_written is None:
            self._begin()
        return self.__dict__

    def _begin(self) -> None:
        if self._options.delivery is Delivery.AT_LEAST_ONCE:
            self._is_written = False
            return
        # The source confirms its membership first, so that a zombie does not fence a newer run.
        seen = self._seen()
        note = self._note(seen)
        self._is_written = seen.is_written or (note is not None and _seems_to_be_there(note))
        if self._is_written:
            return
        with closing(self._transactions()) as transactions:
            self._begun = transactions.begin()
            # From here no other run can write the batch, but one may have written it just before.
            if note is not None and note.is_there():
                transactions.abort(self._begun)
                self._is_written, self._begun = True, None

    def _note(self, batch: BatchInfo) -> NoDataEntry | None:
        """Returns the metadata entry that records a no-data batch.

        ``None`` for other batches, and without a group to store it.
        """
        if batch.quiet is None or self._options.group_id is None or not batch.partitions:
            return None
        return NoDataEntry(self._options.client, self._options.group_id, batch.partitions, batch.quiet)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Writes the rows of a task, in the worker."""
        context = TaskContext.get()
        assert context is not None, "Spark calls this in tasks"
        prepare_python_worker()
        if self._is_written:
            # Spark reads the batch again for its state. Its output is already committed.
            for _ in iterator:
                pass
            return TaskWritten(Written(context.partitionId(), frozenset(), 0), None)
        if self._begun is not None and context.attemptNumber() > 0:
            raise TransactionFailed(
                f"Spark retried task {context.partitionId()}, but the transaction contains the output of "
                "its first attempt.",
                remedy="Write the batch again in a new transaction: restart the query (sg.supervise does). Set "
                "spark.speculation to false.",
            )
        written = write_records(iterator, self._options.client, self._settings, self._begun, task=context.partitionId())
        return TaskWritten(written, self._begun)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Commits output and offsets together, on the driver."""
        parts = _parts(messages)
        if self._options.delivery is Delivery.AT_LEAST_ONCE:
            return
        transaction = _transaction(parts, batch_id)
        if transaction is None:
            # There were no tasks, or the output is already committed. The source commits its offsets itself.
            return
        with closing(self._transactions()) as transactions:
            try:
                self._commit(transactions, transaction, parts, batch_id)
            except StreamGroupsError:
                _abort(transactions, transaction)
                raise

    def _commit(
        self, transactions: Transactions, transaction: OpenTransaction, parts: Sequence[TaskWritten], batch_id: int
    ) -> None:
        _reject_if_shared(parts)
        batch = self._seen(batch_id)
        records = sum(part.written.records for part in parts)
        note = self._note(batch) if records else None
        # A newer run may already have written this batch before the transaction began. Since then no other run can
        # write.
        if (note is not None and note.is_there()) or not (records or batch.ranges):
            transactions.abort(transaction)
            return
        if note is not None:
            transactions.commit_offsets(transaction, note.offsets, note.group_metadata)
        elif not batch.ranges:
            raise _nothing_tells_it_from_its_replay(batch, records)
        for i, source in enumerate(batch.sources):
            if source.ranges:
                self._commit_offsets(transactions, transaction, source, batch_id, i)
        transactions.commit(transaction)
        for source in batch.sources:
            ask(self._session, BatchWritten(source.end))
        logger.info("Batch %d: %d records committed with their offsets", batch_id, records)

    def _commit_offsets(
        self, transactions: Transactions, transaction: OpenTransaction, source: BatchFacts, batch_id: int, i: int
    ) -> None:
        """Adds the offsets of a source to the transaction.

        Retries with a newer generation in which the member still owns all ranges.
        """
        offsets, group_metadata = _offsets(source), source.group_metadata
        while True:
            assert group_metadata is not None, "batch_info waits for it"
            try:
                return transactions.commit_offsets(transaction, offsets, group_metadata)
            except FencedMember:
                newer = self._next_group_metadata(group_metadata, batch_id, i)
                if newer is None:
                    raise
                group_metadata = newer

    def _next_group_metadata(
        self, rejected: ConsumerGroupMetadata, batch_id: int, i: int
    ) -> ConsumerGroupMetadata | None:
        newest = rejected

        def is_newer() -> bool:
            nonlocal newest
            group_metadata = self._seen(batch_id).sources[i].group_metadata
            assert group_metadata is not None, "batch_info waits for it"
            newest = group_metadata
            return newest != rejected

        return newest if comes_true(is_newer, _NEXT_GENERATION_S, every_s=_AGAIN_S) else None

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Aborts the transaction of a failed batch on the driver, so that readers need not wait for its timeout."""
        begun = next((part.transaction for part in _parts(messages) if part.transaction is not None), None)
        if begun is not None:
            with closing(self._transactions()) as transactions:
                _abort(transactions, begun)

    @property
    def _checkpoint(self) -> str:
        assert self._options.checkpoint_location is not None, "parse_sink demands it"
        return self._options.checkpoint_location

    def _seen(self, batch_id: int | None = None) -> BatchInfo:
        return batch_info(self._checkpoint, self._session, batch_id, to_commit=batch_id is not None)

    def _transactions(self) -> Transactions:
        options = self._options
        return Transactions(options.client, self._transactional_id(), timeout_ms=options.transaction_timeout_ms)

    def _transactional_id(self) -> str:
        if self._options.transactional_id is not None:
            return self._options.transactional_id
        # Members of a group on several hosts may have checkpoints with equal paths. The query ids differ, and restarts
        # keep them.
        query_id = query_id_of(self._checkpoint)
        if query_id is None:
            raise SinkUnreachable(
                f"The checkpoint '{self._checkpoint}' has no metadata any more.",
                remedy=(
                    "Restore it, or start the query with a new checkpoint: it continues at the committed "
                    "offsets of the group."
                ),
            )
        return transactional_id_of(self._options.group_id, query_id)


def _seems_to_be_there(note: NoDataEntry) -> bool:
    """Checks whether the batch is written before the transaction begins.

    A run without output then fences no other run.

    The transaction of a killed run blocks this check until it is aborted. The begin of a new transaction aborts it.
    """
    try:
        return note.is_there(retry_timeout_s=_FIRST_LOOK_S)
    except StreamGroupsError as e:
        if not e.retriable:
            raise
        return False


def transactional_id_of(group_id: str | None, query_id: str | None = None) -> str:
    """Returns the default transactional id of a query. It is unique, and the same after each restart.

    Args:
        group_id: the group of the source. ``None`` if it is unknown.
        query_id: the query id of the checkpoint. ``None`` for an exclusive query, whose id does not depend on its
            checkpoint.

    >>> transactional_id_of("board"), transactional_id_of("board", "5f2c")
    ('streamgroups-board', 'streamgroups-board-5f2c')
    """
    return "-".join(part for part in ("streamgroups", group_id, query_id) if part is not None)


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[TaskWritten]:
    return [message for message in messages if isinstance(message, TaskWritten)]


def _transaction(parts: Sequence[TaskWritten], batch_id: int) -> OpenTransaction | None:
    begun = {part.transaction for part in parts if part.transaction is not None}
    if len(begun) > 1:
        raise TransactionFailed(
            f"The tasks of batch {batch_id} wrote in {len(begun)} transactions.",
            remedy=(
                "This is a bug in streamgroups. No output of the batch is visible, and you can restart the "
                "query safely."
            ),
        )
    return next(iter(begun), None)


def _reject_if_shared(parts: Sequence[TaskWritten]) -> None:
    shared = written_twice(part.written for part in parts)
    if shared:
        named = ", ".join(map(str, sorted(shared)[:5])) + (", ..." if len(shared) > 5 else "")
        raise InvalidOption(
            f"Several tasks have written to {named}, but in a transaction only one task may write to a partition.",
            remedy="Use sg.exactly_once(df, ...), which assigns each output partition to one task. Or repartition "
            "by the column 'partition', or reduce the number of tasks (coalesce), or set "
            "delivery=at-least-once.",
        )


def _nothing_tells_it_from_its_replay(batch: BatchInfo, records: int) -> FencedBatch:
    return FencedBatch(
        f"Batch {batch.batch_id} has {records} records of output and has read no records: after a restart, "
        "the sink could not detect that they are written.",
        remedy="Use sg.exactly_once(df, ...), or set the sink's option 'group.id' to the group of the query: the "
        "sink then records such batches. Or set delivery=at-least-once.",
    )


def _offsets(source: BatchFacts) -> Mapping[TopicPartition, Committed]:
    end, exclusive = decode(source.end), source.mode is MembershipMode.EXCLUSIVE

    def metadata(topic: str) -> str:
        # confluent-kafka takes the text for one that ends with a NUL.
        return CommitMark(exclusive, written=True, identity=end.identity(topic)).encode() + "\0"

    return {r.topic_partition: Committed(r.end_offset, metadata(r.topic_partition.topic)) for r in source.ranges}


def _abort(transactions: Transactions, transaction: OpenTransaction) -> None:
    try:
        transactions.abort(transaction)
    except StreamGroupsError as e:
        logger.warning("A transaction stays open until the next one begins or until it times out: %s", e)
