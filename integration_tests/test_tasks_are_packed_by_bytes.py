"""Tasks receive about the same number of bytes, not of records, if the broker reports the size of records."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id

from streamgroups.partitions import TopicPartition
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_testkit.producing import produce


def test_a_partition_of_large_records_has_a_task_to_itself(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(4)
    produce(bootstrap, topic, 400, partitions=4)
    # Twenty more records in partition 0, of half a megabyte each.
    produce(bootstrap, topic, 20, partitions=1, size_bytes=500_000)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    rows = (
        spark.read.format("streamgroups")
        .options(**options)
        .load()
        .select("partition", spark_partition_id().alias("task"))
        .distinct()
        .collect()
    )
    tasks: dict[int, set[int]] = {}
    for row in rows:
        tasks.setdefault(row.task, set()).add(row.partition)
    assert sorted(tasks.values(), key=len) == [{0}, {1, 2, 3}]


def test_sizes_are_the_brokers_and_what_is_not_there_has_none(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, 100, partitions=1, size_bytes=10_000)
    cluster = KafkaCluster(ClientConfig.from_options({"bootstrap.servers": bootstrap}))
    large, empty, missing = (TopicPartition(topic, n) for n in (0, 1, 7))
    stored = cluster.stored_bytes([large, empty, missing])
    assert stored.keys() == {large, empty}
    assert 1_000_000 < stored[large] < 1_100_000
    assert stored[empty] == 0


def test_a_broker_that_does_not_report_sizes() -> None:
    unprivileged = KafkaCluster(ClientConfig.from_options({"bootstrap.servers": "127.0.0.1:1"}))
    assert unprivileged.stored_bytes([TopicPartition("flights", 0)]) == {}
