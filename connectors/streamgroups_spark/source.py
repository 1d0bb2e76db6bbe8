"""The data source ``streamgroups`` as Spark sees it.

Spark creates these classes from ``sg.register(spark)``, pickles them and calls them in several processes: options and
schema are read in one, a stream reader lives on the driver in another for as long as its query, ``read`` runs in the
workers. Source: Spark's ``DataSource``, ``DataSourceStreamReader``, ``DataSourceReader`` (PySpark 4.2). This module only
translates; ``micro_batches`` plans and ``streamgroups_kafka`` talks to Kafka.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from streamgroups.batches.packing import Packing, pack
from streamgroups.batches.progress import encode_report
from streamgroups.errors import InvalidOption
from streamgroups.groups.history import no_history
from streamgroups.groups.joining import MembershipMode
from streamgroups.groups.membership import Owned
from streamgroups.groups.subscription import Partitions, partitions_of
from streamgroups.lookup import ranges_of, record_bytes
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Member, Recorder
from streamgroups_kafka.board import KafkaBoard
from streamgroups_kafka.clock import SteadyClock
from streamgroups_kafka.fetching import ReadSettings
from streamgroups_kafka.history import HistoryFile
from streamgroups_kafka.log import KafkaCluster
from streamgroups_kafka.member import KafkaMember
from streamgroups_kafka.member_settings import MemberSettings
from streamgroups_kafka.range_reader import read_ranges
from streamgroups_spark.commit_log import CommitLog
from streamgroups_spark.micro_batches import MicroBatches
from streamgroups_spark.moving import Moving
from streamgroups_spark.options import SourceOptions, parse
from streamgroups_spark.worker_socket import acknowledge_at_once

logger = logging.getLogger(__name__)

#: librdkafka's default for ``max.poll.interval.ms``.
_REBALANCE_TIMEOUT_MS = 300_000
#: librdkafka's default for ``session.timeout.ms``, and the broker's under KIP-848.
_SESSION_TIMEOUT_MS = 45_000
_JOIN_SLACK_MS = 15_000
#: The most rows that Spark's protocol can say.
_NO_LIMIT = 2**63 - 1
#: How long a query waits for the board of its group, which it can do without.
_BOARD_PATIENCE_S = 5.0
#: How often a running query looks for new topics and partitions, unless ``kafka.metadata.max.age.ms`` says otherwise.
_REFRESH_MS = 5_000
_COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
_HEADERS = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True)
class RangesPartition(InputPartition):
    """One task: the ranges it reads."""

    ranges: tuple[OffsetRange, ...]

    # InputPartition sets ``value``; a frozen dataclass has its own fields instead.


class StreamGroupsDataSource(DataSource):
    """``format("streamgroups")``. Registered by ``sg.register(spark)``."""

    #: Tasks that can run at once; ``sg.register`` sets it from the session.
    parallelism: ClassVar[int] = os.cpu_count() or 1

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "streamgroups"

    def schema(self) -> str:
        """The columns of Spark's ``kafka`` source.

        Raises:
            InvalidOption: if the options fit neither a streaming nor a batch read, so that ``load()`` already says so.
        """
        _refuse_if_never_right(self.options)
        columns = dict(_COLUMNS)
        if self.options.get("includeHeaders", "false").strip().lower() == "true":
            columns["headers"] = _HEADERS
        return ", ".join(f"{name} {spark_type}" for name, spark_type in columns.items())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a streaming query. Made in several processes: it does nothing until it is called."""
        try:
            options = parse(self.options, streaming=True)
            return StreamReader(options, _checked(schema), _packing(options, self.parallelism))
        except InvalidOption as refusal:
            return RefusedStream(refusal)

    def reader(self, schema: StructType) -> BatchReader:
        """The reader of a batch query."""
        options = parse(self.options, streaming=False)
        return BatchReader(options, _checked(schema), _packing(options, self.parallelism))


