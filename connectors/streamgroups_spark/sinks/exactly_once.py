"""``sg.exactly_once(df, sink=...)``: a streaming query that changes output and positions together.

Called by users on the driver. It checks the plan of the query and rejects operators and sources that do not support
exactly once. It assigns each output partition to one task. This only requests metadata. The ``start()`` of its writer
fences older runs, and registers the format, and the ledger for the source. Source: SEMANTICS X1-X4, X8;
docs/architecture.rst, "Communication between source and sink".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from streamgroups.acls import grant
from streamgroups.checkpoints.spark_kafka import PUNCTUATIONS
from streamgroups.connections.config_file import config_path_for_others, connection_named
from streamgroups.connections.variants import KafkaConnection
from streamgroups.dlq.letter import COLUMN
from streamgroups.dlq.limits import DeadLetters
from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption, UnknownTopic
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.json_values import MAX_INT32
from streamgroups.option_values import KAFKA, folded, without_prefix
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.admin.topic_changes import reject_compacted
from streamgroups_kafka.client.connected import check_explicit
from streamgroups_spark.bridge.pickled_ledger import pickled_ledger
from streamgroups_spark.bridge.plan import FORMAT, analyzed, read_streams, source_name, source_options
from streamgroups_spark.dlq.failure_column import check_letters
from streamgroups_spark.frames.binary_forms import check_no_binary_form
from streamgroups_spark.internals.pickle_checks import shipped_class
from streamgroups_spark.internals.private_spark import number_for_each_task
from streamgroups_spark.session import SESSION, parallelism_of, require_registered
from streamgroups_spark.sinks.batch_info import query_id_of
from streamgroups_spark.sinks.kafka import KafkaLettersDataSource, letters_transactional_id, transactional_id_of
from streamgroups_spark.sinks.killed_runs import fence_killed_run
from streamgroups_spark.sinks.ledger_registry import keep
from streamgroups_spark.sinks.ledger_writer import AnySink, LedgerDataSource
from streamgroups_spark.sinks.letters.kafka_rejections import with_rejections
from streamgroups_spark.sinks.letters.of_batch import (
    LetterOutput,
    check_isolation,
    check_letter_mode,
    create_letter_table,
    has_same_database,
    letter_table,
)
from streamgroups_spark.sinks.output_partitions import first_numbers, number_of_topic, with_partitions
from streamgroups_spark.sinks.sink_options import (
    TASKS,
    Delivery,
    SinkOptions,
    check_output_schema,
    parse_sink,
    warn_of_ignored,
)
from streamgroups_spark.sinks.stream_writer import Preparation, SinkWriter
from streamgroups_spark.source.cluster_clients import cluster_of
from streamgroups_spark.source.query_checks import check_state
from streamgroups_spark.source.source_options import SourceOptions, parse

#: Client settings that are arguments of the sink.
_ARGUMENTS = {
    "bootstrap.servers": "bootstrap_servers",
    "transactional.id": "transactional_id",
    "transaction.timeout.ms": "transaction_timeout",
}
_ANY_SERVERS = {"kafka.bootstrap.servers": "any:9092"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSink:
    """Kafka topics that a query writes to exactly once.

    Args:
        connection: the name of a connection of type ``kafka``. The processes that connect resolve its secrets.
        bootstrap_servers: brokers of the cluster, separated by commas. Either they or a connection are required.
        topic: the topic of all records. ``None``: the column ``topic`` of each row contains it.
        include_headers: whether the column ``headers`` is written.
        delivery: ``at-least-once`` writes without a transaction. Records are visible at once, and a replayed batch
            writes them again.
        transactional_id: the transactional id of the writer. ``None``: derived from the group, and for a shared group
            also from the id of the checkpoint.
        transaction_timeout: a duration, after which the broker aborts a transaction. A trigger or a batch write must not
            take longer. ``None``: 1 minute for a stream, and 15 minutes for :func:`write`.
        settings: more client settings by Java's or librdkafka's names, such as ``security.protocol``. Their values are
            never shown.

    Raises:
        InvalidOption: if a setting is unknown, malformed, or contradicts another one.

    >>> KafkaSink(bootstrap_servers="broker:9092", topic="delays", settings={"sasl.password": "hunter2"}).topic
    'delays'
    >>> KafkaSink(bootstrap_servers="broker:9092", transaction_timeout="1000")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'transaction_timeout' is '1000', which is not a duration. Write a number with a unit, as in 500ms, 30s, \
