"""The life cycle of a writer of micro-batches that writes each batch once.

The base of the writers of ``sinks.kafka`` and ``sinks.ledger_writer``. Spark creates a writer twice for each batch, in two
processes of the driver. It pickles one to the tasks, and calls ``commit`` of the other with their messages. The output
therefore begins when the writer is pickled, and each message returns it. The message of the first task also returns the batch
as the begin has read it from the checkpoint, so the commit does not read it again. Source: Spark's
``DataSourceStreamArrowWriter``; SEMANTICS X1-X4.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from streamgroups.dlq.letter import DeadLetter
from streamgroups.dlq.limits import count_letters
from streamgroups.errors import FencedBatch, StreamGroupsError
from streamgroups_spark.bridge.pickled_begin import BegunOnPickle
from streamgroups_spark.bridge.rpc import request_user
from streamgroups_spark.internals.python_worker import prepare_python_worker
from streamgroups_spark.internals.spark_api import DataSourceStreamArrowWriter
from streamgroups_spark.messages.batch import OutputWritten
from streamgroups_spark.sinks.batch_info import BatchInfo, LoggedBatch, batch_info, logged_batch, query_id_of
from streamgroups_spark.sinks.letters.good_rows import GoodRows, TaskLetters, query_of
from streamgroups_spark.sinks.letters.of_batch import LetterOutput, letters_of

logger = logging.getLogger(__name__)


@dataclass
class TaskOutput(WriterCommitMessage):
    """The result of a task, for the driver.

    Args:
        begun: the transaction or stage of its output. ``None`` if the driver has nothing to commit.
        written: the result of the sink for this task; ``None`` if it has written nothing.
        records: the number of records.
        letters: its dead letters; ``None`` if it has none.
        query: the name of the query, or its id, for dead letters that the driver finds. Empty without dead letters.
        batch: the batch of its output. Only the first task returns it.
    """

    begun: Any
    written: Any
    records: int
    letters: TaskLetters | None = None
    query: str = ""
    batch: LoggedBatch | None = None


class ExactlyOnceWriter(BegunOnPickle, DataSourceStreamArrowWriter):
    """Begins the output of a batch on the driver, writes it in tasks, and commits or aborts it on the driver.

    Args:
        checkpoint: the checkpoint of the query.
        session: the session in which the sources of the query run.
        dead_letters: the output of dead letters. The rows then have the column ``dead_letter``. ``None``: they do not.
    """

    def __init__(self, checkpoint: str, session: str, dead_letters: LetterOutput | None = None) -> None:
        self._checkpoint, self._session, self._dead_letters = checkpoint, session, dead_letters
        #: The transaction or stage of the tasks, and whether the output exists already. Set when the writer is pickled.
        self._begun: Any = None
        self._is_written: bool | None = None
        #: The batch. Set when the writer is pickled, and before its commit.
        self._batch: LoggedBatch | None = None

    def _begin_once(self) -> None:
        if self._is_written is None:
            self._is_written = self._begin()

    @abstractmethod
    def _begin(self) -> bool:
        """Sets the transaction or stage. Returns whether the output of the batch exists already."""

    @abstractmethod
    def _write(self, records: Iterator[pa.RecordBatch], context: TaskContext) -> TaskOutput:
        """Writes the rows of a task, in the worker."""

    @abstractmethod
    def _commit(self, parts: Sequence[TaskOutput]) -> None:
        """Commits output and offsets together."""

    @abstractmethod
    def _abort(self, begun: Any) -> None:
        """Discards output that was never visible."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskOutput:
        """Writes the rows of a task, in the worker."""
        context = TaskContext.get()
        assert context is not None, "Spark calls this in tasks"
        prepare_python_worker()
        if self._is_written:
            # Spark reads the batch again for its state. Its output is already committed.
            for _ in iterator:
                pass
            return TaskOutput(None, None, 0)
        output = self._write(iterator, context) if self._dead_letters is None else self._split(iterator, context)
        # Spark commits a batch only if all of its tasks have finished.
        output.batch = self._batch if context.partitionId() == 0 else None
        return output

    def _split(self, iterator: Iterator[pa.RecordBatch], context: TaskContext) -> TaskOutput:
        rows_to_write = GoodRows(iterator)
        output = self._write(rows_to_write, context)
        output.query = query_of(
            context.getLocalProperty("spark.job.description"), context.getLocalProperty("sql.streaming.queryId")
        )
        output.letters = rows_to_write.letters(context.partitionId(), output.query)
        return output

    def _letters(self, parts: Sequence[TaskOutput], batch: BatchInfo) -> list[DeadLetter]:
        """Returns the dead letters of a batch, on the driver.

        Raises:
            TooManyDeadLetters: if a limit is exceeded.
        """
        if self._dead_letters is None:
            return []
        tasks = [part.letters for part in parts if part.letters is not None]
        return letters_of(self._dead_letters, tasks, sum(part.records for part in parts), batch)

    def _info(self, *, to_commit: bool = False, confirmed: bool = False) -> BatchInfo:
        """Requests the facts about the batch. See :func:`batch_info`."""
        if self._batch is None:
            self._batch = logged_batch(self._checkpoint)
        return batch_info(self._batch, self._session, to_commit=to_commit, confirmed=confirmed)

    def _confirm(self) -> BatchInfo:
        """Requests the facts about the batch, with the confirmation of the broker."""
        return self._info(confirmed=True)

    def _query_id(self, batch: BatchInfo) -> str | None:
        """Returns the id of the query. ``None`` if the checkpoint does not contain it any more."""
        return batch.query_id or query_id_of(self._checkpoint)

    def _report(
        self, batch: BatchInfo, letters: Sequence[DeadLetter], statements: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        """Reports what a batch has written to the user's process, for metrics. The batch is complete without it.

        Args:
            batch: the batch.
            letters: its dead letters.
            statements: see :class:`streamgroups_spark.messages.batch.OutputWritten`.
        """
        try:
            query_id = self._query_id(batch) if letters or statements else None
            if query_id is not None:
                request_user(self._session, OutputWritten(query_id, count_letters(letters).by_step, dict(statements)))
        except StreamGroupsError as e:
            logger.debug("The output of a batch is not counted: %s", e)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Commits output and offsets together, on the driver."""
        # Without tasks, or if the output is already committed, the source commits its offsets itself.
        if parts := _parts(messages):
            self._batch = _batch_of(parts, batch_id)
            self._commit(parts)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Discards the output of a failed batch, on the driver. None of it was visible."""
        if parts := _parts(messages):
            self._abort(parts[0].begun)


def _batch_of(parts: Sequence[TaskOutput], batch_id: int) -> LoggedBatch:
    batch = next(part.batch for part in parts if part.batch is not None)
    if batch.batch_id != batch_id:
        raise FencedBatch(
            f"The output of batch {batch_id} has begun as that of batch {batch.batch_id}: another process writes to the "
            "checkpoint.",
            remedy="No output of the batch is written. Stop the other query with this checkpoint, and restart this one.",
        )
    return batch


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[TaskOutput]:
    return [message for message in messages if isinstance(message, TaskOutput) and message.begun is not None]
