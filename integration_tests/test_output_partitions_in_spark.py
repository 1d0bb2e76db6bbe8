"""X2: Spark assigns rows to the partition of their key, and each partition to one task; rows with a partition keep it."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from streamgroups.errors import InvalidOption, UnknownTopic
from streamgroups_kafka.write.partitioner import partitions_of_keys
from streamgroups_spark.sinks import exactly_once
from streamgroups_spark.sinks.exactly_once import disjoint
from streamgroups_spark.sinks.output_partitions import with_partitions
from streamgroups_spark.sinks.sink_options import SinkOptions, parse_sink

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


# ---- the tasks that write ----------------------------------------------------------------------------------------------

#: Spark's ``hash`` of it is 287 below the largest int.
LARGE_HASH = b"9103456"


def options_of(topic: str | None) -> SinkOptions:
    given = {"kafka.bootstrap.servers": "broker:9092", **({} if topic is None else {"topic": topic})}
    return parse_sink(given, streaming=False)


def tasks_of_partitions(frame: DataFrame, *keys: str) -> dict[tuple[Any, ...], set[int]]:
    """The tasks that write the rows of each partition."""
    found: defaultdict[tuple[Any, ...], set[int]] = defaultdict(set)
    for *of, task in frame.select(*keys, F.spark_partition_id()).collect():
        found[tuple(of)].add(task)
    return dict(found)


@pytest.mark.parametrize("tasks", [2, 3, 8])
def test_each_task_writes_as_many_partitions_as_the_others(spark: SparkSession, monkeypatch: Any, tasks: int) -> None:
    monkeypatch.setattr(exactly_once, "parallelism_of", lambda _: tasks)
    frame = spark.range(0, 5_000, 1, 3).selectExpr("cast(id AS string) AS key", "'a' AS value")
    of = tasks_of_partitions(disjoint(frame, options_of("wide"), {"wide": 24}, with_letters=False), "partition")
    assert len(of) == 24
    assert {len(it) for it in of.values()} == {1}, "one task writes a partition"
    assert set(Counter(task for [task] in of.values()).values()) == {24 // tasks}


def test_the_partitions_of_several_topics_are_divided_evenly(spark: SparkSession, monkeypatch: Any) -> None:
    monkeypatch.setattr(exactly_once, "parallelism_of", lambda _: 5)
    topics = "elt(id % 2 + 1, 'departures', 'arrivals') AS topic"
    frame = spark.range(0, 5_000, 1, 3).selectExpr("cast(id AS string) AS key", "'a' AS value", topics)
    of = tasks_of_partitions(disjoint(frame, options_of(None), COUNTS, with_letters=False), "topic", "partition")
    assert len(of) == 15
    assert set(Counter(task for [task] in of.values()).values()) == {3}


def test_one_task_needs_no_shuffle(spark: SparkSession, monkeypatch: Any) -> None:
    monkeypatch.setattr(exactly_once, "parallelism_of", lambda _: 1)
    frame = spark.range(0, 100, 1, 3).selectExpr("cast(id AS string) AS key", "'a' AS value")
    one = disjoint(frame, options_of("wide"), {"wide": 24}, with_letters=False)
    assert one.columns == ["key", "value"], "the task chooses the partitions"
    assert {row[0] for row in one.select(F.spark_partition_id()).collect()} == {0}


def test_rows_with_the_largest_hashes_and_partitions(spark: SparkSession, monkeypatch: Any) -> None:
    """In ANSI mode, a sum of ints beyond their range would end the query, and each restart would end too."""
    monkeypatch.setattr(exactly_once, "parallelism_of", lambda _: 2)
    value = spark.range(0, 300, 1, 300).select(
        F.lit(None).cast("string").alias("key"), F.lit(LARGE_HASH).alias("value")
    )
    assert disjoint(value, options_of("departures"), COUNTS, with_letters=False).count() == 300
    partitions = "IF(id = 0, 2147483647, -2147483648) AS partition"
    rows = spark.range(2).selectExpr("'a' AS value", "'departures' AS topic", partitions)
    found = disjoint(rows, options_of(None), COUNTS, with_letters=True)
    assert sorted(row.dead_letter.error for row in found.collect()) == ["The topic has no such partition."] * 2
