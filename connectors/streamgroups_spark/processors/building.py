"""``sg.processor(...)``: the DataFrame and the writer of a declared processor.

Called by users in tests of their processors, by ``running``, and by workers. It adds what a declared processor has without a
word in its file: the group, the transactional id, and a checkpoint for each run; ``steps`` adds the watermark. Source: SEMANTICS
P1.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamgroups.connections.config_file import connection_named
from streamgroups.connections.variants import KafkaConnection
from streamgroups.dlq.letter import COLUMN
from streamgroups.dlq.limits import DeadLetters
from streamgroups.errors import InvalidOption
from streamgroups.extras import load
from streamgroups.processors.arguments import arguments_of
from streamgroups.processors.client_options import needs_session_timeout
from streamgroups.processors.problems import check
from streamgroups.processors.processor import (
    DEFAULT_INSTANCE,
    Processor,
    Sink,
    SinkKind,
)
from streamgroups.processors.reading import processor_of
from streamgroups_spark.ops.processor_names import PROCESSORS
from streamgroups_spark.processors.run_directories import new_checkpoint, state_directory
from streamgroups_spark.processors.steps import Run, rows_of
from streamgroups_spark.processors.yaml_text import read_text
from streamgroups_spark.register import register
from streamgroups_spark.repartition.repartition import read_repartitioned, repartition
from streamgroups_spark.session import is_registered
from streamgroups_spark.sinks.exactly_once import exactly_once
from streamgroups_spark.sinks.stream_writer import Preparation, SinkWriter

#: Sinks with an extra are loaded when a processor has one.
_SINKS: Mapping[SinkKind, tuple[str, str]] = {
    SinkKind.KAFKA: ("streamgroups_spark.sinks.exactly_once", "KafkaSink"),
    SinkKind.POSTGRES: ("streamgroups_sinks.postgres.sink", "PostgresSink"),
    SinkKind.DELTA: ("streamgroups_sinks.delta.sink", "DeltaSink"),
}
#: How soon the group detects a killed member. Kafka's default is 45 s.
_SESSION_TIMEOUT = "kafka.session.timeout.ms"
_SESSION_TIMEOUT_MS = "10000"


def processor(
    declared: str | os.PathLike[str] | Mapping[str, Any] | Processor,
    spark: SparkSession | None = None,
    *,
    instance: str = DEFAULT_INSTANCE,
    member: int = 0,
    checkpoint: str | None = None,
) -> tuple[DataFrame, DataStreamWriter | None]:
    """Returns the rows of a declared processor, and the writer that starts it (SEMANTICS P1).

    Nothing starts or changes until ``start()`` of the writer. ``streamgroups processors run`` runs a processor with restarts.

    Args:
        declared: the path of a YAML file, or a mapping with the same keys.
        spark: the session. ``None``: the active one, or a new one.
        instance: the instance, from which the name of the group is: ``<instance>.<name>``.
        member: the number of this member, from 0, if several ones run. Each needs its own number.
        checkpoint: the checkpoint of the query. ``None``: that of the file, or a new one.

    Returns:
        The rows that the sink receives, and the writer. It is ``None`` without a sink.

    Raises:
        InvalidProcessor: with all mistakes in the file.
        InvalidOption: if a step or the sink rejects its argument.

    Example::

        rows, writer = sg.processor("late-flights.yaml")
        assert rows.columns == ["window_start", "window_end", "carrier", "n", "pane", "revision"]
        query = writer.start()
    """
    found = declared_processor(declared)
    session = spark if spark is not None else SparkSession.builder.getOrCreate()
    run = Run(found, instance, member, checkpoint or found.checkpoint or new_checkpoint(found.group_id(instance)))
    rows = rows_of(run, _stream(run, session))
    return rows, _writer(run, rows)


def declared_processor(declared: str | os.PathLike[str] | Mapping[str, Any] | Processor) -> Processor:
    """Returns the processor of a file or an object.

    Raises:
        InvalidProcessor: with all mistakes.
        InvalidOption: if the file cannot be read.
    """
    if isinstance(declared, (Processor, Mapping)):
        return processor_of(declared)
    file = os.fspath(declared)
    try:
        content = Path(file).read_bytes()
    except OSError as e:
        raise InvalidOption(f"File '{file}' cannot be read: {e.strerror}.", remedy="Correct its path.") from e
    found, problems = read_text(content, file)
    check(problems)
    assert found is not None
    return found


# ---- the source ------------------------------------------------------------------------------------------------------


def _stream(run: Run, spark: SparkSession) -> DataFrame:
    if not is_registered(spark):
        register(spark)
    source = run.processor.source
    options = run.processor.source_options(run.instance)
    if run.processor.states and run.processor.state_location is None:
        options["stateLocation"] = state_directory(run.group_id)
    connection = connection_named(source.connection, KafkaConnection)
    if needs_session_timeout(source.options, connection.settings):
        options[_SESSION_TIMEOUT] = _SESSION_TIMEOUT_MS
    if source.repartitioned is not None:
        return read_repartitioned(spark, options=options, **source.repartitioned)
    return spark.readStream.format("streamgroups").options(**options).load()


# ---- the sink --------------------------------------------------------------------------------------------------------


def _writer(run: Run, rows: DataFrame) -> DataStreamWriter | None:
    processor, letters = run.processor, None
    name = processor.query_name(run.instance, run.member)
    name_processor = partial(_name_processor, name, run.group_id)
    if processor.dead_letters is not None:
        sink = sink_of(run, processor.dead_letters, "-letters")
        letters = DeadLetters(sink=sink, **processor.letter_limits)
    last = processor.repartition
    if last is not None:
        arguments = arguments_of("repartition", last.arguments, run.loader)
        arguments["transactional_id"] = processor.transactional_id(run.instance, run.member)
        writer: DataStreamWriter = repartition(rows, checkpoint=run.checkpoint, dead_letters=letters, **arguments)
    elif processor.sink is None:
        return None
    elif processor.sink.kind is SinkKind.SPARK:
        options = {**processor.sink.arguments.get("options", {}), "checkpointLocation": run.checkpoint}
        writer = _SparkWriter(rows, name_processor).format(processor.sink.place).options(**options)
    else:
        _check_key(processor.sink, rows)
        sink = sink_of(run, processor.sink, "")
        writer = exactly_once(rows, sink=sink, checkpoint=run.checkpoint, dead_letters=letters)
    if isinstance(writer, SinkWriter):
        writer.after_preparations(name_processor)
    writer = writer.queryName(name)
    return writer.trigger(**processor.spark_trigger) if processor.trigger else writer


def _name_processor(query: str, processor: str, _: DataStreamWriter) -> None:
    """Names the processor of a query in its metrics."""
    PROCESSORS[query] = processor


class _SparkWriter(DataStreamWriter):
    """A writer of a sink of Spark, with a preparation of ``start()``."""

    def __init__(self, df: DataFrame, prepare: Preparation) -> None:
        super().__init__(df)
        self._prepare = prepare

    def start(self, *arguments: Any, **settings: Any) -> StreamingQuery:
        self._prepare(self)
        return super().start(*arguments, **settings)


def sink_of(run: Run, sink: Sink, part: str) -> Any:
    """Returns the sink of ``sg``.

    Args:
        run: the run.
        sink: the sink of the processor.
        part: distinguishes the transactional ids of the sinks of a processor.
    """
    arguments = arguments_of(f"{sink.kind.value}_sink", sink.arguments, run.loader)
    if sink.kind is SinkKind.KAFKA:
        if sink.exactly_once:
            arguments["transactional_id"] = run.processor.transactional_id(run.instance, run.member, part)
    else:
        arguments.pop("delivery", None)
    module, name = _SINKS[sink.kind]
    return getattr(load(module, needed_by=f"sg.{name}"), name)(connection=sink.connection, **arguments)


def _check_key(sink: Sink, rows: DataFrame) -> None:
    missing = [it for it in sink.arguments.get("key", ()) if it not in rows.columns]
    if missing:
        raise InvalidOption(
            f"The key of the sink has the columns {', '.join(missing)}, which the rows do not have.",
            remedy=f"Columns of the rows: {', '.join(it for it in rows.columns if it != COLUMN)}.",
        )
