"""``sg.repartition(df, by=..., topic=...)``: records in a topic that is partitioned by other keys than their own.

Called by users on the driver. One query writes the topic exactly once, and another one reads it with
``sg.read_repartitioned``, in the same application or in another one. Source: Kafka Streams' ``KStream.repartition``;
SEMANTICS S12.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from streamgroups.dlq.letter import COLUMN
from streamgroups.dlq.limits import DeadLetters
from streamgroups.errors import InvalidOption
from streamgroups.groups.subscription import is_subscribed
from streamgroups.option_values import KAFKA, check_once, folded, without_prefix
from streamgroups.query.position_options import STARTING
from streamgroups_kafka.client.java_settings import connection_settings
from streamgroups_spark.bridge.plan import FORMAT, analyzed, read_streams, source_name, source_options
from streamgroups_spark.dlq.failure_column import failure, has_source_column, is_good, with_letter
from streamgroups_spark.frames.columns import check_distinct, column, columns_of
from streamgroups_spark.frames.key_columns import check_key_columns, check_key_types, marked, record_key
from streamgroups_spark.frames.record_values import check_time_texts, check_value_types, column_of, from_value, to_value
from streamgroups_spark.frames.value_rejections import rejection
from streamgroups_spark.internals.connect import reject_in_flow
from streamgroups_spark.repartition.target_topic import TargetTopic
from streamgroups_spark.sinks.exactly_once import KafkaSink, checked_letters, checked_sources, exactly_once_writer
from streamgroups_spark.sinks.ledger_writer import AnySink
from streamgroups_spark.sinks.sink_options import parse_sink

#: The columns that the source returns for a record of the new topic.
_PLACE = ("key", "topic", "partition", "offset", "timestampType")
#: Kafka's clients distribute records without a key over all partitions.
_PARTITION_WITHOUT_KEY = 0
_ROW, _TASK = "row", "task"


def repartition(
    df: DataFrame,
    *,
    by: Sequence[str],
    topic: str,
    checkpoint: str,
    partitions: int | None = None,
    settings: Mapping[str, str] | None = None,
    transaction_timeout: str = "1 minute",
    transactional_id: str | None = None,
    dead_letters: KafkaSink | AnySink | DeadLetters | None = None,
) -> DataStreamWriter:
    """Writes a stream to a topic that is partitioned by columns of the stream, exactly once (SEMANTICS S12).

    All records with equal values of ``by`` are in one partition of the topic, in which :func:`windows` and
    :func:`stateful` have state for them. :func:`read_repartitioned` reads the topic.

    The call changes nothing. ``start()`` of the writer creates the topic if it does not exist.

    The topic is in the cluster of the source. The query connects with the option ``connection`` and the ``kafka.*`` options
    of the source.

    Args:
        df: a stream of the source with the columns to write. The columns ``key``, ``topic``, ``partition``, ``offset``
            and ``timestampType`` describe the old record: drop or rename them.
        by: the columns that become the record key. They are neither nested nor floating-point numbers.
        topic: the topic to write to. The query does not read it.
        checkpoint: the checkpoint of the query: a path or a URI that the driver can read.
        partitions: the number of partitions. A topic that does not exist is created with it, and an existing topic must
            have it. ``None``: the topic must exist.
        settings: more client settings by Java's or librdkafka's names, such as ``compression.type``. They override those
            of the source.
        transaction_timeout: a duration, after which the broker aborts a transaction. A trigger must not take longer.
        transactional_id: see :class:`KafkaSink`.
        dead_letters: as in :func:`exactly_once`: the sink of rows with a dead letter, and of rows that a value cannot
            contain exactly. The topic does not contain them. ``None``: a row of the second kind fails the query.

    Returns:
        The writer. Set its trigger and name, and call ``start()``.

    Raises:
        InvalidOption: for the first invalid argument.
        UnknownTopic: if the topic does not exist, and ``partitions`` is not set.
        StreamGroupsError: if the cluster does not respond or rejects a request.

    Example::

        delays = flights.selectExpr("timestamp", "value:airport::string AS airport", "value:delay::int AS delay")
        writing = sg.repartition(delays, by=["airport"], topic="delays-by-airport", partitions=8,
                                 checkpoint="/data/delays-by-airport").start()
    """
    reject_in_flow(df, "sg.repartition")
    sources = checked_sources(df)
    checked_letters(df, dead_letters)
    schema = StructType([field for field in df.schema if field.name != COLUMN])
    _check(schema, by)
    check_time_texts(df.sparkSession, schema, "sg.repartition")
    if any(is_subscribed(source.subscription, topic) for source in sources):
        raise InvalidOption(
            f"The query reads topic '{topic}' and would write to it.", remedy="Set 'topic' to another topic."
        )
    if partitions is not None and partitions < 1:
        raise InvalidOption(f"Option 'partitions' is {partitions}.", remedy="It must be at least 1.")
    connection, kafka = _connection(df)
    kafka |= folded(without_prefix((settings or {}).items()))
    sink = KafkaSink(
        connection=connection,
        bootstrap_servers=kafka.pop("bootstrap.servers", None),
        topic=topic,
        settings=kafka,
        transaction_timeout=transaction_timeout,
        transactional_id=transactional_id,
    )
    target = TargetTopic(parse_sink({**sink.options, "checkpointLocation": checkpoint}).client, topic, partitions)
    new_topics = {topic: target.partition_count()}
    key = record_key(schema, by, {name: column(name) for name in by})
    # The shuffle of sg.exactly_once chooses the other partitions, as Kafka's Java clients do.
    partition = F.when(key.isNull(), F.lit(_PARTITION_WITHOUT_KEY))
    value = _values(df, schema, with_letters=dead_letters is not None)
    records = df.select(key.alias("key"), *value, partition.alias("partition"))
    create = [lambda _: target.ensure()]
    return exactly_once_writer(records, sink, checkpoint, dead_letters, new_topics=new_topics, first=create)


def read_repartitioned(
    spark: SparkSession, *, topic: str, by: Sequence[str], columns: StructType | str, options: Mapping[str, str]
) -> DataFrame:
    """Reads a topic of :func:`repartition`, in any application.

    Only committed records are read. A new group starts at the earliest records, unless an option sets another position.

    Args:
        spark: the session.
        topic: the topic.
        by: the ``by`` of :func:`repartition`.
        columns: the schema of the DataFrame that was written, or columns with their types, as in
            ``"airport string, delay int"``. A column that a record does not have is null, so the writer can add columns.
        options: the options of the source, such as ``kafka.bootstrap.servers`` and ``group.id``.

    Returns:
        A streaming DataFrame: ``columns``, and the columns ``key``, ``topic``, ``partition`` and ``offset`` of the new
        records, and ``timestamp`` unless ``columns`` contains it. :func:`windows` and :func:`stateful` accept all
        columns of ``by`` as keys, without ``prepartitioned``.

    A query fails if a record is not one of :func:`repartition` with this ``by``.

    Raises:
        InvalidOption: for the first invalid argument. The error contains its name.

    Example::

        delays = sg.read_repartitioned(
            spark, topic="delays-by-airport", by=["airport"], columns="timestamp timestamp, airport string, delay int",
            options={"kafka.bootstrap.servers": "localhost:9092", "group.id": "delays"})
        worst = sg.windows(delays.withWatermark("timestamp", "10 seconds"), on="timestamp", by=["airport"],
                           window=sg.shapes.tumbling("5 minutes"), aggregate={"worst": "max(delay)"})
    """
    schema = columns if isinstance(columns, StructType) else columns_of(columns, "columns", "airport string, delay int")
    _check(schema, by)
    check_time_texts(spark, schema, "sg.read_repartitioned")
    reader = spark.readStream.format(FORMAT).options(**_reading(topic, options))
    own = [name for name in ("key", "topic", "partition", "offset", "timestamp") if name not in schema.names]
    row = from_value(F.col("value").cast("string"), schema).alias(_ROW)
    parsed = reader.load().select(F.col("key").alias("record_key"), F.spark_partition_id().alias(_TASK), "*", row)
    cells = {field.name: column_of(F.col(_ROW), field) for field in schema.fields}
    has_key = F.col("record_key").eqNullSafe(record_key(schema, by, cells))
    no_value, other_key = (
        F.raise_error(F.lit(_foreign(topic, what))).cast("boolean")
        for what in ("has no value", f"has another key than that of the columns {', '.join(by)}")
    )
    # Spark keeps a filter, whatever columns the query reads. No filter of the query moves before this one, because it is
    # nondeterministic. Nor does this one move before a nondeterministic column, where Spark would parse each value twice.
    in_task = F.col(_TASK) == F.spark_partition_id()
    is_own = F.when(F.col(_ROW).isNull(), no_value).when(has_key, in_task).otherwise(other_key)
    read = (marked(cell, topic, by, name) if name in by else cell.alias(name) for name, cell in cells.items())
    return parsed.where(is_own).select(*read, *own)


def _values(df: DataFrame, schema: StructType, *, with_letters: bool) -> list[Column]:
    """Returns the column ``value``, and with dead letters the column ``dead_letter``.

    Args:
        df: the rows.
        schema: their columns without ``dead_letter``.
        with_letters: whether a row that no value can contain becomes a dead letter. Otherwise it fails the query.
    """
    value, reason = to_value(schema), rejection(schema)
    if not with_letters:
        if reason is not None:
            value = F.when(reason.isNotNull(), F.raise_error(reason)).otherwise(value)
        return [value.alias("value")]
    is_valid = is_good(df)
    letter = F.lit(None)
    if reason is not None:
        letter = F.when(is_valid & reason.isNotNull(), _letter(df, schema, reason))
        is_valid &= reason.isNull()
    return [F.when(is_valid, value).alias("value"), with_letter(df, letter)]


def _letter(df: DataFrame, schema: StructType, reason: Column) -> Column:
    # Characters replace the bytes of a string that is not UTF-8.
    details = None if has_source_column(schema, "value") else F.create_map(F.lit("record"), to_value(schema))
    return failure(df, step="repartition", error_class=F.lit("RecordRejected"), error=reason, details=details)


def _foreign(topic: str, what: str) -> str:
    return (
        f"A record of topic '{topic}' {what}. Only sg.repartition with the same 'by' may write to the topic. Correct "
        "'by', or use another topic."
    )


def _check(schema: StructType, by: Sequence[str]) -> None:
    check_key_columns(schema, by)
    if not by:
        raise InvalidOption("Option 'by' is empty.", remedy="Pass the key columns, such as ['airport'].")
    [(name, times)] = Counter(by).most_common(1)
    if times > 1:
        raise InvalidOption(f"Option 'by' contains '{name}' {times} times.", remedy="Pass each column once.")
    # Spark resolves names without their case.
    check_distinct(map(str.lower, schema.names))
    old = [it for it in schema.names if it.lower() in map(str.lower, _PLACE) and [it, *by] != ["key", "key"]]
    if old:
        raise InvalidOption(
            f"The columns {', '.join(old)} have the names of columns of the new records.",
            remedy="Drop them, or rename those that you need: withColumnRenamed('offset', 'flight_offset').",
        )
    check_key_types(schema, by)
    check_value_types(schema)


def _connection(df: DataFrame) -> tuple[str | None, dict[str, str]]:
    """The named connection of a source of the query, and its explicit settings in lower case and without the prefix."""
    sources = [it.leaf for it in read_streams(analyzed(df)) if source_name(it.leaf) == FORMAT]
    options = {str(name).lower(): str(value) for name, value in source_options(sources[0]).items()}
    explicit = {n.removeprefix(KAFKA): v for n, v in options.items() if n.startswith(KAFKA)}
    return options.get("connection"), connection_settings(explicit)


def _reading(topic: str, options: Mapping[str, str]) -> dict[str, str]:
    check_once(options)
    given = {name.lower(): name for name in options}
    of_the_read = (
        "subscribe",
        "subscribePattern",
        "assign",
        "columns",
        "includeHeaders",
        "eventTimeHeader",
        "watermarkHeader",
    )
    for name in of_the_read:
        if name.lower() in given:
            raise InvalidOption(
                f"The options contain '{name}'.",
                remedy="Leave it out: 'topic' is the topic, and its records are read without headers.",
            )
    isolation = given.get("kafka.isolation.level")
    if isolation is not None and options[isolation].strip().lower() != "read_committed":
        raise InvalidOption(
            f"Option '{isolation}' is '{options[isolation]}', which reads records of aborted transactions.",
            remedy="Leave it out: committed records are read.",
        )
    # The earlier records belong to the state too.
    start = {} if any(name.lower() in given for name in STARTING) else {"startingOffsets": "earliest"}
    return {**start, **options, isolation or "kafka.isolation.level": "read_committed", "subscribe": topic}
