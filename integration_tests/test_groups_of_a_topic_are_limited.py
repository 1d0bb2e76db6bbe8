"""G14: a query of a new group is rejected if the limit of groups reads its topic already."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streamgroups.errors import GroupRejected
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.admin.group_limit import GroupLimit
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import committed_offsets


def commit(bootstrap: str, group: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[KafkaTopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()


def test_G14_a_query_of_one_group_too_many_is_rejected(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str
) -> None:
    topic, other = new_topic(1), new_topic(1)
    for name, read in (("a", topic), ("a.streamgroups", topic), ("b", topic), ("c", other)):
        commit(bootstrap, f"{group}-{name}", read)

    def run(name: str, most: int) -> None:
        options = shared_options(bootstrap, name, topic) | {"maxGroupsPerTopic": str(most)}
        rows = spark.readStream.format("streamgroups").options(**options).load()
        query = rows.writeStream.format("noop").trigger(availableNow=True).start()
        try:
            query.awaitTermination(60)
        finally:
            query.stop()

    with pytest.raises(PySparkException, match=f"Topic '{topic}' is already read by 2 groups") as rejected:
        run(f"{group}-new", 2)
    for text in ("groups sweep", f"groups without members: {group}-a, {group}-b", "option 'maxGroupsPerTopic'"):
        assert text in str(rejected.value)
    assert committed_offsets(bootstrap, f"{group}-new", topic) == {}
    run(f"{group}-new", 3)

    config = ClientConfig.from_options({"bootstrap.servers": bootstrap})
    cluster = KafkaCluster(config)

    def check(name: str, most: int) -> None:
        GroupLimit(cluster, config, name, most).check([other, topic])

    check(f"{group}-new", 3)
    check(f"{group}-another", 4)
    with pytest.raises(GroupRejected, match=f"Topic '{topic}' is already read by 3 groups"):
        check(f"{group}-another", 3)
