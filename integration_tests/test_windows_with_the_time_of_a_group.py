"""W2, S10: queries of a group have windows with one watermark, the minimum over the partitions of all queries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

import streamgroups as sg
from integration_tests.test_windows_of_partitions import Topic, Windows
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.state.origins import Named
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import committed_metadata
from streamgroups_testkit.waits import wait_until

START_MS = 1_750_000_000_000


@pytest.fixture
def topic(bootstrap: str, new_topic: Callable[..., str]) -> Topic:
    return Topic(bootstrap, new_topic(2, retention_ms="-1"))


def test_W2_two_queries_close_a_window_when_the_slowest_partition_has_passed_it(
    spark: SparkSession, bootstrap: str, group: str, topic: Topic, tmp_path: Path
) -> None:
    windows = Windows(spark, tmp_path, shared_options(bootstrap, group, topic.name, "consumer"))
    rows = windows.define(window=sg.tumbling("10s"), dead_letters=True, time="group")

    admin = AdminClient({"bootstrap.servers": bootstrap})

    def watermark_s(partition: int) -> float | None:
        mark = CommitMark.parse(committed_metadata(bootstrap, group, topic.name).get(partition, ""))
        if mark is None or not isinstance(mark.state, Named) or mark.state.time is None:
            return None
        watermark_ms = mark.state.time.watermark_ms
        return None if watermark_ms is None else (watermark_ms - START_MS) / 1_000

    def have_read(fast_s: int, slow_s: int) -> None:
        wait_until(lambda: (watermark_s(0), watermark_s(1)) == (fast_s, slow_s), f"seconds {fast_s} and {slow_s}", 60)

    def owners() -> int:
        try:
            found = admin.describe_consumer_groups([group])[group].result(30)
        except KafkaException:
            # The group has no coordinator yet.
            return 0
        return sum(bool(member.assignment.topic_partitions) for member in found.members)

    with windows.running("ann", rows) as ann:
        wait_until(lambda: owners() == 1, "the first query owns all partitions", 60)
        with windows.running("bob", rows):
            wait_until(lambda: owners() == 2, "both queries own a partition", 60)
            topic.write(0, 1, 12, 95)
            topic.write(1, 2)
            have_read(95, 2)
            # A query with a watermark of its own would have closed the windows of partition 0.
            assert windows.rows == []
            topic.write(1, 5, 13, 31)
            windows.wait(
                ann,
                [
                    ("key-0", 0, 10, "on time", 1),
                    ("key-0", 10, 20, "on time", 1),
                    ("key-1", 0, 10, "on time", 2),
                    ("key-1", 10, 20, "on time", 1),
                ],
            )
        before = windows.rows
        topic.write(1, 40, 94, 120)
        topic.write(0, 96, 130)
        windows.wait(
            ann,
            sorted(
                [
                    *before,
                    ("key-0", 90, 100, "on time", 2),
                    ("key-1", 30, 40, "on time", 1),
                    ("key-1", 40, 50, "on time", 1),
                    ("key-1", 90, 100, "on time", 1),
                ]
            ),
        )
        have_read(130, 120)
