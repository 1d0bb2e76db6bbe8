"""``sg.processor(...)``: the DataFrame and the writer of a declared processor.

Called by users in tests of their processors, by ``running``, and by workers. It adds what a declared processor has without a
word in its file: the group, the transactional id, the watermark, a checkpoint for each run, and dead letters that pass SQL
and functions. Source: SEMANTICS P1, P4, S9.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamgroups.connections.config_file import connection_named
from streamgroups.connections.variants import KafkaConnection
from streamgroups.dlq.letter import COLUMN
from streamgroups.dlq.settings import DeadLetters
from streamgroups.errors import InvalidOption
from streamgroups.extras import load
from streamgroups.processors.arguments import arguments_of
from streamgroups.processors.problems import check
from streamgroups.processors.processor import (
    DEFAULT_INSTANCE,
    FunctionCall,
    Processor,
    Sink,
    SinkKind,
    Sql,
    Step,
)
from streamgroups.processors.reading import processor_of
from streamgroups_spark.bridge.plan import analyzed, read_streams
from streamgroups_spark.decoding.decode_encode import decode, encode
from streamgroups_spark.dlq.safely import safely
from streamgroups_spark.event_time.with_event_time import with_event_time
from streamgroups_spark.frames.columns import column
from streamgroups_spark.frames.time_columns import delay_ms_of
from streamgroups_spark.joins.join import join
from streamgroups_spark.processors.run_directories import new_checkpoint, state_directory
from streamgroups_spark.processors.user_functions import Loader, transformed
from streamgroups_spark.processors.yaml_text import read_text
from streamgroups_spark.register import register
from streamgroups_spark.repartition.repartition import read_repartitioned, repartition
from streamgroups_spark.session import is_registered
from streamgroups_spark.sinks.exactly_once import exactly_once
from streamgroups_spark.state.chains import results_before
from streamgroups_spark.state.dedup import dedup
from streamgroups_spark.state.stateful import stateful
from streamgroups_spark.windows.windows import windows

_FUNCTIONS: Mapping[str, Any] = {
    "decode": decode,
    "dedup": dedup,
    "encode": encode,
    "join": join,
    "safely": safely,
    "stateful": stateful,
    "windows": windows,
    "with_event_time": with_event_time,
}
#: Sinks with an extra are loaded when a processor has one.
_SINKS: Mapping[SinkKind, tuple[str, str]] = {
    SinkKind.KAFKA: ("streamgroups_spark.sinks.exactly_once", "KafkaSink"),
    SinkKind.POSTGRES: ("streamgroups_sinks.postgres.sink", "PostgresSink"),
    SinkKind.DELTA: ("streamgroups_sinks.delta.sink", "DeltaSink"),
}
#: The rows of the step before, in SQL.
_INPUT = "input"
#: How soon the group detects a killed member. Kafka's default is 45 s.
_SESSION_TIMEOUT = "kafka.session.timeout.ms"
_SESSION_TIMEOUT_MS = "10000"
#: A view belongs to a session, which several processors can share.
_views = threading.Lock()


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


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a processor.

    Args:
        processor: the processor.
        instance: its instance.
        member: the number of the member.
        checkpoint: the checkpoint.
        loader: loads functions, registries and files.
    """

    processor: Processor
    instance: str
    member: int
    checkpoint: str
    loader: Loader = field(default_factory=Loader)

    @property
    def group_id(self) -> str:
        """The group of the processor."""
        return self.processor.group_id(self.instance)


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
    options = {"connection": source.connection, "group.id": run.group_id, **source.options}
    if run.processor.states and run.processor.state_location is None:
        options["stateLocation"] = state_directory(run.group_id)
    connection = connection_named(source.connection, KafkaConnection)
    given = {name.lower().removeprefix("kafka.") for name in source.options} | set(connection.settings)
    protocol = source.options.get("kafka.group.protocol", connection.settings.get("group.protocol"))
    if "session.timeout.ms" not in given and protocol != "consumer":
        options[_SESSION_TIMEOUT] = _SESSION_TIMEOUT_MS
    if source.repartitioned is not None:
        return read_repartitioned(spark, options=options, **source.repartitioned)
    return spark.readStream.format("streamgroups").options(**options).load()


# ---- the steps -------------------------------------------------------------------------------------------------------


def rows_of(run: Run, df: DataFrame) -> DataFrame:
    """Returns the rows of the sink.

    Args:
        run: the run.
        df: the records of the source, as a stream or as bounded data.

    Raises:
        InvalidOption: if a step rejects its argument, or the query keeps state in Spark. The error names the step.
    """
    letters: list[DataFrame] = []
    for number, step in enumerate(run.processor.steps):
        if step is run.processor.repartition:
            continue
        try:
            df = _after(run, step, df, letters)
        except InvalidOption as e:
            raise e.with_text(f"steps[{number}] ({_name(step)}): {e.what}", e.remedy) from e
    for earlier in letters:
        df = df.unionByName(earlier, allowMissingColumns=True)
    if df.isStreaming:
        _reject_state_of_spark(run.processor, df)
    return df