class RefusedStream(DataSourceStreamReader):
    """Says why there is no reader when Spark first asks it for something.

    Raised any earlier, Spark's stream runner would print an error of its own instead.
    """

    def __init__(self, refusal: InvalidOption) -> None:
        self._refusal = refusal

    def initialOffset(self) -> dict[str, Any]:
        """Raises the refusal."""
        raise self._refusal

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Raises the refusal."""
        raise self._refusal

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RangesPartition]:
        """Raises the refusal."""
        raise self._refusal

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises the refusal."""
        raise self._refusal


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches as a member of the group."""

    def __init__(self, options: SourceOptions, schema: StructType, packing: Packing) -> None:
        assert options.group_id is not None, "parse(streaming=True) demands it"
        self._options, self._schema, self._packing = options, schema, packing
        self._group_id = options.group_id
        self._member_name = ""
        self._micro_batches: MicroBatches | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Workers get the settings; the member stays on the driver."""
        return {**self.__dict__, "_micro_batches": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Runs in workers, before they get their partition."""
        self.__dict__.update(state)
        acknowledge_at_once()

    def initialOffset(self) -> dict[str, Any]:
        """See :meth:`MicroBatches.initial_offset`."""
        return self._running().initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The user's limits, so that Spark says ``ReadAllAvailable`` only when it means to lift them: the trigger ``once``."""
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.min_offsets is not None:
            return ReadMinRows(limits.min_offsets)
        return ReadMaxRows(_NO_LIMIT)

    def prepareForTriggerAvailableNow(self) -> None:
        """See :meth:`MicroBatches.run_until_now`."""
        self._running().run_until_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """See :meth:`MicroBatches.latest_offset`."""
        return self._running().latest_offset(start, limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """See :meth:`MicroBatches.report_latest_offset`, with whose they are: Spark's progress does not say."""
        end_offsets = self._running().report_latest_offset()
        return None if end_offsets is None else encode_report(self._group_id, self._member_name, end_offsets)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RangesPartition]:
        """See :meth:`MicroBatches.tasks`."""
        return [RangesPartition(ranges) for ranges in self._running().tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads the ranges of one task, in a worker."""
        assert isinstance(partition, RangesPartition)
        return read_ranges(partition.ranges, _arrow_schema(self._schema), _read_settings(self._options, self._group_id))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: ``latestOffset`` says earlier, and for the last batch too, that a batch is done."""

    def stop(self) -> None:
        """Leaves the group."""
        if self._micro_batches is not None:
            self._micro_batches.stop()

    def _running(self) -> MicroBatches:
        if self._micro_batches is None:
            self._micro_batches = self._make()
        return self._micro_batches

    def _make(self) -> MicroBatches:
        _stop_on_sigterm()
        _tell_ignored(self._options)
        options, group_id = self._options, self._group_id
        name = (
            options.client.get("client.id")
            or f"streamgroups-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:4]}"
        )
        self._member_name = name
        record: Recorder = (
            HistoryFile(options.history_dir, group_id=group_id, member=name) if options.history_dir else no_history
        )
        cluster = _cluster(options)

        orders = None
        if not isinstance(options.subscription, Partitions):
            board = KafkaBoard(options.client, patience_s=_BOARD_PATIENCE_S)
            orders = Moving(board, cluster, group_id, name, record, _now_ms, SteadyClock())
            record = orders.listen(record)
        rebalance_timeout_ms = int(options.client.get("max.poll.interval.ms") or _REBALANCE_TIMEOUT_MS)

        def new_member(
            *,
            topics: Callable[[], Collection[str]],
            first_positions: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Owned]],
        ) -> Member:
            subscription = options.subscription
            settings = MemberSettings(
                group_id=group_id,
                name=name,
                consumer=options.client.for_member(group_id, client_id=name),
                topics=topics,
                assign=subscription.topic_partitions if isinstance(subscription, Partitions) else None,
                exclusive=options.mode is MembershipMode.EXCLUSIVE,
                rebalance_timeout_ms=rebalance_timeout_ms,
                refresh_ms=int(options.client.get("topic.metadata.refresh.interval.ms") or _REFRESH_MS),
                redact=options.client.redact,
                is_surplus=lambda: cluster.describe(group_id).has_nothing_for(name),
            )
            return KafkaMember(settings, first_positions, record)

        session_timeout_ms = int(options.client.get("session.timeout.ms") or _SESSION_TIMEOUT_MS)
        return MicroBatches(
            options,
            self._packing,
            cluster,
            new_member,
            _now_ms,
            record,
            join_timeout_ms=rebalance_timeout_ms + session_timeout_ms + _JOIN_SLACK_MS,
            commit_log=CommitLog(options.checkpoint_location) if options.checkpoint_location else None,
            orders=orders,
        )


