"""The data source ``streamgroups``, as Spark's Python data source API requires it.

Spark calls these classes after ``sg.register(spark)`` and pickles them into several processes. One process reads
options and schema. Another one, on the driver, runs the stream reader during its query, and the Python workers call
``read``. Source: Spark's ``DataSource``, ``DataSourceStreamReader``, ``DataSourceReader`` (PySpark 4.2;
``internals.spark_api`` has the differences of older versions). This module only translates.
``streamgroups.query.micro_batches`` plans, and ``streamgroups_kafka`` connects to Kafka.

The start of each process waits for this import. Imports that only one kind of process needs are therefore local.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from streamgroups.errors import InvalidOption
from streamgroups.groups.subscription import partitions_of
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.packing import Packing, pack
from streamgroups.state.task_plan import TaskPlan
from streamgroups_spark.bridge.channel import Channel
from streamgroups_spark.internals.pickle_checks import Shipped
from streamgroups_spark.internals.python_worker import (
    exit_on_sigterm,
    exit_within,
    ignore_termination,
    is_runner,
    prepare_python_worker,
)
from streamgroups_spark.internals.spark_api import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
    to_arrow_schema,
)
from streamgroups_spark.source.source_options import SourceOptions
from streamgroups_spark.source.task_reader import read_task, settings_of

if TYPE_CHECKING:
    from streamgroups.event_time.observations import TaskObservation
    from streamgroups.event_time.producer_watermarks import ProducerWatermarks
    from streamgroups.monitoring.member_reports import UnreadableWatermarks
    from streamgroups.ports import Clock
    from streamgroups.query.micro_batches import MicroBatches
    from streamgroups_spark.bridge.stage_name import DirectColumns
    from streamgroups_spark.source.flow_of_session import FlowOfSession
    from streamgroups_spark.source.running_query import RunningQuery
    from streamgroups_spark.source.watermark_header import Report

logger = logging.getLogger(__name__)

#: How long the process of a query may take to leave the group and to exit. The steps have shorter timeouts of their own.
_LEAVE_TIMEOUT_S = 90.0
#: The greatest number of rows that Spark's protocol can express.
_NO_LIMIT = 2**63 - 1


@dataclass(frozen=True)
class RangesPartition(InputPartition):
    """One task and the ranges that it reads."""

    ranges: tuple[OffsetRange, ...]
    #: The name under which the task reports event times, and the column of those that it reads. ``None`` if it reports
    #: none, or computes them after the read.
    time_report: tuple[str, str | None] | None = None
    #: The states of an operator in the stage of the task. ``None`` if it has none.
    states: TaskPlan | None = None
    #: The watermark of the column ``watermark``, in milliseconds since the epoch. ``None`` without such a column.
    watermark_ms: int | None = None
    #: The name of the member. Empty in a batch read.
    member: str = ""
    #: The columns that the reader passes on. ``None`` if Spark passes the records.
    direct_columns: DirectColumns | None = None
    #: The ids of the topics, as far as they are known.
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    #: The leader epochs of the ends of the partitions, as far as they are known.
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)

    # InputPartition sets ``value``. A frozen dataclass has its own fields instead.


class RejectedStream(Shipped, DataSourceStreamReader):
    """Raises the error of invalid options at the first call by Spark.

    If the constructor raised it, Spark's stream runner would print an error of its own instead.
    """

    def __init__(self, rejection: InvalidOption) -> None:
        self._rejection = rejection

    def initialOffset(self) -> dict[str, Any]:
        """Raises the error."""
        raise self._rejection

    def latestOffset(self, *_: Any) -> dict[str, Any]:
        """Raises the error."""
        raise self._rejection

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RangesPartition]:
        """Raises the error."""
        raise self._rejection

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises the error."""
        raise self._rejection


