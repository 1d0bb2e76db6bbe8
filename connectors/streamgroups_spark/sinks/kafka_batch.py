"""Writes a batch DataFrame to Kafka: ``df.write.format("streamgroups")``.

Created by ``formats.data_source`` (``StreamGroupsDataSource.writer``). All tasks write in one transaction. Spark pickles
the writer on the driver before the tasks run, and the same state returns to the driver for the commit. If the commit
fails, Spark calls ``abort``. Source: Spark's ``DataSourceArrowWriter`` and ``WriteToDataSourceV2Exec``; KIP-98;
SEMANTICS X1.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from streamgroups.errors import SinkUnreachable
from streamgroups_kafka.transactions.coordinator import Transactions, abort_failed
from streamgroups_kafka.transactions.task_output import OutputSettings
from streamgroups_kafka.transactions.transaction_requests import OpenTransaction
from streamgroups_spark.bridge.pickled_begin import BegunOnPickle
from streamgroups_spark.internals.python_worker import prepare_python_worker
from streamgroups_spark.sinks.base import TaskOutput
from streamgroups_spark.sinks.kafka_tasks import reject_shared_partitions, write_in_task
from streamgroups_spark.sinks.sink_options import Delivery, SinkOptions


class KafkaBatchWriter(BegunOnPickle, DataSourceArrowWriter):
    """Writes the rows of a batch DataFrame, by default in one transaction.

    Args:
        options: the options of the user.
        tasks: the usual number of tasks, if the options do not have it.
    """

    def __init__(self, options: SinkOptions, tasks: int) -> None:
        self._options = options
        self._settings = OutputSettings(options.topic, options.batches, options.with_headers, options.tasks or tasks)
        self._transactional_id = options.transactional_id or new_transactional_id()
        self._begun: OpenTransaction | None = None

    def _begin_once(self) -> None:
        if self._begun is None and self._options.delivery is Delivery.EXACTLY_ONCE:
            with closing(self._transactions()) as transactions:
                self._begun = transactions.begin()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskOutput:
        """Writes the rows of a task, in the worker."""
        context = TaskContext.get()
        assert context is not None, "Spark calls this in tasks"
        prepare_python_worker()
        return write_in_task(
            iterator,
            self._options,
            self._settings,
            self._begun,
            context,
            remedy="The log of the executor contains the error of the first attempt. Write the DataFrame again: none "
            "of its rows is visible. Set spark.speculation to false.",
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commits the rows of all tasks together, on the driver."""
        if self._begun is None:
            return
        parts = [message for message in messages if isinstance(message, TaskOutput)]
        reject_shared_partitions(
            parts,
            remedy="Use sg.write(df, sink=sg.KafkaSink(...)), which assigns each output partition to one task. Or "
            "write with one task (coalesce(1)), or set delivery=at-least-once.",
        )
        if not any(part.records for part in parts):
            # Kafka rejects the commit of a transaction without partitions.
            self.abort(messages)
            return
        with closing(self._transactions()) as transactions:
            try:
                transactions.commit(self._begun)
            except SinkUnreachable as e:
                raise SinkUnreachable(
                    e.what, remedy="Read the topic with isolation.level=read_committed before you write the rows again."
                ) from e

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Aborts the transaction of a failed job, on the driver. None of its rows was visible."""
        if self._begun is not None:
            abort_failed(self._transactions, self._begun)

    def _transactions(self) -> Transactions:
        return Transactions(
            self._options.client, self._transactional_id, timeout_ms=self._options.transaction_timeout_ms
        )


def new_transactional_id() -> str:
    """Returns an id of one batch write. A second write at the same time must not fence it."""
    return f"streamgroups-batch-{uuid.uuid4()}"
