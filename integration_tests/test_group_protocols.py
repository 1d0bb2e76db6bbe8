"""G1: the group protocol of KIP-848 works on brokers that support it. On older ones it is rejected, and the error names it.

``make test-matrix`` also runs this on Kafka 3.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from streamgroups.errors import GroupRejected
from streamgroups_broker import EmbeddedKafka
from streamgroups_broker._releases import is_kafka_3
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_testkit.broker import Broker
from streamgroups_testkit.producing import produce
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.session_queries import running_query
from streamgroups_testkit.waits import wait_until


def test_the_consumer_protocol_is_supported_or_rejected(kafka: Broker) -> None:
    config = ClientConfig.from_options({"bootstrap.servers": kafka.bootstrap_servers, "group.protocol": "consumer"})
    cluster = KafkaCluster(config)
    if isinstance(kafka, EmbeddedKafka) and is_kafka_3(kafka.version):
        with pytest.raises(GroupRejected, match=r"consumer' \(KIP-848\)\. Upgrade the brokers to Kafka 4\.0"):
            cluster.check_reachable()
    else:
        cluster.check_reachable()


def test_the_classic_protocol_shares_a_topic(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(2)
    options = shared_options(bootstrap, group, topic, "classic")
    cluster = KafkaCluster(ClientConfig.from_options({"bootstrap.servers": bootstrap}))
    with running_query(spark, options) as one, running_query(spark, options) as other:
        wait_until(lambda: len(set(cluster.describe(group).owners.values())) == 2, "each query owns a partition")
        produce(bootstrap, topic, 10, partitions=2)
        wait_until(lambda: len(one.records) + len(other.records) == 10, "all records arrive")
    assert len(one.records) == len(other.records) == 5
