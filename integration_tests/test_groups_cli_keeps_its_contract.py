"""O1, O3: on a real broker the administration of groups and topics does the same as in memory."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient
from kafka.protocol.consumer import OffsetFetchRequest

from integration_tests.real_cluster import RealCluster
from streamgroups.groups.lag import NoLag
from streamgroups.monitoring.snapshots import survey
from streamgroups.partitions import StampedOffset, TopicPartition
from streamgroups.ports import Committed
from streamgroups_kafka.admin.stored_records import first_records
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.waits import wait_until
from unit_tests.admin_contract import AdminContract


@pytest.fixture
def outside(bootstrap: str, admin: AdminClient, new_topic: Callable[..., str]) -> Iterator[RealCluster]:
    with closing(RealCluster(bootstrap, admin, new_topic)) as real:
        yield real


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
    # Kafka permits tools to reset an empty group with either protocol.
    assert outside.groups.alter_offsets(group, {TopicPartition(topic, 0): Committed(0)}) == {}


def test_metadata_comes_as_it_was_meant(outside: RealCluster, bootstrap: str) -> None:
    """confluent-kafka adds a NUL to the metadata that it commits. An undone change would store it permanently."""
    topic, group = outside.create_topic(1), outside.new_group()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[KafkaTopicPartition(topic, 0, 3, "streamgroups:shared")], asynchronous=False)
    consumer.close()

    async def as_it_is_stored() -> str:
        (node,) = await outside.session.coordinators([group])
        requested = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
        answer = await outside.session.send(OffsetFetchRequest(groups=[requested], min_version=8, max_version=9), node)
        return str(answer.groups[0].topics[0].partitions[0].metadata)

    assert outside.session.run("What is stored", as_it_is_stored) == "streamgroups:shared\0"
    found = outside.groups.committed_offsets([group])[group]
    assert found == {TopicPartition(topic, 0): Committed(3, "streamgroups:shared")}


def test_O3_G13_a_transaction_marker_is_no_lag(outside: RealCluster, bootstrap: str) -> None:
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
    assert (caught_up.records, caught_up.lags[0].first_record_of_lag) == (0, NoLag())
    outside.groups.alter_offsets(group, {tp: Committed(1)})
    (behind,) = survey(outside.groups, outside.topics, [group])
    first = behind.lags[0].first_record_of_lag
    assert isinstance(first, StampedOffset)
    assert (first.offset, behind.records, behind.is_exact) == (2, 1, True)


def _transaction(bootstrap: str, topic: str, values: list[bytes], end: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{uuid.uuid4().hex[:8]}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, key=b"k", partition=0)
    assert producer.flush(30) == 0
    if end == "commit":
        producer.commit_transaction(30)
    elif end == "abort":
        producer.abort_transaction(30)
    return producer


def test_O3_lag_counts_what_a_reader_of_committed_records_gets(outside: RealCluster, bootstrap: str) -> None:
    topic, group = outside.create_topic(1), outside.new_group()
    tp = TopicPartition(topic, 0)
    outside.produce(tp, 3, timestamp_ms=1_000)
    _transaction(bootstrap, topic, [b"a"] * 4, "abort")
    _transaction(bootstrap, topic, [b"c"] * 2, "commit")
    outside.produce(tp, 1, timestamp_ms=1_000)
    open_ = _transaction(bootstrap, topic, [b"o"] * 5, "stay")
    outside.produce(tp, 2, timestamp_ms=1_000)
    outside.groups.alter_offsets(group, {tp: Committed(1)})
    (found,) = survey(outside.groups, outside.topics, [group])
    # 2 of the first 3, none of the aborted 4, both of the committed 2, and 1; then 5 of an open transaction, and 2
    # after them.
    assert (found.records, found.open_records, found.is_exact) == (5, 7, True)
    (bound,) = survey(outside.groups, outside.topics, [group], count_bytes=0, reads=0)
    assert (bound.records, bound.open_records, bound.is_exact) == (18, None, False)
    open_.commit_transaction(30)
    (found,) = survey(outside.groups, outside.topics, [group])
    assert (found.records, found.open_records, found.is_exact) == (12, 0, True)
    # Kafka's own reader of committed records returns the same number.
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"})
    reader.assign([KafkaTopicPartition(topic, 0, 1)])
    got: list[Message] = []

    def all_read() -> bool:
        got.extend(m for m in reader.consume(100, 0.2) if m.error() is None)
        return len(got) >= 12

    wait_until(all_read, "12 records")
    reader.close()
    assert len(got) == 12


def test_G13_gaps_of_compaction_in_the_middle_are_no_lag(
    outside: RealCluster, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic, group = (
        new_topic(1, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01"),
        outside.new_group(),
    )
    tp = TopicPartition(topic, 0)
    producer = ordered_producer(bootstrap)
    for i in range(6):
        producer.produce(topic, str(i), key=b"k", partition=0)
        assert producer.flush(30) == 0
    outside.groups.alter_offsets(group, {tp: Committed(0)})

    def lag() -> tuple[int | None, bool]:
        # The active segment is never compacted; each of these records closes the previous segment.
        producer.produce(topic, b"x", key=b"other", partition=0)
        assert producer.flush(30) == 0
        (found,) = survey(outside.groups, outside.topics, [group])
        return found.records, found.is_exact

    def is_compacted() -> bool:
        records, is_exact = lag()
        end = outside.topics.bounds([tp])[tp].end_offset  # type: ignore[union-attr]
        return is_exact and records is not None and records <= end - 5

    wait_until(is_compacted, "five of six records of one key are gone", interval_s=0.2)


def test_the_first_record_of_each_of_many_partitions_is_found_behind_large_batches(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(40)
    partitions = [TopicPartition(topic, partition) for partition in range(40)]
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 500})
    for tp in partitions:
        for number in range(8):
            producer.produce(tp.topic, os.urandom(100_000), partition=tp.partition, timestamp=1_000 + number)
    assert producer.flush(60) == 0
    config = ClientConfig.from_options({"bootstrap.servers": bootstrap})
    found = first_records(config, dict.fromkeys(partitions, 7))
    assert found == dict.fromkeys(partitions, StampedOffset(7, 1_007))
