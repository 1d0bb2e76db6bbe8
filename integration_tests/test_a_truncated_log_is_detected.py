"""S7: an unclean leader election truncates a log behind the position of a query, and the log grows past it.

A client of a task has fetched records that nothing has read yet, and so has that of a cursor. After the election, other
records have their offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import streamgroups as sg
from integration_tests.tiers import LONG
from streamgroups.coordination.reset_protocol import gaps_group_of
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.groups.gaps import Gaps
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_broker import EmbeddedKafka
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.read.fetcher import ReadSettings
from streamgroups_kafka.read.range_reader import read_ranges
from streamgroups_testkit.reading import committed_metadata
from streamgroups_testkit.waits import wait_until

TOPIC = "flights"
PARTITION = TopicPartition(TOPIC, 0)
_T = TypeVar("_T")


def result(request: Callable[[], _T], what: str) -> _T:
    """Repeats a request until it succeeds."""
    found: list[_T] = []

    def succeeds() -> bool:
        try:
            found.append(request())
        except KafkaException:
            return False
        return True

    wait_until(succeeds, what)
    return found[-1]


def produce(bootstrap: str, name: str, count: int) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 90_000})
    for i in range(count):
        producer.produce(TOPIC, f"{name}{i}", partition=0, on_delivery=lambda e, _: failed.append(e) if e else None)
    assert (producer.flush(90), failed) == (0, [])


def run(spark: SparkSession, options: dict[str, str], checkpoint: Path) -> list[str]:
    """The values that a query reads until it ends by itself."""
    values: list[str] = []

    def write(batch: DataFrame, _batch_id: int) -> None:
        values.extend(bytes(r.value).decode() for r in batch.select("value").collect())

    reader = spark.readStream.format("streamgroups").options(**options).load()
    query = reader.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    assert query.trigger(availableNow=True).start().awaitTermination(150)
    return values


def read(bootstrap: str, next_offset: int, end_offset: int, leader_epoch: int) -> list[str]:
    """The values of a range, as a task reads it."""
    client = ClientConfig.from_options({"bootstrap.servers": bootstrap})
    settings = ReadSettings(client, "reader", leader_epochs={PARTITION: leader_epoch})
    ranges = [OffsetRange(PARTITION, next_offset, end_offset)]
    batches = read_ranges(ranges, pa.schema([("value", pa.binary())]), settings)
    return [it.as_py().decode() for batch in batches for it in batch["value"]]


def values(name: str, count: int) -> list[str]:
    return [f"{name}{i}" for i in range(count)]


@LONG
def test_S7_records_in_the_place_of_others_that_were_read(spark: SparkSession, tmp_path: Path) -> None:
    settings = {"unclean.leader.election.enable": "true"}
    with ExitStack() as stack:
        kafka = stack.enter_context(EmbeddedKafka(nodes=3, properties=settings))
        bootstrap = kafka.bootstrap_servers
        cursors = stack.enter_context(closing(sg.cursors.GroupCursors(bootstrap)))
        admin = AdminClient({"bootstrap.servers": bootstrap})

        def in_sync() -> set[int]:
            described = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
            return set(described[0].isrs) if described else set()

        topic = NewTopic(TOPIC, 1, replica_assignment=[[2, 3]], config=settings)
        result(lambda: admin.create_topics([topic])[TOPIC].result(30), "the topic")
        produce(bootstrap, "a", 10)
        result(lambda: wait_until(lambda: in_sync() == {2, 3}, "both replicas", 60), "both replicas")
        kafka.kill_node(3)
        result(lambda: wait_until(lambda: in_sync() == {2}, "one replica", 60), "one replica")
        produce(bootstrap, "lost", 10)
        options = {
            "kafka.bootstrap.servers": bootstrap,
            "group.id": "board",
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
        }
        assert run(spark, options, tmp_path) == [*values("a", 10), *values("lost", 10)]
        cluster = KafkaCluster(ClientConfig.from_options({"bootstrap.servers": bootstrap}))
        before = cluster.log_ends([PARTITION]).leader_epochs[PARTITION]
        # The client of this read has all records that follow.
        assert read(bootstrap, 0, 12, before) == [*values("a", 10), *values("lost", 2)]
        found, cursor = cursors.get_messages(cursors.create_cursor(TOPIC, 0, sg.cursors.TRIM_HORIZON), 12)
        assert [it.value for it in found] == [it.encode() for it in (*values("a", 10), *values("lost", 2))]
        mark = CommitMark.parse(committed_metadata(bootstrap, "board", TOPIC)[0])
        assert mark is not None
        assert mark.leader_epoch is not None
        kafka.kill_node(2)
        kafka.restart_node(3)
        produce(bootstrap, "b", 30)
        kafka.restart_node(2)
        after = result(lambda: cluster.log_ends([PARTITION]), "the log after the election").leader_epochs[PARTITION]
        assert read(bootstrap, 12, 15, after) == values("b", 30)[2:5]
        found, _ = cursors.get_messages(cursor, 3)
        assert [it.value for it in found] == [it.encode() for it in values("b", 30)[2:5]]
        with pytest.raises(
            StreamingQueryException, match=r"available offsets \[0, 40\)\): the log was truncated at offset 10"
        ):
            run(spark, options, tmp_path)
        assert run(spark, {**options, "onDataLoss": "skip"}, tmp_path) == values("b", 30)
        (gap,) = Gaps.decode(committed_metadata(bootstrap, gaps_group_of("board"), TOPIC)[0]).newest
        assert (gap.from_offset, gap.to_offset, gap.cause.value) == (20, 10, "truncated")
        assert run(spark, options, tmp_path) == []
