"""W2, W3, S10: queries of a group have windows with one watermark, the minimum over the partitions of all queries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from integration_tests.test_windows_of_partitions import Topic, Windows
from integration_tests.tiers import LONG
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.state.origins import Named
from streamgroups_testkit.queries import exclusive_options, shared_options
from streamgroups_testkit.reading import committed_metadata
from streamgroups_testkit.waits import wait_until

START_MS = 1_750_000_000_000


@pytest.fixture
def topic(bootstrap: str, new_topic: Callable[..., str]) -> Topic:
    return Topic(bootstrap, new_topic(2, retention_ms="-1"))


@LONG
def test_W2_two_queries_close_a_window_when_the_slowest_partition_has_passed_it(
    spark: SparkSession, bootstrap: str, group: str, topic: Topic, tmp_path: Path
) -> None:
    windows = Windows(spark, tmp_path, shared_options(bootstrap, group, topic.name, "consumer"))
    rows = windows.define(window=sg.shapes.tumbling("10s"), dead_letters=True, time="group")

    admin = AdminClient({"bootstrap.servers": bootstrap})

    def watermark_s(partition: int) -> float | None:
        mark = CommitMark.parse(committed_metadata(bootstrap, group, topic.name).get(partition, ""))
        if mark is None or not isinstance(mark.state, Named) or mark.state.time is None:
            return None
        watermark_ms = mark.state.time.watermark_ms
        return None if watermark_ms is None else (watermark_ms - START_MS) / 1_000

    def have_read(fast_s: int, slow_s: int) -> None:
        wait_until(lambda: (watermark_s(0), watermark_s(1)) == (fast_s, slow_s), f"seconds {fast_s} and {slow_s}")

    def owners() -> int:
        try:
            found = admin.describe_consumer_groups([group])[group].result(30)
        except KafkaException:
            # The group has no coordinator yet.
            return 0
        return sum(bool(member.assignment.topic_partitions) for member in found.members)

    with windows.running("ann", rows) as ann:
        wait_until(lambda: owners() == 1, "the first query owns all partitions")
        with windows.running("bob", rows):
            wait_until(lambda: owners() == 2, "both queries own a partition")
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
            # A query that stops before the commit of its batch would leave the same rows to the next owner.
            have_read(95, 31)
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


@LONG
def test_W3_an_exclusive_query_with_a_ledger_closes_windows_although_a_partition_is_idle(
    spark: SparkSession, bootstrap: str, group: str, topic: Topic, postgres: str, tmp_path: Path
) -> None:
    options = exclusive_options(bootstrap, group, topic.name, "consumer") | {"partitionIdleTimeout": "2s"}
    windows = Windows(spark, tmp_path, options)
    rows = windows.define(window=sg.shapes.tumbling("10s"), time="group")
    out = rows.select("key", F.unix_millis("window_start").alias("start"), "pane", "n")
    sink = sg.PostgresSink(conninfo=postgres, table="closed")

    def closed() -> list[tuple[Any, ...]]:
        with psycopg.connect(postgres) as connection:
            if connection.execute("SELECT to_regclass('closed')").fetchone() == (None,):
                return []
            return sorted(
                connection.execute("SELECT key, (start - %s) / 1000, pane, n FROM closed", [START_MS]).fetchall()
            )

    def run_until(checkpoint: str, expected: list[tuple[Any, ...]]) -> None:
        writer = sg.exactly_once(out, sink=sink, checkpoint=str(tmp_path / checkpoint))
        query = writer.trigger(processingTime="200 milliseconds").start()
        try:
            wait_until(lambda: len(closed()) >= len(expected) or not query.isActive, f"the rows {expected}")
            assert query.isActive, query.exception()
        finally:
            query.stop()
        assert closed() == expected

    # Partition 1 has no records.
    topic.write(0, 1, 2, 15)
    run_until("first", [("key-0", 0, "on time", 2)])
    topic.write(0, 21)
    run_until("second", [("key-0", 0, "on time", 2), ("key-0", 10, "on time", 1)])
