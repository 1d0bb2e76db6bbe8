"""Writes a micro-batch to a sink with its own ledger: PostgreSQL, Delta.

``sinks.exactly_once`` registers one format for each sink. The sink travels with the class, so its credentials appear in
no option and no plan. ``sinks.base`` describes the life cycle. Source:
:class:`streamgroups.ledgers.staging.StagingSink`; SEMANTICS X2-X4.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from streamgroups.dlq.letter import COLUMN, DeadLetter
from streamgroups.dlq.limits import most_letters
from streamgroups.errors import InvalidOption, RecordRejected
from streamgroups.ledgers.batch_commit import commit_batch
from streamgroups.ledgers.compare_and_swap import AlreadyDone
from streamgroups.ledgers.ledger_states import StateChange, changes
from streamgroups.ledgers.no_data_batch import NoDataBatch, judge_no_data
from streamgroups.ledgers.staging import IsolatingSink, StagingSink
from streamgroups.partitions import TopicPartition
from streamgroups.retry import retrying
from streamgroups_operators.plain_values import texts_of
from streamgroups_spark.internals.python_worker import prepare_python_worker
from streamgroups_spark.internals.spark_api import DataSourceStreamArrowWriter, to_arrow_schema
from streamgroups_spark.sinks.base import ExactlyOnceWriter, TaskOutput
from streamgroups_spark.sinks.batch_info import BatchInfo, number_of, reported_states
from streamgroups_spark.sinks.letters.bad_record_search import failure_of, write_isolated
from streamgroups_spark.sinks.letters.good_rows import FAILURE_TYPE, GoodRows
from streamgroups_spark.sinks.letters.of_batch import LetterOutput, letters_of, staged
from streamgroups_spark.sinks.output_mode import reject_overwrite

logger = logging.getLogger(__name__)

AnySink = StagingSink[pa.Schema, pa.RecordBatch, Any, Any]

#: How long a commit is retried after a conflict, or after an unknown result.
_RETRY_TIMEOUT_S = 60.0
#: How often the rejected rows of a batch are determined, if other transactions write meanwhile.
_ISOLATIONS = 5


class LedgerDataSource(DataSource):
    """A format for one sink. ``exactly_once`` creates a subclass for each."""

    format_name: ClassVar[str] = "streamgroups-ledger"
    session: ClassVar[str] = "alone"
    sink: ClassVar[AnySink]
    #: The groups of the query, sorted: one for each stream of a join.
    group_ids: ClassVar[tuple[str, ...]]
    #: The output of dead letters; ``None`` without them.
    dead_letters: ClassVar[LetterOutput | None] = None

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return cls.format_name

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Returns the writer of a streaming query. Spark creates it in two processes for each batch."""
        prepare_python_worker()
        reject_overwrite(overwrite)
        checkpoint = self.options.get("checkpointLocation")
        if not checkpoint:
            raise InvalidOption(
                "The sink cannot find the query's checkpoint, which contains the offsets of a batch.",
                remedy=(
                    "Set the option 'checkpointLocation' on writeStream, as sg.exactly_once(..., checkpoint=...) does."
                ),
            )
        if self.dead_letters is not None:
            schema = StructType([field for field in schema if field.name != COLUMN])
        columns = to_arrow_schema(schema, timezone="UTC")
        return LedgerStreamWriter(self.sink, columns, checkpoint, self.session, self.group_ids, self.dead_letters)


