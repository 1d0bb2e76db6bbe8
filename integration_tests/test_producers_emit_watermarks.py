"""W15: producers emit watermarks, in headers of records and in markers. Windows of partitions and of Spark follow them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from integration_tests.test_windows_of_partitions import START_MS, Row, Windows
from integration_tests.tiers import LONG
from streamgroups_spark.bridge.user_process import UNREADABLE
from streamgroups_testkit.queries import exclusive_options, shared_options
from streamgroups_testkit.waits import wait_until

HEADER = "streamgroups-watermark"


class Topic:
    """A topic of two partitions. A transactional producer writes its first records; the second partition ends with a
    marker.
    """

    def __init__(self, bootstrap: str, name: str) -> None:
        self.name = name
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
        self._producer.init_transactions(30)
        self._producer.begin_transaction()
        for partition, second, value in ((0, 1, "in"), (0, 2, "in"), (1, 3, "in"), (1, 4, "out")):
            self._write(partition, second, value)
        self._mark(10)
        # Late by the marker, in the same transaction.
        self._write(0, 5, "in")
        self._write(0, 12, "in")
        self._write(0, 13, "in", watermark_s=20)
        self._mark(30, partitions=[1])
        self._producer.commit_transaction(30)

    def _write(self, partition: int, second: int, value: str, watermark_s: int | None = None) -> None:
        headers: list[tuple[str, str | bytes | None]] = []
        if watermark_s is not None:
            headers.append(sg.event_time.watermark_header(START_MS + watermark_s * 1_000))
        key, timestamp = f"key-{partition}", START_MS + second * 1_000
        self._producer.produce(self.name, value, key, partition, timestamp=timestamp, headers=headers)

    def _mark(self, second: int, partitions: list[int] | None = None) -> None:
        sg.event_time.emit_watermark(self._producer, self.name, START_MS + second * 1_000, partitions=partitions)

    def mark(self, second: int) -> None:
        """Emits a watermark for both partitions, and nothing else."""
        self._producer.begin_transaction()
        self._mark(second)
        self._producer.commit_transaction(30)

    def mark_unreadably(self) -> None:
        """Emits a watermark in another format."""
        self._producer.begin_transaction()
        self._producer.produce(self.name, headers=[(HEADER, b"2025-06-15")], partition=0)
        self._producer.commit_transaction(30)


@pytest.fixture
def topic(bootstrap: str, new_topic: Callable[..., str]) -> Topic:
    return Topic(bootstrap, new_topic(2, retention_ms="-1"))


def test_W15_windows_of_partitions_follow_producers_however_batches_cut_the_records(
    spark: SparkSession, bootstrap: str, group: str, topic: Topic, tmp_path: Path
) -> None:
    closed: list[Row] = [
        ("key-0", 0, 10, "dead letter", None),
        ("key-0", 0, 10, "on time", 2),
        ("key-0", 10, 20, "on time", 2),
        ("key-1", 0, 10, "on time", 1),
    ]
    topic.mark_unreadably()
    for name, limit in (("whole", {}), ("cut", {"maxOffsetsPerTrigger": "4"})):
        options = shared_options(bootstrap, f"{group}-{name}", topic.name, "consumer") | limit
        windows = Windows(spark, tmp_path, options | {"watermarkHeader": HEADER})
        # Markers have no value, and no record has the header behind the filter.
        rows = windows.define(
            lambda df: df.where("value = 'in'").select("key", "timestamp", "partition", "offset"),
            delay=None,
            window=sg.shapes.tumbling("10s"),
            dead_letters=True,
        )
        windows.run(name, rows)
        assert windows.rows == closed, name
        ignored = [(it.topic_partition.partition, it.count) for it in UNREADABLE.all() if group in it.group_id]
        assert ignored == [(0, 1)] * (1 if name == "whole" else 2)


@LONG
def test_W15_windows_of_spark_follow_the_producer_of_a_silent_partition(
    spark: SparkSession, bootstrap: str, group: str, topic: Topic, tmp_path: Path
) -> None:
    options = exclusive_options(bootstrap, group, topic.name, "consumer") | {"watermarkHeader": HEADER}
    flights = spark.readStream.format("streamgroups").options(**options).load().where("value = 'in'")
    counts = sg.with_event_time(flights, "timestamp").groupBy(F.window("timestamp", "10 seconds")).count()
    closed: list[tuple[int, int]] = []

    def collect(batch: DataFrame, _: int) -> None:
        found = batch.select(F.unix_millis("window.start").alias("start"), "count").collect()
        closed.extend(((row.start - START_MS) // 1_000, row["count"]) for row in found)

    query = counts.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path)).start()
    try:
        # The watermark is the minimum of 20 and 30 seconds; a watermark at the end of a window does not close it in Spark.
        wait_until(lambda: closed == [(0, 4)] or not query.isActive, "the first window is closed")
        assert query.isActive, query.exception()
        explained = str(sg.event_time.explain_time(query)).splitlines()
        assert explained[0].endswith("the watermark is 2025-06-15T15:07:00.000Z.")
        assert [line.split()[2] for line in explained[2:]] == ["2025-06-15T15:07:00.000Z", "2025-06-15T15:07:10.000Z"]
        topic.mark(41)
        wait_until(lambda: len(closed) > 1 or not query.isActive, "a batch of markers closes the second window")
        assert closed[1:] == [(10, 2)]
    finally:
        query.stop()
    whole = spark.read.format("streamgroups").options(**_for_batch(options)).load()
    assert [row.offset for row in whole.orderBy("partition", "offset").collect()] == [0, 1, 3, 4, 5, 0, 1]


def _for_batch(options: dict[str, str]) -> dict[str, str]:
    names = ("kafka.bootstrap.servers", "subscribe", "watermarkHeader")
    return {name: options[name] for name in names} | {"startingOffsets": "earliest"}


def test_W15_windows_that_do_not_follow_producers_are_rejected(spark: SparkSession, bootstrap: str, group: str) -> None:
    options = exclusive_options(bootstrap, group, "flights") | {"watermarkHeader": HEADER}
    streamed = spark.readStream.format("streamgroups").options(**options).load()
    bounded = spark.read.format("streamgroups").options(**_for_batch(options)).load()
    timed = streamed.withWatermark("timestamp", "1 minute")
    for flights, problem in (
        (streamed, "windows with the time of the query do not follow it. Call sg.with_event_time"),
        (timed, "windows with the time of the query do not follow it. Call sg.with_event_time"),
        (bounded, "windows of bounded data do not follow it. Read the records with spark.readStream"),
    ):
        with pytest.raises(sg.errors.InvalidOption, match=problem):
            sg.windows(
                flights, on="timestamp", by=["key"], window=sg.shapes.tumbling("10s"), aggregate={"n": "count(*)"}
            )
