"""G17: a real broker denies one topic, and a leader changes between two brokers that live. Without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import ElectionType, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from integration_tests.real_cluster import RealCluster
from streamgroups.partitions import TopicPartition
from streamgroups_broker import EmbeddedKafka
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_testkit.producing import produce
from streamgroups_testkit.topics import create_topic
from streamgroups_testkit.waits import wait_until
from unit_tests.error_contract import ErrorContract

#: Raised inside librdkafka's binding, which has no other interface to read subscriptions.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The rules of a topic apply only to that topic.
    "allow.everyone.if.no.acl.found": "true",
}


class DenyingCluster(RealCluster):
    """A real broker that can deny access to a topic."""

    def __init__(self, bootstrap: str, admin: AdminClient, new_topic: Callable[..., str]) -> None:
        super().__init__(bootstrap, admin, new_topic)
        self._acls = admin

    def deny(self, topic: str) -> None:
        operation, deny = AclOperation.DESCRIBE, AclPermissionType.DENY
        literal = ResourcePatternType.LITERAL
        rule = AclBinding(ResourceType.TOPIC, topic, literal, "User:ANONYMOUS", "*", operation, deny)
        self._acls.create_acls([rule])[rule].result(30)
        wait_until(lambda: topic not in self._acls.list_topics(timeout=30).topics, "the rule applies")


@pytest.fixture(scope="module")
def denying_broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(properties=AUTHORIZER) as kafka:
        yield kafka


@pytest.fixture
def outside(denying_broker: EmbeddedKafka) -> Iterator[DenyingCluster]:
    admin = AdminClient({"bootstrap.servers": denying_broker.bootstrap_servers})

    def new_topic(partitions: int, **_: str) -> str:
        topic = f"t-{uuid.uuid4().hex[:8]}"
        create_topic(admin, topic, partitions)
        return topic

    with closing(DenyingCluster(denying_broker.bootstrap_servers, admin, new_topic)) as real:
        yield real


class TestErrorsOfABroker(ErrorContract):
    pass


class TestErrorsOfTheCommandLine(ErrorContract):
    """The metadata store of the command line."""

    @pytest.fixture
    def outside(self, outside: DenyingCluster) -> DenyingCluster:
        outside.swap_metadata_stores()
        return outside


@pytest.mark.long
def test_G17_end_offsets_follow_an_election_between_brokers_that_live() -> None:
    """The former leader lives and responds with an error, so librdkafka keeps it as the leader."""
    p0 = TopicPartition("flights", 0)
    with EmbeddedKafka(nodes=3) as kafka:
        bootstrap = kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("flights", 1, replica_assignment=[[2, 3]])])["flights"].result(30)
        produce(bootstrap, "flights", 1, partitions=1)
        cluster = KafkaCluster(ClientConfig.from_options({"bootstrap.servers": bootstrap}))

        def is_led_by(node: int, in_sync: int) -> bool:
            # A client of its own: the metadata of the tested one must not be refreshed.
            found = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
            try:
                partition = found.list_topics("flights", timeout=20).topics["flights"].partitions[0]
            except KafkaException:
                return False
            return partition.leader == node and len(partition.isrs) == in_sync

        kafka.kill_node(2)
        wait_until(lambda: is_led_by(3, 1), "node 3 is the leader")
        assert cluster.end_offsets([p0]) == {p0: 1}
        kafka.restart_node(2)
        wait_until(lambda: is_led_by(3, 2), "node 2 has caught up")
        assert cluster.end_offsets([p0]) == {p0: 1}
        elected = admin.elect_leaders(ElectionType.PREFERRED, [KafkaPartition("flights", 0)]).result(30)
        assert all(error is None or error.code() == 0 for error in elected.values())
        wait_until(lambda: is_led_by(2, 2), "node 2 is the leader")
        assert cluster.end_offsets([p0]) == {p0: 1}
        assert cluster.beginning_offsets([p0]) == {p0: 0}
        assert cluster.offsets_at_times({p0: 0}) == {p0: 0}
