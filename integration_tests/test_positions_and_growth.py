"""G1, G2, S4: the starting position of a new group, the precedence of committed offsets, and topics that grow while a
query runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import SparkSession

from integration_tests.tiers import LONG
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_offsets
from streamgroups_testkit.session_queries import running_query
from streamgroups_testkit.waits import wait_until


@pytest.fixture
def options(bootstrap: str, group: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "group.id": group, "kafka.metadata.max.age.ms": "1000"}


def test_G1_latest_starts_after_what_is_there(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], options: dict[str, str]
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, 10, partitions=2)
    with running_query(spark, {**options, "subscribe": topic, "startingOffsets": "latest"}) as sink:
        # The starting position of a new group is committed immediately, so the next member uses it.
        wait_until(
            lambda: committed_offsets(bootstrap, options["group.id"], topic) == {0: 5, 1: 5}, "the start is committed"
        )
        produce(bootstrap, topic, 4, partitions=2)
        wait_until(lambda: len(sink.records) >= 4, "new records arrive")
    assert sorted(sink.records) == [(topic, 0, 5), (topic, 0, 6), (topic, 1, 5), (topic, 1, 6)]


def test_G1_at_time_and_at_offset(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], options: dict[str, str]
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 5, partitions=1)
    wait_until(lambda: time.time() % 1 < 0.2, "a moment between the two halves", interval_s=0.05)
    between_ms = time.time_ns() // 1_000_000 + 20
    wait_until(lambda: time.time_ns() // 1_000_000 > between_ms, "the moment has passed", interval_s=0.005)
    produce(bootstrap, topic, 5, partitions=1)
    at_time = {"subscribe": topic, "startingTimestamp": str(between_ms)}
    with running_query(spark, {**options, **at_time}) as sink:
        wait_until(lambda: len(sink.records) >= 5, "the second half arrives")
    assert sink.records[0] == (topic, 0, 5)
    offsets = {"startingOffsets": json.dumps({topic: {"0": 8}})}
    with running_query(
        spark, {**options, "group.id": options["group.id"] + "-2", "subscribe": topic, **offsets}
    ) as sink:
        wait_until(lambda: len(sink.records) >= 2, "the last two arrive")
    assert sink.records == [(topic, 0, 8), (topic, 0, 9)]


def test_G2_committed_offsets_win_and_added_partitions_start_at_their_oldest(
    spark: SparkSession, bootstrap: str, admin: AdminClient, new_topic: Callable[..., str], options: dict[str, str]
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 3, partitions=1)
    subscribed = {**options, "subscribe": topic}
    with running_query(spark, {**subscribed, "startingOffsets": "earliest"}) as sink:
        wait_until(lambda: committed_offsets(bootstrap, options["group.id"], topic) == {0: 3}, "all is committed")
    produce(bootstrap, topic, 1, partitions=1)
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    produce(bootstrap, topic, 4, partitions=2)
    # LATEST has no effect: the group has committed offsets, and partition 1 is newer than the group.
    with running_query(spark, {**subscribed, "startingOffsets": "latest"}) as sink:
        wait_until(lambda: len(sink.records) >= 5, "everything after the commit arrives")
    assert sorted(sink.records) == [(topic, 0, 3), (topic, 0, 4), (topic, 0, 5), (topic, 1, 0), (topic, 1, 1)]


@LONG
def test_partitions_and_topics_that_come_while_running(
    spark: SparkSession, bootstrap: str, admin: AdminClient, new_topic: Callable[..., str], options: dict[str, str]
) -> None:
    first = new_topic(1)
    pattern = {"subscribePattern": f"{first}.*", "startingOffsets": "latest"}
    with running_query(spark, {**options, **pattern}) as sink:
        wait_until(lambda: committed_offsets(bootstrap, options["group.id"], first) == {0: 0}, "it is a member")
        admin.create_partitions([NewPartitions(first, 2)])[first].result(30)
        second = new_topic(1, name=f"{first}-second")
        produce(bootstrap, first, 4, partitions=2)
        produce(bootstrap, second, 2, partitions=1)
        wait_until(lambda: len(sink.records) >= 6, "all of them arrive")
    assert sorted(sink.records) == [
        *[(first, p, offset) for p in range(2) for offset in range(2)],
        *[(second, 0, offset) for offset in range(2)],
    ]


@LONG
def test_assign_reads_exactly_these_partitions(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], options: dict[str, str]
) -> None:
    topic = new_topic(3)
    produce(bootstrap, topic, 9, partitions=3)
    assigned = {"assign": json.dumps({topic: [0, 2]}), "startingOffsets": "earliest"}
    with running_query(spark, {**options, **assigned}) as sink:
        wait_until(lambda: committed_offsets(bootstrap, options["group.id"], topic) == {0: 3, 2: 3}, "all is committed")
    assert {(p, o) for _, p, o in sink.records} == {(p, o) for p in (0, 2) for o in range(3)}


@LONG
def test_pattern_that_matches_nothing_yet(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], options: dict[str, str], group: str
) -> None:
    name = f"later-{group}"
    with running_query(spark, {**options, "subscribePattern": f"{name}.*"}) as sink:
        # Before the group has a starting position, LATEST is the end of every existing partition.
        wait_until(lambda: sink.query is not None and sink.query.status["message"].startswith("Waiting"), "it waits")
        topic = new_topic(1, name=f"{name}-1")
        produce(bootstrap, topic, 3, partitions=1)
        wait_until(lambda: len(sink.records) >= 3, "they arrive")
    assert sink.records == [(topic, 0, offset) for offset in range(3)]
