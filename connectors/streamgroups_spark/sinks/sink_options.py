"""The options of ``writeStream.format("streamgroups")``: one dataclass, checked completely before any write.

Called by ``formats.data_source`` when Spark creates the data source for writing. The options of Spark's ``kafka`` sink
and of Kafka's producer keep their names and meanings. Names are case-insensitive. Source: SEMANTICS X1.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from pyspark.sql.types import StructType

from streamgroups.errors import InvalidOption
from streamgroups.option_values import KAFKA, choice, flag, own_and_kafkas
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.connected import connected_settings, of_connection
from streamgroups_kafka.client.setting_values import number_of
from streamgroups_kafka.write.compression import Compression
from streamgroups_kafka.write.record_batches import BatchSettings

#: The default of ``transaction.timeout.ms``. A whole job has one transaction, and brokers allow 15 minutes by default.
_STREAM_TIMEOUT_MS, _BATCH_TIMEOUT_MS = 60_000, 900_000
_NAMES = ("connection", "topic", "includeHeaders", "delivery")
#: Options of a streaming query only.
_STREAM_NAMES = ("checkpointLocation", "group.id")
#: The option that ``sg.exactly_once`` and ``sg.write`` set. It is no option of users.
TASKS = "streamgroups.tasks"
#: Settings of Kafka's producer without effect here: this producer sends one large batch at a time and retries until
#: success.
logger = logging.getLogger(__name__)

_WITHOUT_EFFECT = frozenset(
    [
        "linger.ms",
        "buffer.memory",
        "retries",
        "max.block.ms",
        "batch.size",
        "delivery.timeout.ms",
        "max.in.flight.requests.per.connection",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "enable.metrics.push",
        "transaction.two.phase.commit.enable",
    ]
)
_LEVELS = {codec: f"compression.{codec}.level" for codec in ("gzip", "lz4", "zstd")}


class Delivery(Enum):
    """The option ``delivery`` (SEMANTICS X1)."""

    #: Output and offsets of a micro-batch change in one transaction.
    EXACTLY_ONCE = "exactly-once"
    #: No transaction: records are visible at once, and a replayed batch writes them again.
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The parsed options of a sink.

    Args:
        client: the configuration for the output cluster.
        topic: the topic of all records. ``None``: each row contains its topic.
        batches: the settings for Kafka's record batches.
        with_headers: whether a column ``headers`` is written.
        delivery: the option ``delivery``.
        checkpoint_location: the checkpoint of the query. ``None`` if the option is missing.
        group_id: the group whose metadata group records the last no-data batch. ``None``: a no-data batch with output
            is rejected.
        transactional_id: the option ``kafka.transactional.id``. ``None``: derived from the group and the id of the
            checkpoint.
        transaction_timeout_ms: the time after which the broker aborts a transaction.
        ignored: given options without effect, for one log line.
        tasks: the number of tasks to which ``sg.exactly_once`` or ``sg.write`` has assigned the output partitions. ``None``
            for other writes.
    """

    client: ClientConfig
    topic: str | None
    batches: BatchSettings
    with_headers: bool
    delivery: Delivery
    checkpoint_location: str | None
    group_id: str | None
    transactional_id: str | None
    transaction_timeout_ms: int
    ignored: tuple[str, ...]
    tasks: int | None = None


