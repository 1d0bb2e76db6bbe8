"""The data source ``streamgroups``, as Spark's Python data source API requires it.

``sg.register`` registers it, with the settings of its session as attributes of the class. Spark creates it in the process that
reads options and schema, and pickles its readers (``source.readers``) and writers (``sinks``) into others. Source: Spark's
``DataSource`` (PySpark 4.2; ``internals.spark_api`` has the differences of older versions).

The start of each process waits for this import. Imports that only one kind of process needs are therefore local.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamReader
from pyspark.sql.types import StructType

from streamgroups.errors import InvalidOption
from streamgroups_spark.bridge.plan import FORMAT
from streamgroups_spark.internals.python_worker import prepare_python_worker
from streamgroups_spark.internals.spark_api import FEATURES, DataSourceStreamArrowWriter
from streamgroups_spark.source.columns import checked_schema, spark_schema
from streamgroups_spark.source.readers import (
    BatchReader,
    RejectedStream,
    StreamReader,
)
from streamgroups_spark.source.source_options import SourceOptions, parse

if TYPE_CHECKING:
    from streamgroups.event_time.observations import TaskObservation
    from streamgroups.monitoring.member_reports import UnreadableWatermarks
    from streamgroups.ports import Clock
    from streamgroups_spark.bridge.channel import Channel


class StreamGroupsDataSource(DataSource):
    """The format ``streamgroups``. ``sg.register(spark)`` registers it."""

    #: The number of tasks that can run at once. ``sg.register`` sets it from the session.
    parallelism: ClassVar[int] = os.cpu_count() or 1
    #: Whether this number is Spark's default parallelism, which changes when executors register. ``sg.register`` sets it.
    follows_executors: ClassVar[bool] = False
    #: The id by which the processes of a session connect to each other (``bridge.rpc``). ``sg.register`` sets it.
    session: ClassVar[str] = "alone"
    #: The id of the Spark application, in which ids of task attempts are unique. ``sg.register`` sets it.
    application: ClassVar[str] = "none"
    #: The channel by which tasks report observed event times. ``sg.register`` sets it.
    event_time_channel: ClassVar[Channel[tuple[str, TaskObservation]] | None] = None
    #: The channel by which tasks report unreadable watermarks of producers. ``sg.register`` sets it.
    unreadable: ClassVar[Channel[UnreadableWatermarks] | None] = None
    #: The clock of event time. ``sg.register`` sets it. ``None``: that of the machine.
    clock: ClassVar[Clock | None] = None
    #: The path of the file of connections. ``sg.register`` sets it. ``None``: the one of the process of the source.
    connections_file: ClassVar[str | None] = None

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Returns the columns of Spark's ``kafka`` source.

        Raises:
            InvalidOption: if the options are valid for neither a streaming nor a batch read. ``load()`` raises it.
        """
        return spark_schema(_parsed(self.options, self.connections_file))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Returns the reader of a streaming query.

        Spark creates it in several processes, so its constructor connects to nothing.
        """
        try:
            options = parse(self.options, streaming=True, connections_file=self.connections_file)
            return _stream_reader_class()(
                options,
                checked_schema(schema, options),
                options.packing(self.parallelism),
                self.session,
                self.application,
                self.event_time_channel,
                self.unreadable,
                self.clock,
                follows_executors=self.follows_executors,
            )
        except InvalidOption as rejection:
            return RejectedStream(rejection)

    def reader(self, schema: StructType) -> BatchReader:
        """Returns the reader of a batch query."""
        options = parse(self.options, streaming=False, connections_file=self.connections_file)
        return BatchReader(options, checked_schema(schema, options), options.packing(self._tasks_of_batch()))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Returns the writer of a streaming query to Kafka. Spark creates it in two processes for each batch.

        Raises:
            InvalidOption: if an option of the sink is wrong, the columns are not those of Spark's Kafka sink, or the output
                mode is ``complete``.
        """
        from streamgroups_spark.sinks.kafka import KafkaStreamWriter
        from streamgroups_spark.sinks.output_mode import reject_overwrite
        from streamgroups_spark.sinks.sink_options import check_output_schema, parse_sink

        prepare_python_worker()
        reject_overwrite(overwrite)
        options = parse_sink(self.options, connections_file=self.connections_file)
        check_output_schema(schema, options)
        return KafkaStreamWriter(options, self.session, self.parallelism)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Returns the writer of a batch DataFrame to Kafka.

        Raises:
            InvalidOption: if an option of the sink is wrong, the columns are not those of Spark's Kafka sink, or the mode
                is ``overwrite``.
        """
        from streamgroups_spark.sinks.kafka_batch import KafkaBatchWriter
        from streamgroups_spark.sinks.sink_options import check_output_schema, parse_sink

        prepare_python_worker()
        if overwrite:
            raise InvalidOption("Records of a topic cannot be overwritten.", remedy='Use mode("append").')
        options = parse_sink(self.options, streaming=False, connections_file=self.connections_file)
        check_output_schema(schema, options)
        return KafkaBatchWriter(options, self._tasks_of_batch())

    def _tasks_of_batch(self) -> int:
        if not self.follows_executors:
            return self.parallelism
        from streamgroups_spark.bridge.rpc import requested_parallelism

        return requested_parallelism(self.session, self.parallelism)


def _stream_reader_class() -> type[StreamReader]:
    if FEATURES.passes_start:
        return StreamReader
    from streamgroups_spark.source.reader_before_4_2 import ReaderBefore42

    return ReaderBefore42


def _parsed(options: Mapping[str, str], connections_file: str | None) -> SourceOptions:
    try:
        return parse(options, streaming=True, connections_file=connections_file)
    except InvalidOption as rejection:
        try:
            return parse(options, streaming=False, connections_file=connections_file)
        except InvalidOption as batch_rejection:
            # Whether this becomes a streaming or a batch read is still unknown. Only a batch read works without a
            # group.
            has_group = any(name.lower() in ("group.id", "kafka.group.id") for name in options)
            raise (rejection if has_group else batch_rejection) from None
