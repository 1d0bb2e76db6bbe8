"""A query continues to read its group after the coordinator of the group has moved to another broker.

Without it no reset would be applied. Source: librdkafka 2.16, whose admin client keeps the coordinator of a group.
"""

from __future__ import annotations

from contextlib import closing

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_broker import EmbeddedKafka
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.admin.groups import KafkaGroupAdmin
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_testkit.waits import wait_until

GROUP = "billing"


def _coordinator(bootstrap: str) -> int | None:
    """The coordinator that a new client finds, or ``None`` while it is not ready."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        found = admin.describe_consumer_groups([GROUP], request_timeout=10)[GROUP].result(10)
    except KafkaException:
        return None
    return int(found.coordinator.id)


def test_a_group_is_described_after_its_coordinator_has_moved() -> None:
    with EmbeddedKafka(nodes=3) as kafka:
        bootstrap = kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("flights", 1, 3)], operation_timeout=30)["flights"].result(30)
        config = ClientConfig.from_options({"bootstrap.servers": bootstrap})
        with closing(AdminSession(config)) as session:
            KafkaGroupAdmin(session).alter_offsets(GROUP, {TopicPartition("flights", 0): Committed(0)})
        cluster = KafkaCluster(config)
        assert cluster.describe(GROUP).state == "Empty"
        first = _coordinator(bootstrap)
        assert first is not None
        kafka.kill_node(first)
        kafka.restart_node(first)
        wait_until(lambda: _coordinator(bootstrap) not in (None, first), "the coordinator has moved")
        assert cluster.describe(GROUP).state == "Empty"