class BatchReader(DataSourceReader):
    """Reads a fixed set of ranges, without joining a group."""

    def __init__(self, options: SourceOptions, schema: StructType, packing: Packing) -> None:
        self._options, self._schema, self._packing = options, schema, packing
        self._group_id = options.group_id or f"{options.group_id_prefix}-{uuid.uuid4()}"

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Runs in workers, before they get their partition."""
        self.__dict__.update(state)
        acknowledge_at_once()

    def partitions(self) -> Sequence[RangesPartition]:
        """Looks up where to start and to end, and packs what lies between into tasks."""
        options = self._options
        cluster = _cluster(options)
        _tell_ignored(options)
        cluster.check_reachable()
        partitions = partitions_of(options.subscription, cluster.topics())
        ranges = ranges_of(
            cluster, options.starting, options.ending, partitions, fail_on_data_loss=options.fail_on_data_loss
        )
        # Spark runs one task even where there is nothing to read.
        tasks = pack(ranges, self._packing, record_bytes(cluster, partitions))
        return [RangesPartition(task) for task in tasks] or [RangesPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads the ranges of one task, in a worker."""
        assert isinstance(partition, RangesPartition)
        return read_ranges(partition.ranges, _arrow_schema(self._schema), _read_settings(self._options, self._group_id))


def _refuse_if_never_right(options: Mapping[str, str]) -> None:
    try:
        parse(options, streaming=True)
    except InvalidOption as refusal:
        try:
            parse(options, streaming=False)
        except InvalidOption as batch_refusal:
            # Nothing tells which read it will be, except that a batch read needs no group.
            has_group = any(name.lower() in ("group.id", "kafka.group.id") for name in options)
            raise (refusal if has_group else batch_refusal) from None


def _checked(schema: StructType) -> StructType:
    """A schema the user gave must be a choice of our columns.

    Raises:
        InvalidOption: if it names a column or a type that there is not.
    """
    types = {**_COLUMNS, "headers": _HEADERS}
    for field in schema.fields:
        if types.get(field.name) != field.dataType.simpleString():
            raise InvalidOption(
                f"The schema asks for column '{field.name}' of type {field.dataType.simpleString()}.",
                remedy="There are " + ", ".join(f"{name} {spark_type}" for name, spark_type in types.items()) + ".",
            )
    return schema


def _stop_on_sigterm() -> None:
    """Makes the runner leave the group when its query ends.

    Spark ends the runner's process with SIGTERM, whose default is to die on the spot: the last commit would be missing and
    the group would wait for the session timeout. ``SystemExit`` passes through the runner, which then calls ``stop``.
    """

    def leave(number: int, _frame: object) -> None:
        # Spark sends it twice; the second one must not interrupt the leaving, which is bounded in time.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(128 + number)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, leave)


def _tell_ignored(options: SourceOptions) -> None:
    if options.ignored:
        logger.warning("Without effect here: %s", ", ".join(options.ignored))


def _cluster(options: SourceOptions) -> KafkaCluster:
    return KafkaCluster(
        options.client,
        read_committed=options.client.isolation_level == "read_committed",
        attempts=options.attempts,
        retry_interval_ms=options.retry_interval_ms,
    )


def _arrow_schema(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


def _packing(options: SourceOptions, parallelism: int) -> Packing:
    return Packing(parallelism, options.min_tasks, options.max_task_offsets)


def _read_settings(options: SourceOptions, group_id: str) -> ReadSettings:
    return ReadSettings(options.client, group_id, options.fail_on_data_loss, options.poll_timeout_ms)


def _now_ms() -> int:
    # Monotonic: limits measure durations, and a clock that is set back must not stop a query.
    return time.monotonic_ns() // 1_000_000
