"""X1: the sink's options, and what it rejects."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from streamgroups.errors import InvalidOption
from streamgroups_spark.sinks.exactly_once import KafkaSink
from streamgroups_spark.sinks.sink_options import Delivery, check_output_schema, parse_sink, warn_of_ignored

LEAST = {"kafka.bootstrap.servers": "broker:9092", "topic": "board", "checkpointLocation": "/checkpoints/board"}


def test_what_is_left_out() -> None:
    options = parse_sink(LEAST)
    assert (options.topic, options.delivery, options.checkpoint_location) == (
        "board",
        Delivery.EXACTLY_ONCE,
        "/checkpoints/board",
    )
    assert (options.with_headers, options.transactional_id, options.transaction_timeout_ms) == (True, None, 60_000)
    assert (options.batches.compression.name, options.batches.max_message_bytes, options.ignored) == (
        "none",
        1_048_588,
        (),
    )


def test_names_in_any_case_and_the_settings_of_kafkas_producer() -> None:
    given = {
        "KAFKA.Bootstrap.Servers": "broker:9092",
        "TOPIC": " board ",
        "CheckpointLocation": "/c",
        "includeheaders": "FALSE",
        "kafka.compression.type": "ZSTD",
        "kafka.compression.zstd.level": "5",
        "kafka.max.request.size": "5000000",
        "kafka.transactional.id": "mine",
        "kafka.transaction.timeout.ms": "120000",
        "kafka.acks": "-1",
        "kafka.enable.idempotence": "true",
        "kafka.linger.ms": "5",
        "kafka.security.protocol": "PLAINTEXT",
    }
    options = parse_sink(given)
    assert (options.topic, options.with_headers, options.transactional_id) == ("board", False, "mine")
    assert (options.batches.compression.name, options.batches.compression.level) == ("zstd", 5)
    assert (options.batches.max_message_bytes, options.transaction_timeout_ms) == (5_000_000, 120_000)
    assert options.ignored == ("kafka.linger.ms",)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tpic": "x"}, r"'tpic' is not an option of the sink\. Did you mean 'topic'"),
        ({"path": "/out"}, r"has a path, but topics have no path"),
        ({"topic": "  "}, r"'topic' is empty"),
        ({"delivery": "at-most-once"}, r"'delivery' is 'at-most-once'\. Allowed values: exactly-once, at-least-once"),
        ({"kafka.acks": "1"}, r"'kafka\.acks' is '1', which can lose or duplicate"),
        ({"kafka.enable.idempotence": "false"}, r"'kafka\.enable\.idempotence' is 'false'"),
        ({"kafka.compression.type": "brotli"}, r"Compression 'brotli' is unknown"),
        ({"kafka.compression.type": "zstd", "kafka.compression.zstd.level": "high"}, r"level' is not a whole number"),
        ({"kafka.compression.type": "zstd", "kafka.compression.zstd.level": "1_0"}, r"level' is not a whole number"),
        ({"kafka.max.request.size": "0"}, r"'kafka\.max\.request\.size' is '0'"),
        ({"kafka.max.request.size": "-1"}, r"must be a whole number greater than 0"),
        ({"kafka.max.request.size": "10MB"}, r"'kafka\.max\.request\.size' is not a whole number.*without a unit"),
        ({"kafka.transaction.timeout.ms": "soon"}, r"'kafka\.transaction\.timeout\.ms' is not a whole number"),
        ({"kafka.transaction.timeout.ms": "\u0661\u0662"}, r"'kafka\.transaction\.timeout\.ms' is not a whole number"),
        ({"kafka.transaction.timeout.ms": "9" * 5_000}, r"'kafka\.transaction\.timeout\.ms' is not a whole number"),
        ({"kafka.request.timeout.ms": "45s"}, r"'kafka\.request\.timeout\.ms' is not a whole number.*without a unit"),
        ({"kafka.ACKS": "all", "kafka.acks": "all"}, r"Options 'kafka\.ACKS' and 'kafka\.acks' are the same option"),
        ({"kafka.acks": "all", "kafka.acks ": "all"}, r"Options 'kafka\.acks' and 'kafka\.acks ' are the same option"),
        ({"kafka.acks": "all", "kafka. acks": "all"}, r"Options 'kafka\.acks' and 'kafka\. acks' are the same option"),
        ({"Topic": "x"}, r"Options 'topic' and 'Topic' are the same option"),
        ({"includeHeaders": "perhaps"}, r"Allowed values: true, false"),
        ({"kafka.bootstrap.server": "b:1"}, r"kafka\.bootstrap\.server' is unknown"),
        ({"checkpointLocation": ""}, r"cannot find the query's checkpoint.*delivery=at-least-once"),
    ],
)
def test_rejections(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        parse_sink({**LEAST, **given})


def test_librdkafkas_name_of_the_limit_and_both_names_of_the_group() -> None:
    options = parse_sink(LEAST | {"kafka.message.max.bytes": "2000000", "kafka.group.id": "board"})
    assert (options.batches.max_message_bytes, options.group_id) == (2_000_000, "board")
    both = parse_sink(LEAST | {"kafka.message.max.bytes": "2000000", "kafka.max.request.size": "3000000"})
    assert both.batches.max_message_bytes == 3_000_000
    assert parse_sink(LEAST | {"group.id": "own", "kafka.group.id": "board"}).group_id == "own"


def test_options_without_effect_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_ignored(parse_sink(LEAST))
    warn_of_ignored(parse_sink(LEAST | {"kafka.linger.ms": "5"}))
    assert caplog.messages == ["Option has no effect here: kafka.linger.ms"]


def test_a_cluster_must_be_named() -> None:
    with pytest.raises(InvalidOption, match=r"kafka\.bootstrap\.servers' is missing"):
        parse_sink({"topic": "board", "checkpointLocation": "/c"})


def test_at_least_once_needs_no_checkpoint() -> None:
    given = {"kafka.bootstrap.servers": "broker:9092", "topic": "board", "delivery": "At-Least-Once"}
    assert parse_sink(given).delivery is Delivery.AT_LEAST_ONCE


def test_a_batch_write_has_no_checkpoint_and_a_timeout_for_a_job() -> None:
    given = {"kafka.bootstrap.servers": "broker:9092", "topic": "board"}
    assert parse_sink(given, streaming=False).transaction_timeout_ms == 900_000
    assert parse_sink(KafkaSink(bootstrap_servers="broker:9092").options, streaming=False).topic is None
    sink = KafkaSink(bootstrap_servers="broker:9092", transaction_timeout="2 minutes")
    assert parse_sink(sink.options, streaming=False).transaction_timeout_ms == 120_000
    for name in ("checkpointLocation", "group.id"):
        with pytest.raises(InvalidOption, match=f"'{name}' is not an option of the sink"):
            parse_sink({**given, name: "board"}, streaming=False)
    with pytest.raises(InvalidOption, match=r"save\('/out'\) has a path.*and save\(\)"):
        parse_sink({**given, "path": "/out"}, streaming=False)


def test_the_name_of_a_query_is_no_option_of_the_sink() -> None:
    given = {
        "kafka.bootstrap.servers": "broker:9092",
        "topic": "board",
        "checkpointLocation": "/c",
        "queryName": "late",
    }
    assert parse_sink(given).topic == "board"


HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def schema(**types: DataType) -> StructType:
    return StructType([StructField(name, of) for name, of in types.items()])


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        (
            {"value": StringType(), "price": DoubleType()},
            "board",
            r"'price' is not a column of the Kafka sink.*to_json",
        ),
        ({"value": DoubleType()}, "board", r"'value' is of type double\. Cast it to binary or string"),
        ({"value": StringType(), "partition": LongType()}, "board", r"'partition' is of type bigint\. Cast it to int"),
        ({"key": StringType()}, "board", r"The column 'value' is missing"),
        ({"value": StringType()}, None, r"The output topic is not set"),
        (
            {"value": StringType(), "timestamp": TimestampNTZType()},
            "board",
            r"timestamp_ntz\. Cast it to timestamp_ltz\.",
        ),
        ({"value": StringType(), "headers": MapType(StringType(), BinaryType())}, "board", r"'headers' is of type map"),
    ],
)
def test_columns_that_are_rejected(columns: dict[str, DataType], topic: str | None, message: str) -> None:
    options = parse_sink({k: v for k, v in {**LEAST, "topic": topic}.items() if v is not None})
    with pytest.raises(InvalidOption, match=message):
        check_output_schema(schema(**columns), options)


def test_columns_of_sparks_kafka_sink() -> None:
    columns = schema(
        key=BinaryType(),
        value=StringType(),
        topic=StringType(),
        partition=IntegerType(),
        headers=HEADERS,
        timestamp=TimestampType(),
    )
    check_output_schema(columns, parse_sink({k: v for k, v in LEAST.items() if k != "topic"}))
