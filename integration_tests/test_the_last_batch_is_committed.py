"""S2: a query that stops commits its last batch if and only if that batch is finished."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from integration_tests.tiers import LONG
from streamgroups_testkit.broker import Broker
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_offsets, describe_group, wait_until_group_is_empty
from streamgroups_testkit.waits import wait_until


@pytest.fixture
def options(bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path) -> dict[str, str]:
    topic = new_topic(2)
    produce(bootstrap, topic, 20, partitions=2)
    return {
        "kafka.bootstrap.servers": bootstrap,
        "group.id": group,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "check point"


def start(
    spark: SparkSession,
    options: dict[str, str],
    checkpoint: Path,
    write: Callable[[DataFrame, int], None],
    **trigger: Any,
) -> StreamingQuery:
    reader = spark.readStream.format("streamgroups").options(**options).load()
    writer = reader.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger).start()


def count(batch: DataFrame, _batch_id: int) -> None:
    batch.count()


def left_at(bootstrap: str, admin: AdminClient, options: dict[str, str]) -> dict[int, int]:
    """The committed offsets after the query's member has left."""
    wait_until_group_is_empty(admin, options["group.id"])
    return committed_offsets(bootstrap, options["group.id"], options["subscribe"])


@LONG
def test_once(
    spark: SparkSession, bootstrap: str, admin: AdminClient, options: dict[str, str], checkpoint: Path
) -> None:
    for done in (10, 15):
        assert start(spark, options, checkpoint, count, once=True).awaitTermination(60)
        assert left_at(bootstrap, admin, options) == {0: done, 1: done}
        produce(bootstrap, options["subscribe"], 10, partitions=2)


def test_what_is_available_now_leaves_no_lag(
    spark: SparkSession, kafka: Broker, admin: AdminClient, options: dict[str, str], checkpoint: Path
) -> None:
    assert start(spark, options, checkpoint, count, availableNow=True).awaitTermination(60)
    wait_until_group_is_empty(admin, options["group.id"])
    assert [row["LAG"] for row in describe_group(kafka, options["group.id"])] == ["0", "0"]


@LONG
def test_one_stops_between_two_triggers_and_the_other_repeats_nothing(
    spark: SparkSession, bootstrap: str, admin: AdminClient, options: dict[str, str], checkpoint: Path
) -> None:
    """Both are queries of one session and one group; the second starts after the first has left."""
    query = start(spark, options, checkpoint, count, processingTime="1 hour")
    wait_until((checkpoint / "commits" / "0").exists, "the first batch is done")
    query.stop()
    assert left_at(bootstrap, admin, options) == {0: 10, 1: 10}
    produce(bootstrap, options["subscribe"], 4, partitions=2)
    read: list[tuple[int, int]] = []

    def keep(batch: DataFrame, _batch_id: int) -> None:
        read.extend((row.partition, row.offset) for row in batch.collect())

    assert start(spark, options, checkpoint.with_name("other"), keep, availableNow=True).awaitTermination(60)
    assert sorted(read) == [(p, offset) for p in (0, 1) for offset in (10, 11)]


@LONG
def test_a_query_without_a_checkpoint_of_its_own(
    spark: SparkSession, bootstrap: str, admin: AdminClient, options: dict[str, str]
) -> None:
    """Spark creates a temporary checkpoint, and removes it as soon as the query stops."""
    reader = spark.readStream.format("streamgroups").options(**options).load()
    query = reader.writeStream.foreachBatch(count).trigger(processingTime="1 hour").start()
    done = Path(query._jsq.streamingQuery().resolvedCheckpointRoot().removeprefix("file:")) / "commits" / "0"
    wait_until(done.exists, "the first batch is done")
    query.stop()
    assert left_at(bootstrap, admin, options) == {0: 10, 1: 10}


def test_a_batch_that_failed_is_not_committed(
    spark: SparkSession, bootstrap: str, admin: AdminClient, options: dict[str, str], checkpoint: Path
) -> None:
    """The previous batch is committed."""

    def fail(batch: DataFrame, batch_id: int) -> None:
        batch.count()
        if batch_id == 1:
            raise RuntimeError("the sink is full")

    limited = options | {"maxOffsetsPerTrigger": "8"}
    with pytest.raises(StreamingQueryException, match="the sink is full"):
        start(spark, limited, checkpoint, fail, availableNow=True).awaitTermination(60)
    assert left_at(bootstrap, admin, options) == {0: 4, 1: 4}
