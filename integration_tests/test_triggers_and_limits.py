"""S4: limits per trigger, and all triggers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from integration_tests.tiers import LONG
from streamgroups_spark.internals.spark_api import FEATURES
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_offsets, wait_until_group_is_empty
from streamgroups_testkit.waits import wait_until


@pytest.fixture
def options(bootstrap: str, new_topic: Callable[..., str], group: str) -> dict[str, str]:
    topic = new_topic(4)
    produce(bootstrap, topic, 1_000, partitions=4)
    return {
        "kafka.bootstrap.servers": bootstrap,
        "group.id": group,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }


def run(spark: SparkSession, options: dict[str, str], checkpoint: Path, **trigger: Any) -> list[int]:
    """The number of records in each batch of a query that ends by itself."""
    sizes: list[int] = []

    def write(batch: DataFrame, _batch_id: int) -> None:
        sizes.append(batch.count())

    reader = spark.readStream.format("streamgroups").options(**options).load()
    query = (
        reader.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()
    )
    assert query.awaitTermination(90)
    if not FEATURES.passes_start:
        # The source commits the last batch when Spark ends its process, for which Spark does not wait.
        admin = AdminClient({"bootstrap.servers": options["kafka.bootstrap.servers"]})
        wait_until_group_is_empty(admin, options["group.id"])
    return [size for size in sizes if size]


def test_available_now_with_a_limit(
    spark: SparkSession, options: dict[str, str], bootstrap: str, tmp_path: Path
) -> None:
    sizes = run(spark, {**options, "maxOffsetsPerTrigger": "300"}, tmp_path, availableNow=True)
    assert sizes == ([300, 300, 300, 100] if FEATURES.passes_start else [1_000]), "one batch before Spark 4.2"
    topic = options["subscribe"]
    assert committed_offsets(bootstrap, options["group.id"], topic) == dict.fromkeys(range(4), 250), (
        "S2: the last batch too"
    )


@LONG
def test_once_lifts_the_limits(spark: SparkSession, options: dict[str, str], tmp_path: Path, bootstrap: str) -> None:
    assert run(spark, {**options, "maxOffsetsPerTrigger": "300"}, tmp_path, once=True) == [1_000]
    produce(bootstrap, options["subscribe"], 8, partitions=4)
    assert run(spark, options, tmp_path, once=True) == [8]


@LONG
@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"minPartitions": "8"}, [125] * 8),
        ({"maxRecordsPerPartition": "100"}, [83] * 8 + [84] * 4),
    ],
)
def test_tasks_that_share_a_partition(
    spark: SparkSession, options: dict[str, str], tmp_path: Path, option: dict[str, str], expected: list[int]
) -> None:
    tasks: list[list[int]] = []

    def write(batch: DataFrame, _batch_id: int) -> None:
        counts = batch.groupBy(F.spark_partition_id().alias("task")).count()
        tasks.append(sorted(row["count"] for row in counts.collect()))

    reader = spark.readStream.format("streamgroups").options(**options, **option).load()
    writer = reader.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path))
    assert writer.trigger(availableNow=True).start().awaitTermination(90)
    assert [batch for batch in tasks if batch] == [expected]


@LONG
def test_min_offsets_wait_for_more_or_for_time(spark: SparkSession, options: dict[str, str], bootstrap: str) -> None:
    sizes: list[int] = []
    limits = {"minOffsetsPerTrigger": "500", "maxTriggerDelay": "3s"}
    query = (
        spark.readStream.format("streamgroups")
        .options(**options, **limits)
        .load()
        .writeStream.foreachBatch(lambda batch, _: sizes.append(batch.count()))
        .start()
    )
    try:
        wait_until(lambda: sizes[-1:] == [1_000], "the first batch does not wait")
        produce(bootstrap, options["subscribe"], 499, partitions=4)
        produce(bootstrap, options["subscribe"], 10, partitions=4)
        wait_until(lambda: sum(sizes) == 1_509, "more than the least is read")
        produce(bootstrap, options["subscribe"], 5, partitions=4)
        wait_until(lambda: sum(sizes) == 1_514, "less is read when the delay has passed")
    finally:
        query.stop()


def test_processing_time_commits_within_a_trigger(spark: SparkSession, options: dict[str, str], bootstrap: str) -> None:
    query = (
        spark.readStream.format("streamgroups")
        .options(**options)
        .load()
        .writeStream.format("noop")
        .trigger(processingTime="1 second")
        .start()
    )
    topic = options["subscribe"]
    try:
        wait_until(
            lambda: committed_offsets(bootstrap, options["group.id"], topic) == dict.fromkeys(range(4), 250),
            "S2: it is committed",
        )
        assert query.lastProgress is not None
        if not FEATURES.passes_start:
            # Before Spark 4.2 a source in Python does not report its end offsets.
            return
        latest = json.loads(query.lastProgress["sources"][0]["latestOffset"])
        assert latest["group"] == options["group.id"]
        assert latest["end"] == {topic: {str(p): 250 for p in range(4)}}
    finally:
        query.stop()


def test_only_the_selected_columns(spark: SparkSession, options: dict[str, str]) -> None:
    del options["startingOffsets"]
    narrow = spark.read.format("streamgroups").options(**options).schema("value binary, offset long").load()
    assert narrow.columns == ["value", "offset"]
    assert narrow.count() == 1_000
