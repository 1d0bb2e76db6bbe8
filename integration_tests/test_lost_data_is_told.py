"""S7: records that are gone before they were read are never passed over in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from integration_tests.harness import produce, wait_until


def run(spark: SparkSession, options: dict[str, str], checkpoint: Path) -> list[int]:
    """The offsets read by a query that ends by itself."""
    offsets: list[int] = []

    def write(batch: DataFrame, _batch_id: int) -> None:
        offsets.extend(r.offset for r in batch.select("offset").collect())

    reader = spark.readStream.format("streamgroups").options(**options).load()
    query = reader.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    assert query.trigger(availableNow=True).start().awaitTermination(90)
    return offsets


@pytest.fixture
def options(bootstrap: str, group: str, new_topic: Callable[..., str]) -> dict[str, str]:
    topic = new_topic(1)
    produce(bootstrap, topic, 10, partitions=1)
    return {
        "kafka.bootstrap.servers": bootstrap,
        "group.id": group,
        "subscribe": topic,
        "startingPosition": "TRIM_HORIZON",
    }


def test_deleted_records(
    spark: SparkSession, admin: AdminClient, bootstrap: str, options: dict[str, str], tmp_path: Path
) -> None:
    topic = options["subscribe"]
    assert run(spark, options, tmp_path) == list(range(10))
    produce(bootstrap, topic, 10, partitions=1)
    deleted = confluent_kafka.TopicPartition(topic, 0, 15)
    for future in admin.delete_records([deleted]).values():
        future.result(30)
    with pytest.raises(
        StreamingQueryException, match=rf"{topic}-0\[10,20\) was to be read, but .* now holds \[15, 20\)"
    ):
        run(spark, options, tmp_path)
    assert run(spark, {**options, "failOnDataLoss": "false"}, tmp_path) == list(range(15, 20))


def test_topic_made_anew(
    spark: SparkSession,
    admin: AdminClient,
    bootstrap: str,
    options: dict[str, str],
    tmp_path: Path,
    new_topic: Callable[..., str],
) -> None:
    topic = options["subscribe"]
    assert run(spark, options, tmp_path) == list(range(10))
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic is gone")
    new_topic(1, name=topic)
    produce(bootstrap, topic, 4, partitions=1)
    # Kafka drops a topic's committed offsets with it; the checkpoint still knows better.
    with pytest.raises(StreamingQueryException, match="deleted and made again"):
        run(spark, options, tmp_path)
    assert run(spark, {**options, "failOnDataLoss": "false"}, tmp_path) == list(range(4))