10 minutes, 1h30m or PT1H30M.
    """

    connection: str | None = None
    bootstrap_servers: str | None = None
    topic: str | None = None
    include_headers: bool = True
    delivery: Literal["exactly-once", "at-least-once"] = "exactly-once"
    transactional_id: str | None = None
    transaction_timeout: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name, setting in zip(self.settings, folded(without_prefix(self.settings.items())), strict=True):
            if argument := _ARGUMENTS.get(setting):
                raise InvalidOption(f"The settings contain '{name}'.", remedy=f"Use the argument '{argument}'.")
        # Only a query has a checkpoint.
        given = {**self.options, "checkpointLocation": "none yet"}
        if self.connection is None:
            parse_sink(given)
            return
        # Without the settings, because secrets are resolved where a client connects.
        kafka = folded(without_prefix((it, given.pop(it)) for it in list(given) if it.startswith(KAFKA)))
        check_explicit(connection_named(self.connection, KafkaConnection), kafka)
        parse_sink({name: it for name, it in given.items() if name != "connection"} | _ANY_SERVERS)

    @property
    def options(self) -> dict[str, str]:
        """The options of the sink for ``writeStream.format("streamgroups")``, and for ``write``."""
        timeout_ms = None
        if self.transaction_timeout is not None:
            parsed_ms = parse_duration_ms(self.transaction_timeout, option="transaction_timeout")
            if parsed_ms > MAX_INT32:
                raise InvalidOption(
                    f"transaction_timeout is {self.transaction_timeout}, which Kafka's protocol cannot contain.",
                    remedy="Use at most the broker's transaction.max.timeout.ms, which is 15 minutes by default.",
                )
            timeout_ms = str(parsed_ms)
        given = {
            "connection": self.connection,
            "topic": self.topic,
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "kafka.transactional.id": self.transactional_id,
            "kafka.transaction.timeout.ms": timeout_ms,
        }
        return {
            **{KAFKA + name: str(value) for name, value in without_prefix(self.settings.items())},
            **{name: value for name, value in given.items() if value is not None},
            "includeHeaders": str(self.include_headers).lower(),
            "delivery": self.delivery,
        }


def exactly_once(
    df: DataFrame,
    *,
    sink: KafkaSink | AnySink,
    checkpoint: str,
    dead_letters: KafkaSink | AnySink | DeadLetters | None = None,
) -> DataStreamWriter:
    """Writes a streaming DataFrame so that output and positions change in one transaction.

    This also holds after failures (SEMANTICS X2). The call changes nothing: it checks the query, and requests metadata of the
    clusters. ``start()`` of the writer begins.

    Args:
        df: read with ``format("streamgroups")``. For Kafka, with the columns of Spark's Kafka sink.
        sink: :class:`KafkaSink`, ``sg.PostgresSink`` or ``sg.DeltaSink``.
        checkpoint: the checkpoint of the query: a path or a URI that the driver can read.
        dead_letters: the sink of the rows whose column ``dead_letter`` is not null, as steps such as :func:`windows`
            return them. ``sink`` receives the other rows, without this column. :class:`DeadLetters` also sets limits.
            ``docs/dead-letters.rst`` describes the guarantee of each pair of sinks. Required if ``df`` has the column.

    Returns:
        The writer. Set its trigger, output mode and name, and call ``start()``.

    Raises:
        InvalidOption: if the query does not support exactly once. The error contains the reason and the remedy.
        StreamGroupsError: if the output cluster does not respond or rejects a request.

    ``start()`` raises errors of the transactional id, such as a missing permission, and of a ledger of the group in another
    sink.

    Example::

        delays = sg.KafkaSink(bootstrap_servers="localhost:9092", topic="delays")
        query = sg.exactly_once(flights.select("key", "value"), sink=delays, checkpoint="/data/delays").start()
    """
    return exactly_once_writer(df, sink, checkpoint, dead_letters)


def exactly_once_writer(
    df: DataFrame,
    sink: KafkaSink | AnySink,
    checkpoint: str,
    dead_letters: KafkaSink | AnySink | DeadLetters | None,
    *,
    new_topics: Mapping[str, int] = MappingProxyType({}),
    first: Sequence[Preparation] = (),
) -> SinkWriter:
    """See :func:`exactly_once`. Called by ``repartition.repartition`` too.

    Args:
        df: see :func:`exactly_once`.
        sink: see :func:`exactly_once`.
        checkpoint: see :func:`exactly_once`.
        dead_letters: see :func:`exactly_once`.
        new_topics: the number of partitions of topics that ``first`` creates.
        first: what ``start()`` does before it fences older runs.
    """
    require_registered("sg.exactly_once", df)
    sources = checked_sources(df)
    letters = checked_letters(df, dead_letters)
    if isinstance(sink, KafkaSink):
        return _to_kafka(df, sources, sink, checkpoint, letters, new_topics, first)
    return _to_ledger(df, sources, sink, checkpoint, letters)


# ---- checks ----------------------------------------------------------------------------------------------------------


def checked_sources(df: DataFrame) -> list[SourceOptions]:
    """Returns the options of the sources of a query. Rejects a query that does not support exactly once.

    Called by ``repartition.repartition`` too.

    Raises:
        InvalidOption: if the query does not support exactly once. The error contains the reason and the remedy.
    """
    if not df.isStreaming:
        raise InvalidOption(
            "The DataFrame is not a streaming DataFrame.",
            remedy='Read it with spark.readStream.format("streamgroups").',
        )
    sources = []
    for stream in read_streams(analyzed(df)):
        name = source_name(stream.leaf)
        if name == PUNCTUATIONS:
            # It reads no records, and follows the watermark of the other streams.
            continue
        if name != FORMAT:
            raise InvalidOption(
                f"The query reads a stream of format '{name}', whose positions cannot be committed with the output.",
                remedy='Read it with format("streamgroups").',
            )
        source = parse(source_options(stream.leaf), streaming=True)
        check_state(source, stream.operators, stream.unknown)
        sources.append(source)
    return sources


def checked_letters(df: DataFrame, dead_letters: Any) -> DeadLetters | None:
    """Returns the argument ``dead_letters`` of a query, with its limits.

    Raises:
        InvalidOption: if the rows have dead letters and the argument is missing, it is no sink, or it loses letters.
    """
    check_letters(df)
    if dead_letters is None:
        if COLUMN in df.columns:
            raise InvalidOption(
                f"The rows have the column '{COLUMN}', but 'dead_letters' is not set, so their dead letters would be lost.",
                remedy="Pass dead_letters=sg.KafkaSink(..., topic='dead-letters') or another sink. To drop them on "
                f"purpose: df.where('{COLUMN} IS NULL').drop('{COLUMN}').",
            )
        return None
    letters = dead_letters if isinstance(dead_letters, DeadLetters) else DeadLetters(sink=dead_letters)
    if isinstance(letters.sink, KafkaSink):
        if letters.sink.topic is None:
            raise InvalidOption("The sink of dead letters has no topic.", remedy="Set its argument 'topic'.")
    elif not all(hasattr(letters.sink, name) for name in ("begin", "write", "open", "discard")):
        raise InvalidOption(
            f"'dead_letters' is {type(letters.sink).__name__}, which is no sink.",
            remedy="Pass sg.KafkaSink, sg.PostgresSink, sg.DeltaSink, or sg.DeadLetters with one of them.",
        )
    check_letter_mode(letters.sink)
    return letters


# ---- Kafka -----------------------------------------------------------------------------------------------------------


def _to_kafka(
    df: DataFrame,
    sources: Sequence[SourceOptions],
    sink: KafkaSink,
    checkpoint: str,
    letters: DeadLetters | None,
    new_topics: Mapping[str, int],
    first: Sequence[Preparation],
) -> SinkWriter:
    # One of the groups stores the metadata entry of no-data batches. It must be the same group after each restart.
    alone = [str(source.group_id) for source in sources if source.mode is MembershipMode.EXCLUSIVE]
    no_data_group = min(alone or [str(source.group_id) for source in sources])
    given = {"group.id": no_data_group, **sink.options, "checkpointLocation": checkpoint}
    given[TASKS] = str(parallelism_of(df.sparkSession))
    options = parse_sink(given)
    if alone and options.transactional_id is None:
        # No other query has this group. A run therefore fences all earlier runs, also those with other checkpoints.
        given["kafka.transactional.id"] = transactional_id_of(no_data_group)
        options = parse_sink(given)
    warn_of_ignored(options)
    rows = StructType([field for field in df.schema if letters is None or field.name != COLUMN])
    check_output_schema(rows, options)
    output_format, preparations, letters_topic = FORMAT, list(first), None
    if letters is not None:
        if options.delivery is not Delivery.EXACTLY_ONCE:
            raise InvalidOption(
                "'dead_letters' requires delivery=exactly-once.", remedy="Remove 'delivery' from the sink."
            )
        output = _letter_output(letters, sources, sink)
        letters_topic = output.sink.topic if isinstance(output.sink, SinkOptions) else None
        output_format = _name("kafkasink", checkpoint)
        class_attributes = {"format_name": output_format, "session": SESSION, "dead_letters": output}
        class_attributes["connections_file"] = config_path_for_others()
        preparations += [
            *_preparations_of(output),
            _registration(df, shipped_class(KafkaLettersDataSource, class_attributes)),
        ]
    if options.delivery is Delivery.EXACTLY_ONCE:
        cluster = KafkaCluster(options.client, read_committed=True, request_subscriptions=False)
        _reject_another_cluster(sources, cluster)
        counts = {**new_topics, **cluster.topics()}
        df = disjoint(df, options, counts, with_letters=letters is not None, letters_topic=letters_topic)
        preparations.append(lambda _: fence_killed_run(options, no_data_group, checkpoint, is_alone=bool(alone)))
    return SinkWriter(df, output_format, given, preparations)


def _registration(df: DataFrame, source: type[DataSource]) -> Preparation:
    return lambda _: df.sparkSession.dataSource.register(source)


def _preparations_of(letters: LetterOutput) -> list[Preparation]:
    """The creation of the table of dead letters, or the check of their topic."""
    dead = letters.sink
    if not isinstance(dead, SinkOptions):
        return [lambda _: create_letter_table(dead)]
    lost = "the broker rejects dead letters without a key, and deletes all letters of a key except the last one"
    return [lambda _: reject_compacted(dead.client, dead.topic or "", lost)]


def _reject_another_cluster(sources: Iterable[SourceOptions], cluster: KafkaCluster, of: str = "output") -> None:
    cluster_id = cluster.cluster_id()
    for source in sources:
        if cluster_of(source).cluster_id() != cluster_id:
            raise InvalidOption(
                f"The source of group '{source.group_id}' and the sink use different clusters, but a Kafka "
                "transaction covers only one cluster.",
                remedy="Set delivery=at-least-once on the sink."
                if of == "output"
                else "Use a topic of the cluster of the source, sg.PostgresSink or sg.DeltaSink for the dead letters.",
            )


def disjoint(
    df: DataFrame,
    options: SinkOptions,
    counts: Mapping[str, int],
    *,
    with_letters: bool,
    letters_topic: str | None = None,
) -> DataFrame:
    """Assigns each output partition to one task, because two tasks must not write to one partition in a transaction.

    Called by ``sinks.batch_write`` too.

    Args:
        df: rows with the columns of the Kafka sink.
        options: the options of the sink.
        counts: the number of partitions of each topic.
        with_letters: whether the rows can have dead letters.
        letters_topic: see :func:`with_rejections`.

    Raises:
        UnknownTopic: if the topic does not exist.
    """
    tasks = options.tasks or parallelism_of(df.sparkSession)
    if options.topic is not None and options.topic not in counts:
        raise UnknownTopic(
            f"Topic '{options.topic}' does not exist.",
            remedy="Create the topic, or correct the option 'topic'. If it exists: "
            + grant("Write", "Topic", [options.topic]),
        )
    if with_letters:
        df = with_rejections(df, options, counts, letters_topic=letters_topic)
    is_anywhere = not {"key", "partition"} & set(df.columns)
    if is_anywhere and options.topic is not None and counts[options.topic] >= tasks:
        # Each task chooses its own partitions.
        return df.coalesce(tasks)
    if with_letters:
        # Rows with a dead letter are returned to the driver, so any task can have them.
        is_letter = F.col(COLUMN).isNotNull()
        hidden = df.withColumn("key", F.when(~is_letter, F.col("key"))) if "key" in df.columns else df
        return _in_disjoint_tasks(hidden, options, counts, tasks)
    return _in_disjoint_tasks(df, options, counts, tasks)


def _in_disjoint_tasks(df: DataFrame, options: SinkOptions, counts: Mapping[str, int], tasks: int) -> DataFrame:
    if tasks == 1:
        # The task chooses the partitions.
        return df.coalesce(1)
    chosen = with_partitions(df, counts, topic=options.topic)
    # A row without key and partition can go to any partition of one task. A retried task must choose the same one.
    # All numbers are bigints: in ANSI mode the sum of two ints can be an error.
    anywhere = F.hash("value").cast("bigint") + F.spark_partition_id()
    chosen = chosen.withColumn(
        "partition", F.coalesce("partition", F.pmod(anywhere, number_of_topic(counts, options.topic)).cast("int"))
    )
    # Each task has as many partitions as the others. By their hashes, one would often have twice as many, and others none.
    number = F.coalesce(
        number_of_topic(first_numbers(counts), options.topic) + F.col("partition").cast("bigint"), F.lit(0)
    )
    to_tasks = F.array(*map(F.lit, number_for_each_task(tasks)))
    return chosen.repartition(tasks, F.element_at(to_tasks, (F.pmod(number, F.lit(tasks)) + 1).cast("int")))


# ---- ledgers ---------------------------------------------------------------------------------------------------------


def _to_ledger(
    df: DataFrame, sources: Sequence[SourceOptions], sink: AnySink, checkpoint: str, letters: DeadLetters | None
) -> SinkWriter:
    group_ids = tuple(sorted({str(source.group_id) for source in sources}))
    # An error here precedes the start.
    check_no_binary_form(df.schema, f"the sink {type(sink).__name__}")
    pickled_ledger(sink, group_ids)
    check_isolation(sink, None if letters is None else letters.sink)
    name = _name(type(sink).__name__.lower(), checkpoint)
    output = None if letters is None else _letter_output(letters, sources, sink)
    class_attributes = {
        "format_name": name,
        "session": SESSION,
        "sink": sink,
        "group_ids": group_ids,
        "dead_letters": output,
    }
    preparations: list[Preparation] = [
        # An unreadable checkpoint is an error here, before the first batch.
        lambda _: query_id_of(checkpoint),
        lambda writer: keep(sink, group_ids, checkpoint=checkpoint, writer=writer, sink_name=name),
        *([] if output is None else _preparations_of(output)),
        _registration(df, shipped_class(LedgerDataSource, class_attributes)),
    ]
    return SinkWriter(df, name, {"checkpointLocation": checkpoint}, preparations)


def _name(sink: str, checkpoint: str) -> str:
    return f"streamgroups-{sink}-{hashlib.sha256(checkpoint.encode()).hexdigest()[:8]}"


# ---- dead letters ----------------------------------------------------------------------------------------------------


def _letter_output(letters: DeadLetters, sources: Sequence[SourceOptions], sink: KafkaSink | AnySink) -> LetterOutput:
    """Checks the sink of dead letters, and decides whether its transaction is that of the output."""
    group_ids = tuple(sorted({str(source.group_id) for source in sources}))
    dead = letters.sink
    if not isinstance(dead, KafkaSink):
        dead = letter_table(dead)
        with_output = not isinstance(sink, KafkaSink) and has_same_database(dead, sink)
        return LetterOutput(dead, letters.limits, group_ids, with_output)
    options = parse_sink({**dead.options, "checkpointLocation": "that of the query"})
    if options.delivery is not Delivery.EXACTLY_ONCE:
        raise InvalidOption("The sink of dead letters has delivery=at-least-once.", remedy="Remove 'delivery' from it.")
    if isinstance(sink, KafkaSink) and dead.topic == sink.topic:
        raise InvalidOption(
            f"Topic '{dead.topic}' is the topic of the output and of the dead letters.", remedy="Use separate topics."
        )
    if options.transactional_id is None:
        alone = [str(source.group_id) for source in sources if source.mode is MembershipMode.EXCLUSIVE]
        options = replace(options, transactional_id=letters_transactional_id(alone))
    cluster = KafkaCluster(options.client, read_committed=True, request_subscriptions=False)
    _reject_another_cluster(sources, cluster, "dead letters")
    if dead.topic not in cluster.topics():
        raise UnknownTopic(
            f"Topic '{dead.topic}' of the dead letters does not exist.",
            remedy="Create the topic, or correct its name. If it exists: "
            + grant("Write", "Topic", [dead.topic or ""]),
        )
    return LetterOutput(options, letters.limits, group_ids, isinstance(sink, KafkaSink))