def _name(step: Step) -> str:
    if isinstance(step, FunctionCall):
        return step.name
    return "sql" if isinstance(step, Sql) else f"function {step.reference}"


def _after(run: Run, step: Step, df: DataFrame, letters: list[DataFrame]) -> DataFrame:
    # SQL and functions of the user process no row with a dead letter, as all steps. Behind a step with state, the branch with
    # earlier letters would contain its operator.
    if COLUMN in df.columns and (not isinstance(step, FunctionCall) or step.state_name is not None):
        letters.append(df.where(column(COLUMN).isNotNull()).select(COLUMN))
        df = df.where(column(COLUMN).isNull()).drop(COLUMN)
    if isinstance(step, Sql):
        return _selected(step.text, df)
    if not isinstance(step, FunctionCall):
        return transformed(df, step.reference, run.loader)
    arguments = arguments_of(step.name, step.arguments, run.loader)
    df, arguments = _with_watermark(run.processor, step, df, arguments)
    found: DataFrame = _FUNCTIONS[step.name](df, **arguments)
    return found


def _with_watermark(
    processor: Processor, step: FunctionCall, df: DataFrame, arguments: dict[str, Any]
) -> tuple[DataFrame, dict[str, Any]]:
    """Sets a watermark without delay for a step that needs one, unless the processor has another one."""
    on = arguments.get("on")
    if step.name not in ("windows", "join") or on not in df.columns or "watermarkHeader" in processor.source.options:
        return df, arguments
    if results_before(df) is not None or (df.isStreaming and delay_ms_of(df, on) is not None):
        return df, arguments
    if step.name == "join":
        return df.withWatermark(on, "0 seconds"), arguments
    if arguments.get("boundary", "eventTime") != "eventTime":
        return df, arguments
    return df, {"watermark_delay": "0s", **arguments}


def _selected(text: str, df: DataFrame) -> DataFrame:
    spark = df.sparkSession
    with _views:
        df.createOrReplaceTempView(_INPUT)
        try:
            found = spark.sql(text)
        except Exception as e:
            raise InvalidOption(
                f"Spark rejects the SQL: {str(e).strip().splitlines()[0]}",
                remedy=f"Columns of input: {', '.join(df.columns)}.",
            ) from e
        finally:
            spark.catalog.dropTempView(_INPUT)
    if df.isStreaming and not found.isStreaming:
        raise InvalidOption("The SQL does not read the rows of the step before.", remedy="Write SELECT ... FROM input.")
    return found


def _reject_state_of_spark(processor: Processor, df: DataFrame) -> None:
    if processor.checkpoint is not None and processor.membership == "exclusive":
        return
    operators = sorted({it for stream in read_streams(analyzed(df)) for it in stream.operators})
    if operators:
        raise InvalidOption(
            f"The processor '{processor.name}' uses operators of Spark with state ({', '.join(operators)}). They keep it in a "
            "checkpoint, and each run of a processor has a new one.",
            remedy="Use sg.windows, sg.stateful, sg.dedup or sg.join, whose state follows its partition. Or set 'checkpoint' on "
            "shared storage, and 'membership: exclusive' in the source.",
        )


# ---- the sink --------------------------------------------------------------------------------------------------------


def _writer(run: Run, rows: DataFrame) -> DataStreamWriter | None:
    processor, letters = run.processor, None
    if processor.dead_letters is not None:
        sink = sink_of(run, processor.dead_letters, "-letters")
        letters = DeadLetters(sink=sink, **processor.letter_limits)
    last = processor.repartition
    if last is not None:
        arguments = arguments_of("repartition", last.arguments, run.loader)
        arguments["transactional_id"] = processor.transactional_id(run.instance, run.member)
        writer = repartition(rows, checkpoint=run.checkpoint, dead_letters=letters, **arguments)
    elif processor.sink is None:
        return None
    elif processor.sink.kind is SinkKind.SPARK:
        options = {**processor.sink.arguments.get("options", {}), "checkpointLocation": run.checkpoint}
        writer = rows.writeStream.format(processor.sink.place).options(**options)
    else:
        _check_key(processor.sink, rows)
        sink = sink_of(run, processor.sink, "")
        writer = exactly_once(rows, sink=sink, checkpoint=run.checkpoint, dead_letters=letters)
    writer = writer.queryName(run.group_id if processor.replicas == 1 else f"{run.group_id}-{run.member}")
    return writer.trigger(**processor.trigger) if processor.trigger else writer


def sink_of(run: Run, sink: Sink, suffix: str) -> Any:
    """Returns the sink of ``sg``.

    Args:
        run: the run.
        sink: the sink of the processor.
        suffix: the end of the transactional id.
    """
    arguments = arguments_of(f"{sink.kind.value}_sink", sink.arguments, run.loader)
    if sink.kind is SinkKind.KAFKA:
        if sink.exactly_once:
            arguments["transactional_id"] = run.processor.transactional_id(run.instance, run.member) + suffix
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
