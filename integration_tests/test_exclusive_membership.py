"""S4: a query with ``membership=exclusive`` is the only member of its group, owns all partitions, and is fenced as
other members are.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_offsets
from streamgroups_testkit.waits import wait_until


def start(spark: SparkSession, options: dict[str, str]) -> StreamingQuery:
    reader = spark.readStream.format("streamgroups").options(**options).load()
    if "membership" not in options:
        return reader.writeStream.format("noop").start()
    return reader.groupBy("partition").count().writeStream.format("noop").outputMode("complete").start()


def test_alone_or_not_at_all(spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, 10, partitions=2)
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "group.id": group,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    exclusive = {**options, "membership": "exclusive"}
    holder = start(spark, exclusive)
    try:
        wait_until(lambda: committed_offsets(bootstrap, group, topic) == {0: 5, 1: 5}, "it reads everything")
        for second in (exclusive, options):
            rejected = start(spark, second)
            with pytest.raises(StreamingQueryException, match=f"Group '{group}'.*exclusive"):
                rejected.awaitTermination(30)
        assert holder.isActive, "rejections do not disturb the owner"
        # A member of another client cannot be rejected. The exclusive query fails instead of losing the partitions of
        # its state.
        foreign = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "partition.assignment.strategy": "cooperative-sticky",
            }
        )
        foreign.subscribe([topic])
        try:
            wait_until(lambda: foreign.poll(0.1) or not holder.isActive, "the holder fails")
            with pytest.raises(StreamingQueryException, match="Another member joined"):
                holder.awaitTermination(1)
        finally:
            foreign.close()
    finally:
        holder.stop()
