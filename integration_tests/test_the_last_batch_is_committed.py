"""S2: a query that knows its checkpoint commits its last batch when it stops, if that batch is done and only then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from integration_tests.harness import committed, produce, wait_until, wait_until_empty


@pytest.fixture
def options(bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path) -> dict[str, str]:
    topic = new_topic(2)
    produce(bootstrap, topic, 20, partitions=2)
    return {
        "kafka.bootstrap.servers": bootstrap,
        "group.id": group,
        "subscribe": topic,
        "startingPosition": "TRIM_HORIZON",
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }


def start(
    spark: SparkSession, options: dict[str, str], write: Callable[[DataFrame, int], None], **trigger: Any
) -> StreamingQuery:
    reader = spark.readStream.format("streamgroups").options(**options).load()
    writer = reader.writeStream.foreachBatch(write).option("checkpointLocation", options["checkpointLocation"])
    return writer.trigger(**trigger).start()


def count(batch: DataFrame, _batch_id: int) -> None:
    batch.count()


def left_at(bootstrap: str, admin: AdminClient, options: dict[str, str]) -> dict[int, int]:
    """What is committed when the query's member has left."""
    wait_until_empty(admin, options["group.id"])
    return committed(bootstrap, options["group.id"], options["subscribe"])


def test_once(spark: SparkSession, bootstrap: str, admin: AdminClient, options: dict[str, str]) -> None:
    for done in (10, 15):
        assert start(spark, options, count, once=True).awaitTermination(60)
        assert left_at(bootstrap, admin, options) == {0: done, 1: done}
        produce(bootstrap, options["subscribe"], 10, partitions=2)


def test_stopped_between_two_triggers(
    spark: SparkSession, bootstrap: str, admin: AdminClient, options: dict[str, str]
) -> None:
    query = start(spark, options, count, processingTime="1 hour")
    commits = Path(options["checkpointLocation"]) / "commits" / "0"
    wait_until(commits.exists, "the first batch is done")
    query.stop()
    assert left_at(bootstrap, admin, options) == {0: 10, 1: 10}


def test_a_batch_that_failed_is_not_committed(
    spark: SparkSession, bootstrap: str, admin: AdminClient, options: dict[str, str]
) -> None:
    def fail(batch: DataFrame, _batch_id: int) -> None:
        batch.count()
        raise RuntimeError("the sink is full")

    with pytest.raises(StreamingQueryException, match="the sink is full"):
        start(spark, options, fail, once=True).awaitTermination(60)
    assert left_at(bootstrap, admin, options) == {0: 0, 1: 0}
