"""O1, O3: on a real broker the administration of groups and topics does what it does in memory."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient
from kafka.protocol.consumer import OffsetFetchRequest

from integration_tests.harness import wait_until
from streamgroups.groups.lag import NothingUnread, Unread
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed, GroupAdmin, TopicAdmin
from streamgroups.survey import survey
from streamgroups_kafka.admin_session import AdminSession
from streamgroups_kafka.command_config import command_config
from streamgroups_kafka.groups_admin import KafkaGroupAdmin
from streamgroups_kafka.topics_admin import KafkaTopicAdmin
from unit_tests.admin_contract import AdminContract


class RealCluster:
    """An :class:`~unit_tests.admin_contract.Outside` of a real broker."""

    def __init__(
        self, bootstrap: str, admin: AdminClient, new_topic: Callable[..., str], session: AdminSession
    ) -> None:
        self._bootstrap, self._admin, self._new_topic = bootstrap, admin, new_topic
        self._groups, self._topics = KafkaGroupAdmin(session), KafkaTopicAdmin(session, command_config(bootstrap))
        self.protocol = "classic"

    @property
    def groups(self) -> GroupAdmin:
        return self._groups

    @property
    def topics(self) -> TopicAdmin:
        return self._topics

    def create_topic(self, partitions: int) -> str:
        # Records of the tests are from 1970: no retention.
        return self._new_topic(partitions, retention_ms="-1")

    def produce(self, topic_partition: TopicPartition, count: int, *, timestamp_ms: int) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap})
        for i in range(count):
            producer.produce(topic_partition.topic, str(i), partition=topic_partition.partition, timestamp=timestamp_ms)
        assert producer.flush(30) == 0

    def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> None:
        tp = KafkaTopicPartition(topic_partition.topic, topic_partition.partition, before_offset)
        self._admin.delete_records([tp])[tp].result(30)

    def new_group(self) -> str:
        return f"g-{uuid.uuid4().hex[:8]}"

    @contextmanager
    def member_of(self, group_id: str, topic: str) -> Iterator[None]:
        member = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group_id,
                "client.id": "alice",
                "group.protocol": self.protocol,
                "enable.auto.commit": "false",
            }
        )
        member.subscribe([topic])

        def settled() -> bool:
            member.poll(0.1)
            group = self._groups.describe_groups([group_id])[group_id]
            return group.state == "Stable" and any(m.partitions for m in group.members)

        try:
            wait_until(settled, "the member has joined")
            yield
        finally:
            member.close()


@pytest.fixture(scope="module")
def session(bootstrap: str) -> Iterator[AdminSession]:
    opened = AdminSession(command_config(bootstrap), timeout_s=30)
    yield opened
    opened.close()


@pytest.fixture
def outside(bootstrap: str, admin: AdminClient, new_topic: Callable[..., str], session: AdminSession) -> RealCluster:
    return RealCluster(bootstrap, admin, new_topic, session)


class TestKafkaAdmin(AdminContract):
    pass


def test_O1_members_of_the_new_protocol_are_seen_too(outside: RealCluster) -> None:
    topic, group = outside.create_topic(2), outside.new_group()
    outside.protocol = "consumer"
    with outside.member_of(group, topic):
        described = outside.groups.describe_groups([group])[group]
        assert (described.type, described.state, described.assignor) == ("consumer", "Stable", "uniform")
        (member,) = described.members
        assert (member.client_id, len(member.partitions)) == ("alice", 2)
    described = outside.groups.describe_groups([group])[group]
    assert (described.type, described.state) == ("consumer", "Empty")
    # Kafka lets a tool move an empty group of either protocol.
    assert outside.groups.alter_offsets(group, {TopicPartition(topic, 0): Committed(0)}) == {}


def test_metadata_comes_as_it_was_meant(outside: RealCluster, bootstrap: str, session: AdminSession) -> None:
    """confluent-kafka commits one NUL more than it was given; a change that is undone would write that down for good."""
    topic, group = outside.create_topic(1), outside.new_group()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[KafkaTopicPartition(topic, 0, 3, "streamgroups:shared")], asynchronous=False)
    consumer.close()

    async def as_it_is_stored() -> str:
        (node,) = await session.coordinators([group])
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
        answer = await session.send(OffsetFetchRequest(groups=[asked], min_version=8, max_version=9), node)
        return str(answer.groups[0].topics[0].partitions[0].metadata)

    assert session.run("What is stored", as_it_is_stored) == "streamgroups:shared\0"
    found = outside.groups.committed_offsets([group])[group]
    assert found == {TopicPartition(topic, 0): Committed(3, "streamgroups:shared")}


def test_O3_G13_a_transaction_marker_at_the_end_is_no_lag(outside: RealCluster, bootstrap: str) -> None:
    topic, group = outside.create_topic(1), outside.new_group()
    tp = TopicPartition(topic, 0)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{uuid.uuid4().hex[:8]}"})
    producer.init_transactions(30)
    for _ in range(2):
        producer.begin_transaction()
        producer.produce(topic, b"x", partition=0)
        producer.commit_transaction(30)
    # record, marker, record, marker
    outside.groups.alter_offsets(group, {tp: Committed(3)})
    (caught_up,) = survey(outside.groups, outside.topics, [group])
    assert (caught_up.records, caught_up.lags[0].first_unread) == (0, NothingUnread())
    outside.groups.alter_offsets(group, {tp: Committed(1)})
    (behind,) = survey(outside.groups, outside.topics, [group])
    first = behind.lags[0].first_unread
    assert isinstance(first, Unread)
    assert (first.offset, behind.records) == (2, 2)
