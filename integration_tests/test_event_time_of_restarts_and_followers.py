"""W2, W3, W10, W11: the event time of a partition survives a restart, and a slow stream follows the watermark of a fast
one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from integration_tests.event_times import (
    by_departure,
    closing,
    depart,
    departures,
    minute_of,
    wait_until_closed,
    wait_until_read,
    windows,
)
from integration_tests.tiers import LONG
from streamgroups_testkit.queries import exclusive_options
from streamgroups_testkit.reading import wait_until_group_is_empty
from streamgroups_testkit.waits import wait_until


@LONG
def test_W11_a_restarted_query_has_the_time_of_a_silent_partition(
    spark: SparkSession, admin: AdminClient, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic = new_topic(2, retention_ms="-1")
    # Settings of the source; the call overrides one of them.
    options = {
        **exclusive_options(bootstrap, group, topic, "consumer"),
        "watermarkDelay": "0s",
        "partitionIdleTimeout": "1s",
    }
    busy, silent = 0, 1

    def query() -> DataFrame:
        timed = sg.with_event_time(by_departure(departures(spark, options)), "departure", partition_idle_timeout="none")
        return windows(timed, "departure")

    depart(bootstrap, topic, {busy: range(10), silent: range(31)})
    with closing(query(), tmp_path / "checkpoint") as before:
        wait_until_read(bootstrap, topic, 2, group)
        wait_until_closed(before, 0)
    assert before.flights == {0: 10}
    wait_until_group_is_empty(admin, group)

    depart(bootstrap, topic, {busy: range(10, 29)})
    with closing(query(), tmp_path / "checkpoint") as after:
        # Only the metadata entry of the member contains minute 30 of the idle partition.
        wait_until_closed(after, 20)
        assert after.flights == {5: 10, 10: 10, 15: 10, 20: 10}
        assert after.query is not None
        explained = str(sg.event_time.explain_time(after.query))
        assert f"{topic}-{busy}" in explained
        assert "holds back the watermark" in explained


@LONG
def test_W2_records_that_an_older_checkpoint_reads_again_are_not_late(
    spark: SparkSession, admin: AdminClient, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic = new_topic(1, retention_ms="-1")
    checkpoint, older = tmp_path / "checkpoint", tmp_path / "older"

    def query(**more: str) -> DataFrame:
        options = {**exclusive_options(bootstrap, group, topic, "consumer"), **more}
        return windows(sg.with_event_time(departures(spark, options), "timestamp", watermark_delay="0s"))

    depart(bootstrap, topic, {0: range(11)})
    with closing(query(), checkpoint) as first:
        wait_until_closed(first, 0)
    wait_until_group_is_empty(admin, group)
    shutil.copytree(checkpoint, older)
    depart(bootstrap, topic, {0: range(11, 31)})
    with closing(query(), checkpoint) as later:
        wait_until_closed(later, 20)
    wait_until_group_is_empty(admin, group)

    # The stored time of the group is minute 30. Several batches read the records up to it again.
    with closing(query(onRestart="checkpoint", maxOffsetsPerTrigger="2"), older) as again:
        wait_until_closed(again, 20)
        assert {minute: again.flights[minute] for minute in (10, 15, 20)} == {10: 5, 15: 5, 20: 5}


@LONG
def test_W10_a_join_is_as_quick_as_the_fast_stream(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str
) -> None:
    flown, planned = new_topic(1, retention_ms="-1"), new_topic(1, retention_ms="-1")
    fast = sg.with_event_time(
        departures(spark, exclusive_options(bootstrap, f"{group}-flown", flown, "consumer")),
        "timestamp",
        watermark_delay="0s",
    )
    slow = sg.with_event_time(
        departures(spark, exclusive_options(bootstrap, f"{group}-planned", planned, "consumer")),
        "timestamp",
        import_from=f"{group}-flown",
    )
    left = fast.select(F.col("timestamp").alias("flown_at"), F.col("partition").alias("flown_from"))
    right = slow.select(F.col("timestamp").alias("planned_at"), F.col("partition").alias("planned_from"))
    within = F.expr("flown_from = planned_from AND planned_at BETWEEN flown_at - INTERVAL 1 MINUTE AND flown_at")
    joined = left.join(right, within, "left_outer")

    depart(bootstrap, planned, {0: [0]})
    depart(bootstrap, flown, {0: [0, 1, 10]})
    with closing(joined) as closed:
        wait_until_read(bootstrap, flown, 1, f"{group}-flown")
        depart(bootstrap, flown, {0: [60]})
        # A record without a match is emitted when the watermark passes it, although the slow stream has been idle since
        # its first minute.
        wait_until(lambda: len(closed.rows) >= 3, f"three flights, of {closed.rows}", timeout_s=60)
        minutes = sorted((minute_of(r.flown_at), r.planned_at is not None) for r in closed.rows)
        assert minutes == [(0, True), (1, True), (10, False)]