class LedgerStreamWriter(ExactlyOnceWriter):
    """Writes batches to a sink, with their positions in one transaction.

    Args:
        sink: the sink.
        schema: the schema of the records.
        checkpoint: the checkpoint of the query.
        session: the session in which its sources run.
        group_ids: the groups of the query, sorted. The ledger of the first one stores the entry of no-data batches.
        dead_letters: the output of dead letters. The rows then have the column ``dead_letter``. ``None``: they do not.
    """

    def __init__(
        self,
        sink: AnySink,
        schema: pa.Schema,
        checkpoint: str,
        session: str,
        group_ids: tuple[str, ...],
        dead_letters: LetterOutput | None = None,
    ) -> None:
        super().__init__(checkpoint, session, dead_letters)
        self._sink, self._schema, self._group_ids = sink, schema, group_ids
        #: Of the last transaction, if the sink has divided the batch.
        self._statements: Mapping[str, int] = {}

    def _begin(self) -> bool:
        batch = self._info()
        if batch.is_written or (batch.no_data_batch is not None and self._is_recorded(batch.no_data_batch)):
            return True
        self._begun = self._sink.begin(self._schema, uuid.uuid4().hex)
        return False

    def _is_recorded(self, no_data_batch: NoDataBatch) -> bool:
        group_id = self._group_ids[0]
        with self._sink.open(group_id) as ledger:
            recorded = no_data_batch.in_ledger(ledger.positions(no_data_batch.positions.keys()))
        return isinstance(judge_no_data(no_data_batch, recorded, group_id=group_id), AlreadyDone)

    def _write(self, records: Iterator[pa.RecordBatch], context: TaskContext) -> TaskOutput:
        counted, attempt = _Counted(records), context.taskAttemptId()
        if not isinstance(records, GoodRows):
            return TaskOutput(self._begun, [self._sink.write(self._begun, counted, attempt)], counted.records)
        rejected: list[pa.Array] = []
        written = write_isolated(partial(self._sink.write, self._begun), counted, attempt, rejected.append)
        for failure in rejected:
            records.add(failure)
        return TaskOutput(self._begun, written, counted.records - len(rejected))

    def _commit(self, parts: Sequence[TaskOutput]) -> None:
        batch = self._info()
        output = [it for part in parts for it in part.written] if sum(part.records for part in parts) else []
        states = {it.group_id: changes(it.states, reported_states(self._session, it)) for it in batch.sources}
        dead = self._dead_letters
        if dead is None or dead.with_output:
            letters = self._commit_together(parts, batch, output, states)
        else:
            # Each batch has new processes on the driver, and this module imports kafka-python.
            from streamgroups_spark.sinks.letters.before_output import finish, write_first

            letters = self._letters(parts, batch)
            written = write_first(dead, letters, batch, self._query_id, self._confirm)
            self._commit_all(batch, output, states)
            finish(dead, batch, self._query_id, written, self._confirm)
        self._report(batch, letters, self._statements)
        self._abort(parts[0].begun)

    def _commit_together(
        self,
        parts: Sequence[TaskOutput],
        batch: BatchInfo,
        output: Sequence[Any],
        states: Mapping[str, Mapping[TopicPartition, StateChange]],
    ) -> list[DeadLetter]:
        """Commits output and dead letters in one transaction. Returns the letters."""
        dead = self._dead_letters
        commit, letters = output, self._letters(parts, batch)
        isolations = _ISOLATIONS if dead is not None and getattr(self._sink, "isolate_violations", False) else 0
        while True:
            try:
                with staged(None if dead is None else dead.sink, letters) as staged_letters:
                    self._commit_all(batch, [*commit, *staged_letters], states)
            except RecordRejected:
                # Another transaction can write between the isolation and the commit, so it can be necessary again.
                if not isolations:
                    raise
                assert dead is not None
                isolations -= 1
                commit, letters = self._isolate(dead, parts, batch, output)
            else:
                return letters

    def _isolate(
        self, dead: LetterOutput, parts: Sequence[TaskOutput], batch: BatchInfo, output: Sequence[Any]
    ) -> tuple[Sequence[Any], list[DeadLetter]]:
        """Returns the output without the rows that only the transaction can judge, and all letters of the batch."""
        n_records = max(sum(len(r) for r in batch.ranges), sum(part.records for part in parts))
        isolate, most = cast(IsolatingSink, self._sink).isolate, most_letters(dead.limits, n_records)
        isolated = retrying(_RETRY_TIMEOUT_S, every_s=0.05, slowest_s=2)(isolate, output, most)
        found = GoodRows(iter(()))
        for row in isolated.rejected:
            values = row.values if row.record is None else texts_of(row.record)[0]
            found.add(pa.array([failure_of(values, row.error, self._schema)], FAILURE_TYPE))
        # The driver has no number of a task.
        letters = found.letters(-1, parts[0].query)
        tasks = [it for it in (letters, *(part.letters for part in parts)) if it is not None]
        n_rows = sum(part.records for part in parts) - len(isolated.rejected)
        return isolated.staged, letters_of(dead, tasks, n_rows, batch)

    def _commit_all(
        self, batch: BatchInfo, output: Sequence[Any], states: Mapping[str, Mapping[TopicPartition, StateChange]]
    ) -> None:
        retrying(_RETRY_TIMEOUT_S, every_s=0.05, slowest_s=2)(self._commit_in, batch, output or None, states)

    def _commit_in(
        self,
        batch: BatchInfo,
        staged: Sequence[Any] | None,
        states: Mapping[str, Mapping[TopicPartition, StateChange]],
    ) -> None:
        reads = {group_id: batch.reads.get(group_id, ()) for group_id in self._group_ids}
        with self._sink.open(self._group_ids[0]) as ledger:
            verdict = commit_batch(
                ledger,
                reads,
                staged,
                no_data_batch=batch.no_data_batch,
                number=number_of(batch, self._checkpoint),
                identities=batch.identities,
                states=states,
                epochs=batch.epochs,
            )
            self._statements = dict(getattr(ledger, "statements", {}))
        logger.info("Batch %d of group %s: %s", batch.batch_id, ", ".join(self._group_ids), type(verdict).__name__)

    def _abort(self, begun: Any) -> None:
        self._sink.discard(begun)


class _Counted(Iterator[pa.RecordBatch]):
    """Counts the records of a task while they are written."""

    def __init__(self, records: Iterator[pa.RecordBatch]) -> None:
        self._of, self.records = records, 0

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._of)
        self.records += batch.num_rows
        return batch