def parse_sink(
    options: Mapping[str, str], *, streaming: bool = True, connections_file: str | None = None
) -> SinkOptions:
    """Parses and checks all options.

    Args:
        options: the options from Spark. Names are case-insensitive.
        streaming: whether a streaming query writes. A batch write has neither checkpoint nor group.
        connections_file: the path of the file of connections. ``None``: the one of this process.

    Raises:
        InvalidOption: for the first invalid option. The error contains its name, its value and the permitted values.

    >>> parse_sink({"kafka.bootstrap.servers": "broker:9092", "topic": "board", "delivery": "at-least-once"}).topic
    'board'
    >>> parse_sink({"kafka.bootstrap.servers": "broker:9092", "tpic": "board"})
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'tpic' is not an option of the sink. Did you mean 'topic'?
    """
    call = "start" if streaming else "save"
    known, kafka = own_and_kafkas(
        # Spark passes the name of the query as an option.
        {name: value for name, value in options.items() if name.lower() not in ("queryname", TASKS)},
        (*_NAMES, *(_STREAM_NAMES if streaming else ())),
        unknown="is not an option of the sink",
        no_path=lambda path: InvalidOption(
            f"{call}('{path}') has a path, but topics have no path.", remedy=f"Use the option 'topic' and {call}()."
        ),
    )
    connected = connected_settings(known.get("connection"), kafka, connections_file=connections_file)
    kafka = connected.values
    group_id = _group_id(known, kafka)
    _reject_weaker(kafka)
    if "message.max.bytes" in kafka:
        # librdkafka's name of the limit.
        kafka.setdefault("max.request.size", kafka.pop("message.max.bytes"))
    batches = BatchSettings(
        max_message_bytes=_whole(kafka, "max.request.size", 1_048_588), compression=_compression(kafka)
    )
    timeout_ms = _whole(kafka, "transaction.timeout.ms", _STREAM_TIMEOUT_MS if streaming else _BATCH_TIMEOUT_MS)
    transactional_id = kafka.pop("transactional.id", None)
    ignored = tuple(sorted(kafka.keys() & _WITHOUT_EFFECT))
    client = ClientConfig.from_options(
        {name: value for name, value in kafka.items() if name not in ignored}, connected.references
    )
    if client.get("bootstrap.servers") is None:
        raise InvalidOption(
            "Option 'kafka.bootstrap.servers' is missing.",
            remedy="Set it to the brokers of the output topic, or set the option 'connection'.",
        )
    topic = known.get("topic")
    if topic is not None and not topic.strip():
        raise InvalidOption(
            "Option 'topic' is empty.", remedy="Set it to a topic, or leave it out and add a column 'topic'."
        )
    tasks = next((value for name, value in options.items() if name.lower() == TASKS), None)
    delivery = choice(known, "delivery", Delivery, Delivery.EXACTLY_ONCE)
    checkpoint = known.get("checkpointLocation")
    if streaming and delivery is Delivery.EXACTLY_ONCE and not checkpoint:
        raise InvalidOption(
            "The sink cannot find the query's checkpoint, which contains the offsets of a batch.",
            remedy="Set the option 'checkpointLocation' on writeStream, or delivery=at-least-once.",
        )
    return SinkOptions(
        client=client,
        topic=topic.strip() if topic is not None else None,
        batches=batches,
        with_headers=flag(known, "includeHeaders", default=True),
        delivery=delivery,
        checkpoint_location=checkpoint,
        group_id=group_id,
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        tasks=None if tasks is None else number_of(tasks, TASKS),
        ignored=(*(KAFKA + name for name in sorted((*ignored, *client.ignored))), *of_connection(connected.ignored)),
    )


def warn_of_ignored(options: SinkOptions) -> None:
    """Logs the given options that have no effect. Called once for a query."""
    if options.ignored:
        logger.warning("Option has no effect here: %s", ", ".join(options.ignored))


#: The columns of Spark's Kafka sink, and the permitted types of each.
_COLUMNS = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}
#: ``spark.sql.timestampType`` decides about the type that a cast to ``timestamp`` has.
_CAST_NAMES = {"timestamp": "timestamp_ltz"}


def check_output_schema(schema: StructType, options: SinkOptions) -> None:
    """Checks that the output has the columns of Spark's Kafka sink.

    Raises:
        InvalidOption: for the first column that is missing, unknown or of a wrong type.
    """
    for field in schema.fields:
        if field.name not in _COLUMNS:
            raise InvalidOption(
                f"Column '{field.name}' is not a column of the Kafka sink.",
                remedy=(
                    f"Select only the columns to write, such as {', '.join(_COLUMNS)}: to_json(struct(...)) "
                    "combines columns into one value."
                ),
            )
        if field.dataType.simpleString() not in _COLUMNS[field.name]:
            raise InvalidOption(
                f"Column '{field.name}' is of type {field.dataType.simpleString()}.",
                remedy=f"Cast it to {' or '.join(_CAST_NAMES.get(it, it) for it in _COLUMNS[field.name])}.",
            )
    if "value" not in schema.names:
        raise InvalidOption(
            "The column 'value' is missing.", remedy="Select a column 'value' of type binary or string."
        )
    if options.topic is None and "topic" not in schema.names:
        raise InvalidOption("The output topic is not set.", remedy="Set the option 'topic', or add a column 'topic'.")


def _reject_weaker(kafka: dict[str, str]) -> None:
    """Rejects producer settings that could lose or duplicate records."""
    for name, allowed in (("acks", ("all", "-1")), ("enable.idempotence", ("true",))):
        value = kafka.pop(name, allowed[0]).strip().lower()
        if value not in allowed:
            raise InvalidOption(
                f"Option 'kafka.{name}' is '{value}', which can lose or duplicate records.",
                remedy=f"Leave it out: the sink sets it to '{allowed[0]}'.",
            )


def _group_id(known: Mapping[str, str], kafka: dict[str, str]) -> str | None:
    """The group. Both names of the source are allowed. A connection can have one for its other users."""
    kafka_id = kafka.pop("group.id", None)
    return known.get("group.id", kafka_id)


def _compression(kafka: dict[str, str]) -> Compression:
    codec = kafka.pop("compression.type", "none").strip().lower()
    levels = {name: kafka.pop(key, None) for name, key in _LEVELS.items()}
    level = levels.get(codec)
    return Compression(codec, None if level is None else number_of(level.strip(), _LEVELS[codec]))


def _whole(kafka: dict[str, str], name: str, default: int) -> int:
    found = number_of(kafka.pop(name, str(default)).strip(), name)
    if found <= 0:
        raise InvalidOption(f"Option 'kafka.{name}' is '{found}'.", remedy="It must be a whole number greater than 0.")
    return found
