"""Writes a micro-batch to Kafka: ``writeStream.format("streamgroups")``.

Created by ``formats.data_source`` (``StreamGroupsDataSource.streamWriter``). ``sinks.base`` describes the life cycle. The
transaction of a batch::

    driver   __getstate__   check for output ── InitProducerId      (streamgroups_kafka.transactions.coordinator)
    tasks    write          AddPartitionsToTxn, Produce             (streamgroups_kafka.transactions.task_output)
    driver   commit         check for output ── TxnOffsetCommit, EndTxn

The source detects from the group whether a replayed batch was committed (``sinks.batch_info``). For a no-data batch, a
metadata entry records it (``sinks.no_data_entries``). Source: Spark's ``DataSourceStreamArrowWriter``; KIP-98, KIP-447;
SEMANTICS X1-X4; docs/architecture.rst, "Communication between source and sink".
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import ClassVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from streamgroups.checkpoints.offset import decode
from streamgroups.coordination.reset_protocol import letters_group_of
from streamgroups.dlq.letter import DeadLetter
from streamgroups.errors import (
    FencedBatch,
    InvalidOption,
    SinkUnreachable,
    StreamGroupsError,
    TransactionFailed,
)
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.groups.membership import Owned, States
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups.state.origins import UNNAMED
from streamgroups_kafka.transactions.coordinator import Transactions, abort_failed
from streamgroups_kafka.transactions.task_output import OutputSettings
from streamgroups_kafka.transactions.transaction_requests import OpenTransaction
from streamgroups_spark.bridge.rpc import request_source
from streamgroups_spark.internals.python_worker import prepare_python_worker
from streamgroups_spark.internals.spark_api import DataSourceStreamArrowWriter
from streamgroups_spark.messages.batch import BatchFacts, BatchWritten
from streamgroups_spark.sinks.base import ExactlyOnceWriter, TaskOutput
from streamgroups_spark.sinks.batch_info import BatchInfo, number_of, reported_states
from streamgroups_spark.sinks.group_offsets import commit_offsets
from streamgroups_spark.sinks.kafka_tasks import reject_shared_partitions, write_in_task
from streamgroups_spark.sinks.letters.before_output import finish, write_first
from streamgroups_spark.sinks.letters.of_batch import LetterOutput, write_to_topic
from streamgroups_spark.sinks.no_data_entries import NoDataEntry, reject_repeated_output
from streamgroups_spark.sinks.output_mode import reject_overwrite
from streamgroups_spark.sinks.sink_options import Delivery, SinkOptions, parse_sink

logger = logging.getLogger(__name__)

#: How long a run checks whether its output exists before it fences other runs.
_FIRST_READ_S = 3.0


class KafkaStreamWriter(ExactlyOnceWriter):
    """Writes batches to Kafka, with their offsets in one transaction.

    Args:
        options: the options of the user.
        session: the session in which the sources of the query run.
        tasks: the usual number of tasks, if neither the options nor the source of a batch have it.
        dead_letters: the output of dead letters. The rows then have the column ``dead_letter``. ``None``: they do not.
    """

    def __init__(
        self, options: SinkOptions, session: str, tasks: int, dead_letters: LetterOutput | None = None
    ) -> None:
        # Output that is written at least once needs no checkpoint.
        super().__init__(options.checkpoint_location or "", session, dead_letters)
        self._options = options
        self._settings = OutputSettings(options.topic, options.batches, options.with_headers, options.tasks or tasks)

    def _begin(self) -> bool:
        if self._options.delivery is Delivery.AT_LEAST_ONCE:
            return False
        # The source confirms its membership first, so that a zombie does not fence a newer run.
        batch = self._info()
        if self._options.tasks is None and batch.tasks is not None:
            # No task selects the partition of another one, also if executors have registered since sg.register.
            self._settings = replace(self._settings, tasks=batch.tasks)
        entry = self._no_data_entry(batch)
        if batch.is_written or (entry is not None and _seems_to_be_there(entry)):
            return True
        with closing(self._transactions(self._transactional_id(batch))) as transactions:
            begun = transactions.begin()
            # From here no other run can write the batch, but one may have written it just before.
            with transactions.aborting(begun):
                self._reject_repeated_output(batch)
                is_written = entry is not None and entry.is_there()
            if is_written:
                transactions.abort(begun)
                return True
        self._begun = begun
        return False

    def _reject_repeated_output(self, batch: BatchInfo) -> None:
        """Rejects a batch with records if the checkpoint was set back behind a no-data batch (SEMANTICS X4)."""
        number = None if self._options.group_id is None else number_of(batch, self._checkpoint)
        if number is not None and self._options.group_id is not None and batch.partitions:
            reject_repeated_output(self._options.client, self._options.group_id, batch.partitions, number)

    def _no_data_entry(self, batch: BatchInfo) -> NoDataEntry | None:
        """Returns the metadata entry that records a no-data batch.

        ``None`` for other batches, and without a group to store it.
        """
        if batch.no_data_batch is None or self._options.group_id is None or not batch.partitions:
            return None
        return NoDataEntry(self._options.client, self._options.group_id, batch.partitions, batch.no_data_batch)

    def _write(self, records: Iterator[pa.RecordBatch], context: TaskContext) -> TaskOutput:
        return write_in_task(
            records,
            self._options,
            self._settings,
            self._begun,
            context,
            remedy="Write the batch again in a new transaction: restart the query (sg.supervise does). Set "
            "spark.speculation to false.",
        )

    def _commit(self, parts: Sequence[TaskOutput]) -> None:
        transaction = _transaction(parts)
        with (
            closing(self._transactions(transaction.transactional_id)) as transactions,
            transactions.aborting(transaction),
        ):
            self._commit_in(transactions, transaction, parts)

    def _commit_in(self, transactions: Transactions, transaction: OpenTransaction, parts: Sequence[TaskOutput]) -> None:
        reject_shared_partitions(
            parts,
            remedy="Use sg.exactly_once(df, ...), which assigns each output partition to one task. Or repartition "
            "by the column 'partition', or reduce the number of tasks (coalesce), or set "
            "delivery=at-least-once.",
        )
        batch = self._info(to_commit=True)
        letters = self._letters(parts, batch)
        records = sum(part.records for part in parts) + len(letters)
        entry = self._no_data_entry(batch) if records else None
        # A newer run may already have written this batch before the transaction began. Since then no other run can
        # write.
        if (entry is not None and entry.is_there()) or not (records or batch.ranges):
            transactions.abort(transaction)
            return
        if entry is not None:
            transactions.commit_offsets(transaction, entry.offsets, entry.group_metadata)
        elif not batch.ranges:
            raise _equals_its_replay(batch, records)
        written = self._write_letters(letters, parts, transaction, batch)
        for source in batch.sources:
            if source.ranges:
                offsets = _offsets(source, reported_states(self._session, source))
                commit_offsets(transactions, transaction, source, offsets, partial(self._info, to_commit=True))
        transactions.commit(transaction)
        for source in batch.sources:
            request_source(self._session, source.end, BatchWritten(source.end))
        if self._dead_letters is not None:
            finish(self._dead_letters, batch, self._query_id, written, self._confirm)
        self._report(batch, letters)
        logger.info("Batch %d: %d records committed with their offsets", batch.batch_id, records)

    def _write_letters(
        self,
        letters: Sequence[DeadLetter],
        parts: Sequence[TaskOutput],
        transaction: OpenTransaction,
        batch: BatchInfo,
    ) -> frozenset[str]:
        """Writes the dead letters of a batch: in its transaction, or before it in a transaction of their own sink.

        Returns the groups for :func:`finish`.
        """
        if self._dead_letters is None:
            return frozenset()
        if not self._dead_letters.with_output:
            return write_first(self._dead_letters, letters, batch, self._query_id, self._confirm)
        dead = self._dead_letters.sink
        if any(tp.topic == dead.topic for part in parts for tp in part.written.partitions):
            raise InvalidOption(
                f"Rows of the query were written to topic '{dead.topic}', which is the topic of its dead letters.",
                remedy="Use separate topics.",
            )
        write_to_topic(letters, self._options.client, dead, transaction)
        return frozenset()

    def _abort(self, begun: OpenTransaction) -> None:
        """Aborts the transaction, so that readers need not wait for its timeout."""
        abort_failed(partial(self._transactions, begun.transactional_id), begun)

    def _transactions(self, transactional_id: str) -> Transactions:
        options = self._options
        return Transactions(options.client, transactional_id, timeout_ms=options.transaction_timeout_ms)

    def _transactional_id(self, batch: BatchInfo) -> str:
        if self._options.transactional_id is not None:
            return self._options.transactional_id
        # Members of a group on several hosts may have checkpoints with equal paths. The query ids differ, and restarts
        # keep them.
        query_id = self._query_id(batch)
        if query_id is None:
            raise SinkUnreachable(
                f"The checkpoint '{self._checkpoint}' has no metadata any more.",
                remedy=(
                    "Restore it, or start the query with a new checkpoint: it continues at the committed "
                    "offsets of the group."
                ),
            )
        return transactional_id_of(self._options.group_id, query_id)


def _seems_to_be_there(entry: NoDataEntry) -> bool:
    """Checks whether the batch is written before the transaction begins.

    A run without output then fences no other run.

    The transaction of a killed run blocks this check until it is aborted. The begin of a new transaction aborts it.
    """
    try:
        return entry.is_there(retry_timeout_s=_FIRST_READ_S)
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


def letters_transactional_id(exclusive_groups: Collection[str]) -> str | None:
    """Returns the default transactional id of dead letters that are written before the output.

    It is the same with any checkpoint, so it contains a group that no other query has. No group has the name of a metadata group,
    so it is no default of an output.

    Args:
        exclusive_groups: the groups that the query does not share. ``None`` is returned without them: then the id contains
            the id of the query.

    >>> letters_transactional_id(["rules", "orders"])
    'streamgroups-orders.streamgroups.letters'
    """
    return transactional_id_of(letters_group_of(min(exclusive_groups))) if exclusive_groups else None


def _transaction(parts: Sequence[TaskOutput]) -> OpenTransaction:
    begun: set[OpenTransaction] = {part.begun for part in parts}
    if len(begun) > 1:
        raise TransactionFailed(
            f"The tasks of a batch wrote in {len(begun)} transactions.",
            remedy=(
                "This is a bug in streamgroups. No output of the batch is visible, and you can restart the "
                "query safely."
            ),
        )
    return begun.pop()


def _equals_its_replay(batch: BatchInfo, records: int) -> FencedBatch:
    return FencedBatch(
        f"Batch {batch.batch_id} has {records} records of output and has read no records: after a restart, "
        "the sink could not detect that they are written.",
        remedy="Use sg.exactly_once(df, ...), or set the sink's option 'group.id' to the group of the query: the "
        "sink then records such batches. Or set delivery=at-least-once.",
    )


def _offsets(source: BatchFacts, states: States) -> Mapping[TopicPartition, Committed]:
    end, exclusive = decode(source.end), source.mode is MembershipMode.EXCLUSIVE
    ends = {r.topic_partition: r.end_offset for r in source.ranges}

    def metadata(tp: TopicPartition) -> str:
        position = replace(
            source.owned.get(tp, Owned(0)),
            next_offset=ends[tp],
            identity=end.identity(tp.topic),
            state=states.get(tp, UNNAMED),
        )
        mark = position.mark(ends[tp], exclusive=exclusive, written=True, form=source.form)
        # confluent-kafka takes the text for one that ends with a NUL.
        return mark.encode() + "\0"

    return {r.topic_partition: Committed(r.end_offset, metadata(r.topic_partition)) for r in source.ranges}


class KafkaLettersDataSource(DataSource):
    """The format of a query with dead letters. ``exactly_once`` creates and registers a subclass for each query.

    The sink of the dead letters travels with the class, so its credentials appear in no option and no plan (SEMANTICS X9).
    """

    format_name: ClassVar[str] = "streamgroups-letters"
    session: ClassVar[str] = "alone"
    connections_file: ClassVar[str | None] = None
    dead_letters: ClassVar[LetterOutput]

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return cls.format_name

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Returns the writer of a streaming query. Spark creates it in two processes for each batch."""
        prepare_python_worker()
        reject_overwrite(overwrite)
        options = parse_sink(self.options, connections_file=self.connections_file)
        return KafkaStreamWriter(options, self.session, 1, self.dead_letters)
