"""Writing a micro-batch to a sink that keeps a ledger of its own: PostgreSQL, Delta.

Registered with the session by ``exactly_once``, once for each sink, so that the sink travels with the class and its login reaches no option
and no plan. As with ``kafka`` Spark makes a writer twice for each batch, in two processes of the driver: the stage is made when the
writer is pickled to the tasks, and comes back with their messages. Source: Spark's ``DataSourceStreamArrowWriter``;
:class:`streamgroups.ledgers.staging.StagingSink`; SEMANTICS X2-X4.
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

#: For how long a commit is tried again that others have crossed, or of which nobody knows whether it was done.
_RETRY_TIMEOUT_S = 60.0


@dataclass
class TaskStaged(WriterCommitMessage):
    """What a task tells the driver.

    Args:
        stage: where it has put its output; ``None`` if there is no need to.
        staged: what the sink wants to know of it.
        records: how many.
    """

    stage: Any
    staged: Any
    records: int


class LedgerDataSource(DataSource):
    """A format of one sink; ``exactly_once`` makes a class for each."""

    format_name: ClassVar[str] = "streamgroups-ledger"
    session: ClassVar[str] = "alone"
    sink: ClassVar[AnySink]
    #: The groups that the query reads for, by name: one for each stream of a join.
    group_ids: ClassVar[tuple[str, ...]]

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return cls.format_name

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """The writer of a streaming query. Made in two processes for each batch."""
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
    """See the module.

    Args:
        sink: where to.
        schema: of the records.
        checkpoint: the query's.
        session: where its source is to be found.
        group_ids: the groups that the query reads for, by name. The first keeps the entry of no-data batches.
    """

    def __init__(
        self, sink: AnySink, schema: pa.Schema, checkpoint: str, session: str, group_ids: tuple[str, ...]
    ) -> None:
        self._sink, self._schema, self._checkpoint, self._session = sink, schema, checkpoint, session
        self._group_ids = group_ids
        #: Known once the writer has been pickled.
        self._stage: Any = None
        self._is_written: bool | None = None

    def __getstate__(self) -> dict[str, Any]:
        """On the driver, on the way to the tasks: the stage is made."""
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
        """In a task: stages what it has."""
        context = TaskContext.get()
        assert context is not None, "Spark calls this in tasks"
        prepare_python_worker()
        if self._is_written:
            # Spark needs the batch again for its state; its output is there.
            for _ in iterator:
                pass
            return TaskStaged(None, None, 0)
        counted = _Counted(iterator)
        return TaskStaged(self._stage, self._sink.write(self._stage, counted, context.taskAttemptId()), counted.records)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """On the driver: output and positions change together."""
        parts = [message for message in messages if isinstance(message, TaskStaged) and message.stage is not None]
        if not parts:
            # There were no tasks, or all of it is there already.
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
        """On the driver: the batch has failed; nobody has seen anything of it."""
        for message in messages:
            if isinstance(message, TaskStaged) and message.stage is not None:
                return self._sink.discard(message.stage)
        return None


class _Counted(Iterator[pa.RecordBatch]):
    """The records of a task, counted on the way."""

    def __init__(self, records: Iterator[pa.RecordBatch]) -> None:
        self._of, self.records = records, 0

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._of)
        self.records += batch.num_rows
        return batch