class StreamReader(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches as a member of the group."""

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        packing: Packing,
        session: str,
        application: str,
        event_time_channel: Channel[tuple[str, TaskObservation]] | None,
        unreadable: Channel[UnreadableWatermarks] | None,
        clock: Clock | None,
        *,
        follows_executors: bool = False,
    ) -> None:
        assert options.group_id is not None, "parse(streaming=True) demands it"
        self._options, self._schema, self._packing = options, schema, packing
        self._group_id = options.group_id
        self._session, self._application, self._event_time_channel = session, application, event_time_channel
        self._unreadable, self._clock, self._follows_executors = unreadable, clock, follows_executors
        self._query: RunningQuery | None = None
        self._until_now = False
        #: ``None`` unless the query is one of a session of Spark Connect that was registered automatically.
        self.flow: FlowOfSession | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Excludes the member, which stays on the driver. Workers receive the settings."""
        return {**self.__dict__, "_query": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Prepares the Python worker before it receives its partition."""
        self.__dict__.update(state)
        prepare_python_worker()

    def initialOffset(self) -> dict[str, Any]:
        """See :meth:`MicroBatches.initial_offset`."""
        return self._running().initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns the limits of the user.

        Spark then passes ``ReadAllAvailable`` only for the trigger ``once``, to disable them.
        """
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.min_offsets is not None:
            return ReadMinRows(limits.min_offsets)
        return ReadMaxRows(_NO_LIMIT)

    def prepareForTriggerAvailableNow(self) -> None:
        """See :meth:`MicroBatches.run_until_now`.

        Spark still plans the query at this point, so the query is started later.
        """
        self._until_now = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """See :meth:`MicroBatches.latest_offset`."""
        end = self._running().latest_offset(start, limited=not isinstance(limit, ReadAllAvailable))
        if self.flow is not None and self._query is not None:
            self.flow.check_start(start, self._query.positions)
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """See :meth:`MicroBatches.report_latest_offset`.

        The report also names group and member, which Spark's progress does not.
        """
        from streamgroups.monitoring.query_progress import encode_report

        end_offsets = self._running().report_latest_offset()
        if end_offsets is None or self._query is None:
            return None
        limits, direct_records = self._query.micro_batches.limits_report, self._query.direct_records
        return encode_report(
            self._group_id, self._query.name, end_offsets, limits, direct_records, self._query.member_id
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RangesPartition]:
        """See :meth:`MicroBatches.tasks`."""
        tasks = self._running().tasks(start, end)
        plans = self._running().task_plans(tasks)
        assert self._query is not None
        time_report, watermark_ms, member = (
            self._query.time_report,
            self._query.late_watermark_ms(end),
            self._query.name,
        )
        direct_columns = self._query.direct_columns if time_report is None else None
        ids = end.get("topics", {})
        epochs = {tp: it.leader_epoch for tp, it in self._query.micro_batches.owned_before.items()}
        return [
            RangesPartition(
                task,
                time_report,
                plan,
                watermark_ms,
                member,
                direct_columns,
                _ids_of(task, ids),
                _epochs_of(task, epochs),
            )
            for task, plan in zip(tasks, plans, strict=True)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads the ranges of one task, in a worker."""
        assert isinstance(partition, RangesPartition)
        ranges, schema, direct_columns = partition.ranges, self._schema, partition.direct_columns
        if partition.states is not None:
            from streamgroups_spark.bridge.handoff import write_plan

            write_plan(
                self._session, self._application, replace(partition.states, is_direct=direct_columns is not None)
            )
            ranges = tuple(it.to_read for it in partition.states.ranges)
        if direct_columns is not None:
            schema = StructType(
                [it for it in schema if it.name in direct_columns.to_operator | direct_columns.to_spark]
            )
        report = self._report_of(partition)
        watermark_ms = partition.watermark_ms
        settings = settings_of(
            self._options, self._group_id, partition.topic_ids, partition.leader_epochs, records_gaps=True
        )
        batches = read_task(ranges, schema, self._options, settings, report, watermark_ms)
        if direct_columns is not None:
            from streamgroups_spark.bridge.direct import pass_on

            columns = to_arrow_schema(self._schema, timezone="UTC")
            return pass_on(batches, direct_columns, columns, self._session, self._application)
        if partition.time_report is None or self._event_time_channel is None:
            return batches
        reported_as, column = partition.time_report
        if column is None or column not in self._schema.names:
            # The event time is computed after the read, or belongs to another query of the group.
            return batches
        from streamgroups_spark.source.observed_times import measured

        return measured(batches, column, reported_as, self._event_time_channel)

    def _report_of(self, partition: RangesPartition) -> Report:
        """Returns the receiver of the watermarks of producers that a task reads.

        The operator in the stage of the task needs each of them with its offset, and the watermark of the query needs the
        latest one.
        """

        def report(watermarks: Sequence[ProducerWatermarks], unreadable: Mapping[TopicPartition, int]) -> None:
            if unreadable and self._unreadable is not None:
                from streamgroups.monitoring.member_reports import UnreadableWatermarks

                place = self._group_id, partition.member
                self._unreadable.send(UnreadableWatermarks(*place, tp, count) for tp, count in unreadable.items())
            if not watermarks:
                return
            if partition.states is not None:
                from streamgroups_spark.bridge.handoff import write_watermarks

                write_watermarks(self._session, self._application, watermarks)
            if partition.time_report is not None and self._event_time_channel is not None:
                from streamgroups_spark.source.watermark_header import observed

                reported_as = partition.time_report[0]
                self._event_time_channel.send((reported_as, it) for it in observed(watermarks))

        return report

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: ``latestOffset`` detects earlier that a batch is done, also for the last batch."""

    def stop(self) -> None:
        """Leaves the group."""
        if self._query is not None:
            if is_runner():
                ignore_termination()
                exit_within(_LEAVE_TIMEOUT_S)
            self._query.stop()

    def _running(self) -> MicroBatches:
        if self._query is None:
            from streamgroups_spark.source.cluster_clients import cluster_of

            exit_on_sigterm()
            _log_ignored(self._options)
            cluster = cluster_of(self._options)
            # The clients connect during the next import.
            cluster.connect(self._group_id)
            if self.flow is not None:
                self.flow.wait_for_earlier_run(cluster)
            from streamgroups_spark.source.running_query import RunningQuery

            packing = self._packing
            if self._follows_executors:
                from streamgroups_spark.bridge.rpc import requested_parallelism

                packing = replace(packing, cores=requested_parallelism(self._session, packing.cores))
            self._query = RunningQuery(self._options, packing, cluster, self._session, self._clock)
            if self._until_now:
                self._query.micro_batches.run_until_now()
        return self._query.micro_batches


class BatchReader(Shipped, DataSourceReader):
    """Reads a fixed set of ranges, without joining a group."""

    def __init__(self, options: SourceOptions, schema: StructType, packing: Packing) -> None:
        self._options, self._schema, self._packing = options, schema, packing
        self._group_id = options.group_id or f"{options.group_id_prefix}-{uuid.uuid4()}"

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Runs in workers, before they get their partition."""
        self.__dict__.update(state)
        prepare_python_worker()

    def partitions(self) -> Sequence[RangesPartition]:
        """Looks up the starting and ending offsets, and packs the ranges into tasks."""
        from streamgroups.query.offset_lookup import ranges_of, record_bytes
        from streamgroups_spark.source.cluster_clients import cluster_of

        options = self._options
        cluster = cluster_of(options)
        _log_ignored(options)
        cluster.check_reachable()
        partitions = partitions_of(options.subscription, cluster.topics())
        ranges = ranges_of(cluster, options.starting, options.ending, partitions, on_data_loss=options.on_data_loss)
        # Spark requires at least one task, also if there are no records.
        tasks = pack(ranges, self._packing, record_bytes(cluster, partitions))
        identities = cluster.identities({tp.topic for tp in partitions})
        ids = {topic: it.topic_id for topic, it in identities.items() if it.topic_id is not None}
        epochs = cluster.log_ends({r.topic_partition for r in ranges}).leader_epochs
        return [
            RangesPartition(task, topic_ids=_ids_of(task, ids), leader_epochs=_epochs_of(task, epochs))
            for task in tasks
        ] or [RangesPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads the ranges of one task, in a worker."""
        assert isinstance(partition, RangesPartition)
        settings = settings_of(
            self._options, self._group_id, partition.topic_ids, partition.leader_epochs, records_gaps=False
        )
        return read_task(partition.ranges, self._schema, self._options, settings, lambda *_: None, None)


def _ids_of(ranges: Iterable[OffsetRange], topic_ids: Mapping[str, str]) -> dict[str, str]:
    """The ids of the topics of a task. Spark sends them to its worker."""
    topics = {r.topic_partition.topic for r in ranges}
    return {topic: topic_ids[topic] for topic in sorted(topics) if topic in topic_ids}


def _epochs_of(
    ranges: Iterable[OffsetRange], leader_epochs: Mapping[TopicPartition, int | None]
) -> dict[TopicPartition, int]:
    """The leader epochs of the partitions of a task."""
    found = {r.topic_partition: leader_epochs.get(r.topic_partition) for r in ranges}
    return {tp: epoch for tp, epoch in found.items() if epoch is not None}


def _log_ignored(options: SourceOptions) -> None:
    if options.ignored:
        logger.warning("Option has no effect here: %s", ", ".join(options.ignored))
    for risk in options.client.risks:
        logger.warning("%s", risk)
