"""X2: Spark assigns rows to the partition of their key before the write; rows with a partition keep it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from streamgroups.errors import InvalidOption, UnknownTopic
from streamgroups_kafka.write.partitioner import partitions_of_keys
from streamgroups_spark.sinks.output_partitions import with_partitions

COUNTS = {"departures": 12, "arrivals": 3}
KEYS = [b"kafka", b"", None, *(str(i).encode() for i in range(50))]


def chosen(key: bytes | None, n_partitions: int) -> int | None:
    """The partitions of the function that other tests compare with Kafka's clients."""
    found: int | None = partitions_of_keys(pa.array([key], pa.binary()), n_partitions)[0].as_py()
    return found


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    assert frame.schema["partition"].dataType.simpleString() == "int"
    return [tuple(row) for row in frame.collect()]


def test_rows_of_one_topic(spark: SparkSession) -> None:
    rows = [(i, key) for i, key in enumerate(KEYS)]
    frame = spark.createDataFrame(rows, "number int, key binary")
    found = rows_of(with_partitions(frame, COUNTS, topic="departures"))
    assert sorted(found) == [(i, key, chosen(key, 12)) for i, key in rows]
    as_text = frame.selectExpr("number", "cast(key as string) key", "'arrivals' topic")
    found = rows_of(with_partitions(as_text, COUNTS, topic="departures").select("number", "partition"))
    assert sorted(found) == [(i, chosen(key, 12)) for i, key in rows]


def test_rows_of_several_topics_some_with_a_partition(spark: SparkSession) -> None:
    topics = ["departures", "arrivals"]
    rows = [(i, key, topics[i % 2], 7 if i % 5 == 0 else None) for i, key in enumerate(KEYS)]
    # A row with a partition or without a key may go to a topic with an unknown number of partitions.
    rows += [(100, b"key", "elsewhere", 99), (101, None, "elsewhere", None)]
    frame = spark.createDataFrame(rows, "number int, key binary, topic string, partition long")
    assert sorted(rows_of(with_partitions(frame, COUNTS))) == [
        (i, key, topic, given if given is not None else chosen(key, COUNTS.get(topic, 1)))
        for i, key, topic, given in rows
    ]


def test_rows_without_a_column_of_keys(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a",)], "value string")
    assert rows_of(with_partitions(frame, COUNTS, topic="arrivals")) == [("a", None)]


def test_invalid_rows_are_rejected(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(b"a", "elsewhere")], "key binary, topic string")
    with pytest.raises(UnknownTopic, match="'elsewhere'"):
        with_partitions(frame, COUNTS, topic="elsewhere")
    with pytest.raises(PythonException, match="The number of partitions of topic 'elsewhere' is not available"):
        with_partitions(frame, COUNTS).collect()
    with pytest.raises(InvalidOption, match="no column 'topic'"):
        with_partitions(frame.drop("topic"), COUNTS)
    with pytest.raises(InvalidOption, match="A topic cannot have 0 partitions"):
        with_partitions(frame, {"elsewhere": 0})
    with pytest.raises(InvalidOption, match="Column 'key' is of type int"):
        with_partitions(spark.createDataFrame([(1,)], "key int"), COUNTS, topic="arrivals")
