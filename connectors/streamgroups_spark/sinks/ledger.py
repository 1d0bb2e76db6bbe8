"""Writes a micro-batch to a sink with its own ledger: PostgreSQL, Delta.

``sinks.exactly_once`` registers one format for each sink. The sink travels with the class, so its credentials appear in
no option and no plan. As in ``sinks.kafka``, Spark creates a writer twice for each batch, in two processes of the
driver. The stage is created when the writer is pickled to the tasks, and their messages return it. Source: Spark's
``DataSourceStreamArrowWriter``; :class:`streamgroups.ledgers.staging.StagingSink`; SEMANTICS X2-X4.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

from streamgroups.errors import InvalidOption, StreamGroupsError
from streamgroups.ledgers.commit import commit_batch
from streamgroups.ledgers.ledger import AlreadyDone
from streamgroups.ledgers.no_data_batch import NoDataBatch, judge_no_data
from streamgroups.ledgers.staging import StagingSink
from streamgroups_spark.internals.python_worker import prepare_python_worker
from streamgroups_spark.internals.shipping import Shipped
from streamgroups_spark.sinks.batch_info import BatchInfo, batch_info

logger = logging.getLogger(__name__)

AnySink = StagingSink[pa.Schema, pa.RecordBatch, Any, Any]

#: How long a commit is retried after a conflict, or after an unknown result.
_RETRY_TIMEOUT_S = 60.0


@dataclass
class TaskStaged(WriterCommitMessage):
    """The result of a task, for the driver.

    Args:
        stage: the stage of its output. ``None`` if no output is required.
        staged: the result of the sink for this task.
        records: the number of records.
    """

    stage: Any
    staged: Any
    records: int


class LedgerDataSource(DataSource):
    """A format for one sink. ``exactly_once`` creates a subclass for each."""

    format_name: ClassVar[str] = "streamgroups-ledger"
    session: ClassVar[str] = "alone"
    sink: ClassVar[AnySink]
    #: The groups of the query, sorted: one for each stream of a join.
    group_ids: ClassVar[tuple[str, ...]]

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return cls.format_name

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Returns the writer of a streaming query. Spark creates it in two processes for each batch."""
        prepare_python_worker()
        checkpoint = self.options.get("checkpointLocation")
        if not checkpoint:
            raise InvalidOption(
                "The sink cannot find the query's checkpoint, which contains the offsets of a batch.",
                remedy=(
                    "Set the option 'checkpointLocation' on writeStream, as sg.exactly_once(..., checkpoint=...) does."
                ),
            )
        schema = to_arrow_schema(schema, timezone="UTC")
        return LedgerStreamWriter(self.sink, schema, checkpoint, self.session, self.group_ids)


class LedgerStreamWriter(Shipped, DataSourceStreamArrowWriter):
    """Writes batches to a sink, with their positions in one transaction.

    Args:
        sink: the sink.
        schema: the schema of the records.
        checkpoint: the checkpoint of the query.
        session: the session in which its sources run.
        group_ids: the groups of the query, sorted. The ledger of the first one stores the entry of no-data batches.
    """

    def __init__(
        self, sink: AnySink, schema: pa.Schema, checkpoint: str, session: str, group_ids: tuple[str, ...]
    ) -> None:
        self._sink, self._schema, self._checkpoint, self._session = sink, schema, checkpoint, session
        self._group_ids = group_ids
        #: Both are set when the writer is pickled.
        self._stage: Any = None
        self._is_written: bool | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Creates the stage on the driver, before the writer is pickled to the tasks."""
        if self._is_written is None:
            batch = batch_info(self._checkpoint, self._session)
            self._is_written = batch.is_written or (batch.quiet is not None and self._is_noted(batch.quiet))
            if not self._is_written:
                self._stage = self._sink.begin(self._schema, uuid.uuid4().hex)
        return self.__dict__

    def _is_noted(self, quiet: NoDataBatch) -> bool:
        group_id = self._group_ids[0]
        with self._sink.open(group_id) as ledger:
            noted = quiet.in_ledger(ledger.positions(quiet.positions.keys()))
        return isinstance(judge_no_data(quiet, noted, group_id=group_id), AlreadyDone)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskStaged:
        """Writes the rows of a task to the stage, in the worker."""
        context = TaskContext.get()
        assert context is not None, "Spark calls this in tasks"
        prepare_python_worker()
        if self._is_written:
            # Spark reads the batch again for its state. Its output is already committed.
            for _ in iterator:
                pass
            return TaskStaged(None, None, 0)
        counted = _Counted(iterator)
        return TaskStaged(self._stage, self._sink.write(self._stage, counted, context.taskAttemptId()), counted.records)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Commits output and positions together, on the driver."""
        parts = [message for message in messages if isinstance(message, TaskStaged) and message.stage is not None]
        if not parts:
            # There were no tasks, or the output is already committed.
            return
        batch = batch_info(self._checkpoint, self._session, batch_id)
        staged = [part.staged for part in parts] if sum(part.records for part in parts) else None
        patient = Retrying(
            retry=retry_if_exception(lambda e: isinstance(e, StreamGroupsError) and e.retriable),
            stop=stop_after_delay(_RETRY_TIMEOUT_S),
            wait=wait_exponential(multiplier=0.05, max=2),
            reraise=True,
        )
        patient(self._commit, batch, staged)
        self._sink.discard(parts[0].stage)

    def _commit(self, batch: BatchInfo, staged: Sequence[Any] | None) -> None:
        reads = {group_id: batch.reads.get(group_id, ()) for group_id in self._group_ids}
        with self._sink.open(self._group_ids[0]) as ledger:
            verdict = commit_batch(ledger, reads, staged, quiet=batch.quiet, identities=batch.identities)
        logger.info("Batch %d of group %s: %s", batch.batch_id, ", ".join(self._group_ids), type(verdict).__name__)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Discards the stage of a failed batch, on the driver. None of its output was visible."""
        for message in messages:
            if isinstance(message, TaskStaged) and message.stage is not None:
                return self._sink.discard(message.stage)
        return None


class _Counted(Iterator[pa.RecordBatch]):
    """Counts the records of a task while they are written."""

    def __init__(self, records: Iterator[pa.RecordBatch]) -> None:
        self._of, self.records = records, 0

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._of)
        self.records += batch.num_rows
        return batch
