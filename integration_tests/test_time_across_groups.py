"""W10, O1: groups of several applications with one event time: a watermark is imported by the name of its group, and groups
are reset to one time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from integration_tests.command_line import streamgroups
from integration_tests.event_times import (
    closing,
    depart,
    departures,
    minute_of,
    wait_until_closed,
    wait_until_read,
    windows,
)
from integration_tests.programs import running
from integration_tests.test_windows_of_partitions import START_MS, Topic, Windows
from integration_tests.tiers import LONG
from streamgroups.errors import InvalidOption
from streamgroups.times import utc
from streamgroups_testkit.queries import exclusive_options, shared_options
from streamgroups_testkit.reading import committed_offsets, wait_until_group_is_empty
from streamgroups_testkit.waits import wait_until


class Board:
    """Windows of five minutes of a shared stream, with one watermark."""

    def __init__(self, spark: SparkSession, options: dict[str, str]) -> None:
        self._spark, self._options = spark, options
        #: The minute at which each closed window begins, and its number of flights.
        self.rows: list[tuple[int, int]] = []

    def define(self, time: str = "group") -> DataFrame:
        return sg.windows(
            departures(self._spark, self._options).withWatermark("timestamp", "0 seconds"),
            on="timestamp",
            by=["partition"],
            window=sg.shapes.tumbling("5 minutes"),
            aggregate={"flights": "count(*)"},
            time=time,
            prepartitioned=True,
        )

    @contextmanager
    def running(self, checkpoint: Path) -> Iterator[StreamingQuery]:
        writer = self.define().writeStream.foreachBatch(self._write).trigger(processingTime="200 milliseconds")
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            yield query
        finally:
            query.stop()

    def _write(self, batch: DataFrame, _: int) -> None:
        self.rows += [(minute_of(row.window_start), row.flights) for row in batch.collect()]


@LONG
def test_W10_streams_follow_the_watermark_of_a_group_of_another_application(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    trades, prices = new_topic(1, retention_ms="-1"), new_topic(1, retention_ms="-1")
    fast, slow, shared = f"{group}-trades", f"{group}-prices", f"{group}-board"
    board = Board(spark, shared_options(bootstrap, shared, prices, "consumer") | {"importFrom": fast})
    with pytest.raises(InvalidOption, match=f"Option 'importFrom' of group '{shared}' is '{fast}', but here each"):
        board.define(time="partition")
    depart(bootstrap, prices, {0: [0, 3]})
    depart(bootstrap, trades, {0: [0, 12]})
    timed = sg.with_event_time(
        departures(spark, exclusive_options(bootstrap, slow, prices, "consumer")), "timestamp", import_from=fast
    )
    # Both queries start before the group of the other application exists.
    with closing(windows(timed)) as closed, board.running(tmp_path / "board") as query:
        assert closed.query is not None
        options = exclusive_options(bootstrap, fast, trades, "consumer")
        config = {"options": options, "checkpoint": str(tmp_path / "checkpoint")}
        with running("timed_query", config, tmp_path / "log") as another_application:

            def are_closed() -> bool:
                another_application.check()
                assert query.isActive, query.exception()
                return bool(board.rows and closed.rows)

            # Their own records have not passed the end of a window.
            wait_until(are_closed, "the window at minute 0 is closed in both queries")
        depart(bootstrap, prices, {0: [13]})
        wait_until_read(bootstrap, prices, 1, slow, shared)
        assert (closed.flights, board.rows) == ({0: 2}, [(0, 2)])
        explained = str(sg.event_time.explain_time(closed.query))
        assert f"Watermark of group '{fast}', which is imported: 2013-01-01T05:12:00.000Z, unchanged for" in explained


@LONG
def test_W10_the_time_of_a_group_of_windows_is_imported_and_a_group_without_time_is_rejected(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic = new_topic(1, retention_ms="-1")
    plain, board = f"{group}-plain", Board(spark, shared_options(bootstrap, f"{group}-board", topic, "consumer"))
    depart(bootstrap, topic, {0: [0, 12]})
    read = departures(spark, shared_options(bootstrap, plain, topic, "consumer")).writeStream.format("noop")
    assert (
        read.option("checkpointLocation", str(tmp_path / "plain"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination(60)
    )

    def following(import_from: str, *minutes: int) -> DataFrame:
        prices = new_topic(1, retention_ms="-1")
        depart(bootstrap, prices, {0: minutes})
        options = exclusive_options(bootstrap, f"{prices}-prices", prices, "consumer")
        return windows(sg.with_event_time(departures(spark, options), "timestamp", import_from=import_from))

    with pytest.raises(
        StreamingQueryException, match=f"group '{plain}', which has committed batches without event time"
    ):
        following(plain, 0).writeStream.outputMode("append").format("noop").option(
            "checkpointLocation", str(tmp_path / "rejected")
        ).start().awaitTermination(60)
    with board.running(tmp_path / "board") as query:
        wait_until(lambda: bool(board.rows) or not query.isActive, "the window of the group is closed")
        assert query.isActive, query.exception()
        with closing(following(f"{group}-board", 0, 3)) as closed:
            wait_until_closed(closed, 0)
            assert closed.flights == {0: 2}


@LONG
def test_O1_two_groups_are_reset_to_one_time(
    spark: SparkSession, admin: AdminClient, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic = Topic(bootstrap, new_topic(2, retention_ms="-1"))
    topic.write(0, 1, 12, 15, 31)
    # The record of second 14 is behind the position in the order of offsets.
    topic.write(1, 2, 25, 14, 33)
    plain, counts = f"{group}-plain", f"{group}-counts"
    counted = Windows(spark, tmp_path, shared_options(bootstrap, counts, topic.name, "consumer"))
    rows = counted.define(window=sg.shapes.tumbling("10s"), time="group")
    offsets: list[tuple[int, int]] = []

    def write(batch: DataFrame, _: int) -> None:
        offsets.extend((row.partition, row.offset) for row in batch.select("partition", "offset").collect())

    def read_all() -> None:
        records = departures(spark, shared_options(bootstrap, plain, topic.name, "consumer"))
        writer = records.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "plain"))
        reading = writer.trigger(availableNow=True).start()
        counted.run("counts", rows)
        assert reading.awaitTermination(60)
        for of in (plain, counts):
            wait_until_group_is_empty(admin, of)

    read_all()
    closed = [("key-0", 0, 10, "on time", 1), ("key-0", 10, 20, "on time", 2), ("key-1", 0, 10, "on time", 1)]
    closed += [("key-1", 10, 20, "on time", 1), ("key-1", 20, 30, "on time", 1)]
    assert counted.rows == closed
    everything = [(partition, offset) for partition in (0, 1) for offset in range(4)]
    assert sorted(offsets) == everything

    where = ["--topic", topic.name, "--to-datetime", str(utc(START_MS + 13_000)), "-b", bootstrap]
    files = ["--state-location", str(tmp_path / "streamgroups-state"), "--undo-file", str(tmp_path / "undo.json")]
    reset = streamgroups("groups", "reset", plain, counts, *where, *files, "--execute", "-o", "json")
    assert reset.returncode == 0, reset.stderr
    moved = [(m["group"], m["partition"], m["from_offset"], m["to_offset"]) for m in json.loads(reset.stdout)["moves"]]
    assert moved == [(of, partition, 4, to) for of in (plain, counts) for partition, to in ((0, 2), (1, 1))]
    assert committed_offsets(bootstrap, plain, topic.name) == {0: 2, 1: 1}

    read_all()
    assert sorted(offsets) == sorted([*everything, (0, 2), (0, 3), (1, 1), (1, 2), (1, 3)])
    assert counted.rows == sorted(closed * 2), "the state of the new offsets contains the records before them"
