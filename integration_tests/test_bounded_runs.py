"""W17: a bounded run emits its open windows at its end, and bounded data have the results of a stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from integration_tests.tiers import LONG
from streamgroups.errors import InvalidOption
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.queries import exclusive_options, shared_options

START_MS = 1_750_000_000_000
Row = tuple[Any, ...]


class Topic:
    """A topic of two partitions, with records at seconds after a start."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._producer, self.name = ordered_producer(bootstrap), name

    def write(self, partition: int, *at_s: int) -> None:
        for time_s in at_s:
            self._producer.produce(self.name, b"", f"key-{partition}", partition, timestamp=START_MS + time_s * 1_000)
        assert self._producer.flush(30) == 0


@pytest.fixture
def topic(bootstrap: str, new_topic: Callable[..., str]) -> Topic:
    return Topic(bootstrap, new_topic(2, retention_ms="-1"))


def program(records: DataFrame, **windows: Any) -> DataFrame:
    """The same program for a stream and for bounded data."""
    timed = records.withColumn("key", F.expr("cast(key AS string)")).withWatermark("timestamp", "2 seconds")
    counts = {"n": "count(*)", "last": "max(offset)"}
    rows = sg.windows(
        timed,
        on="timestamp",
        by=["key"],
        aggregate=counts,
        watermark_delay="2s",
        flush=True,
        dead_letters=True,
        **windows,
    )
    details = F.col("dead_letter.details")
    return rows.select(
        "key",
        *((F.unix_millis(f"window_{it}") - START_MS).alias(it) for it in ("start", "end")),
        "pane",
        "revision",
        "n",
        "last",
        details["why"].alias("why"),
        (F.unix_millis(F.to_timestamp(details["event_time"])) - START_MS).alias("late_ms"),
    )


def results(rows: list[Row]) -> tuple[set[Row], list[Row]]:
    """The results with the highest revisions, and the dead letters."""
    latest: dict[Row, Row] = {}
    for key, start, end, pane, revision, *values in rows:
        if pane == "dead letter":
            continue
        before = latest.get((key, start, end))
        assert before is None or before[1] < revision, "revisions increase"
        latest[key, start, end] = (pane, revision, *values[:2])
    valid = {(*place, *row[2:]) for place, row in latest.items() if row[0] != "retraction"}
    return valid, sorted((row[0], *row[7:]) for row in rows if row[3] == "dead letter")


def panes(rows: list[Row]) -> list[Row]:
    """Key, start and end in seconds, kind, revision and count of each window row."""
    found = [(r[0], r[1] // 1_000, r[2] // 1_000, *r[3:6]) for r in rows if r[3] != "dead letter"]
    return sorted(found, key=str)


class Runs:
    """Bounded runs of one query. The rows of all runs are collected in memory."""

    def __init__(self, rows: DataFrame, checkpoint: Path) -> None:
        self._rows, self._checkpoint = rows, checkpoint
        self.fails_at: str | None = None

    def run(self) -> list[Row]:
        """Returns the rows of one run. A batch with the pane ``fails_at`` fails before its rows are collected."""
        found: list[Row] = []

        def collect(batch: DataFrame, _: int) -> None:
            rows = [tuple(row) for row in batch.collect()]
            if any(row[3] == self.fails_at for row in rows):
                raise ValueError("the sink fails")
            found.extend(rows)

        writer = self._rows.writeStream.foreachBatch(collect).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self._checkpoint)).start()
        assert query.awaitTermination(120)
        return found


def bounded(spark: SparkSession, bootstrap: str, topic: Topic) -> DataFrame:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic.name}
    return spark.read.format("streamgroups").options(**options).load()


@LONG
@pytest.mark.parametrize(
    ("options_of", "windows"),
    [
        (shared_options, {"window": sg.shapes.hopping("20s", hop="10s"), "allowed_lateness": "5s"}),
        (exclusive_options, {"window": sg.shapes.session("5s"), "allowed_lateness": "5s", "time": "partition"}),
    ],
    ids=["hopping", "session"],
)
def test_W17_the_same_program_reads_a_stream_and_bounded_data(
    spark: SparkSession,
    bootstrap: str,
    group: str,
    topic: Topic,
    tmp_path: Path,
    options_of: Callable[..., dict[str, str]],
    windows: dict[str, Any],
) -> None:
    stream = spark.readStream.format("streamgroups").options(**options_of(bootstrap, group, topic.name, "consumer"))
    runs = Runs(program(stream.load(), **windows), tmp_path / "checkpoint")
    topic.write(0, 1, 12, 11, 25)
    topic.write(1, 3)
    first = runs.run()
    assert results(first) == results(
        [tuple(it) for it in program(bounded(spark, bootstrap, topic), **windows).collect()]
    )
    # The records extend open windows, close some, and the last one is late for all of its windows.
    topic.write(0, 27, 60, 1)
    second = runs.run()
    read = [tuple(it) for it in program(bounded(spark, bootstrap, topic), **windows).collect()]
    assert results([*first, *second]) == results(read)
    assert len(results(read)[1]) == 1
    assert {row[3] for row in read} == {"on time", "flush", "dead letter"}


@LONG
def test_W17_a_flush_is_repeated_after_an_error_and_emits_only_changes(
    spark: SparkSession, bootstrap: str, group: str, topic: Topic, tmp_path: Path
) -> None:
    stream = spark.readStream.format("streamgroups").options(**shared_options(bootstrap, group, topic.name, "consumer"))
    runs = Runs(program(stream.load(), window=sg.shapes.tumbling("10s"), time="group"), tmp_path / "checkpoint")
    topic.write(0, 1, 15)
    topic.write(1, 3)
    runs.fails_at = "flush"
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        runs.run()
    runs.fails_at = None
    flushed = [("key-0", 0, 10, "flush", 0, 1), ("key-0", 10, 20, "flush", 0, 1), ("key-1", 0, 10, "flush", 0, 1)]
    assert panes(runs.run()) == flushed
    assert runs.run() == [], "nothing has changed"
    # The watermark of the group passes the first windows. The other partition has no new record.
    topic.write(1, 40)
    assert panes(runs.run()) == [
        ("key-0", 0, 10, "on time", 1, 1),
        ("key-1", 0, 10, "on time", 1, 1),
        ("key-1", 40, 50, "flush", 0, 1),
    ]


@LONG
def test_X2_a_ledger_contains_each_pane_of_a_flush_once(
    spark: SparkSession, bootstrap: str, group: str, topic: Topic, tmp_path: Path, postgres: str
) -> None:
    stream = spark.readStream.format("streamgroups").options(**shared_options(bootstrap, group, topic.name, "consumer"))
    rows = program(stream.load(), window=sg.shapes.tumbling("10s")).select("key", "start", "pane", "revision", "n")
    sink = sg.PostgresSink(conninfo=postgres, table="flushed")
    topic.write(0, 1, 15)
    for checkpoint in ("first", "second"):
        # A new checkpoint contains no batch of the first run.
        writer = sg.exactly_once(rows, sink=sink, checkpoint=str(tmp_path / checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(120)
    with psycopg.connect(postgres) as connection:
        found = connection.execute("SELECT key, start, pane, revision, n FROM flushed ORDER BY start").fetchall()
    assert found == [("key-0", 0, "on time", 0, 1), ("key-0", 10_000, "flush", 0, 1)]


def test_W17_event_time_and_state_of_bounded_data(spark: SparkSession, bootstrap: str, topic: Topic) -> None:
    def count(state: pa.Table, records: pa.Table, time: sg.event_time.BatchTime) -> tuple[pa.Table, pa.Table]:
        new = records.group_by("key").aggregate([([], "count_all")]).rename_columns(["key", "n"])
        sums = pa.concat_tables([state, new]).group_by("key").aggregate([("n", "sum")]).rename_columns(["key", "n"])
        return sums, sums

    topic.write(0, 1, 2, 3)
    topic.write(1, 4)
    records = bounded(spark, bootstrap, topic)
    rows = sg.stateful(records, count, by=["key"], state="n bigint", output="key binary, n bigint").collect()
    assert sorted((bytes(row.key), row.n) for row in rows) == [(b"key-0", 3), (b"key-1", 1)]
    timed = sg.with_event_time(records, "timestamp", watermark_delay="1s")
    by_window = timed.groupBy(F.window("timestamp", "10 seconds")).count().collect()
    assert [row["count"] for row in by_window] == [4]
    with pytest.raises(InvalidOption, match="The watermark strategy is missing"):
        sg.with_event_time(records, "timestamp")


@pytest.mark.parametrize(
    ("change", "windows", "text"),
    [
        (lambda df: df, {"watermark_delay": None}, "Spark removes the watermark of df.withWatermark"),
        (lambda df: df.repartition(2), {}, r"moves records between tasks \(Repartition\)"),
        (lambda df: df.sort("offset"), {}, r"moves records between tasks \(Sort\)"),
        (lambda df: df.limit(5), {}, r"moves records between tasks \(GlobalLimit, LocalLimit\)"),
        (lambda df: df.union(df), {}, "reads streamgroups, streamgroups"),
        (lambda df: df.drop("offset"), {}, "has no column 'offset'"),
        (lambda df: df, {"time": "query"}, "the DataFrame is bounded data"),
        (lambda df: df, {"boundary": "processingTime", "watermark_delay": None}, "the DataFrame is bounded data"),
        (lambda df: df, {"by": ["value"]}, "All records of a key must be in one partition"),
    ],
)
def test_W17_what_bounded_data_do_not_support_is_rejected(
    spark: SparkSession,
    bootstrap: str,
    topic: Topic,
    change: Callable[[DataFrame], DataFrame],
    windows: dict[str, Any],
    text: str,
) -> None:
    valid = {"on": "timestamp", "by": ["key"], "window": sg.shapes.tumbling("10s"), "aggregate": {"n": "count(*)"}}
    records = change(bounded(spark, bootstrap, topic).withWatermark("timestamp", "2 seconds"))
    with pytest.raises(InvalidOption, match=text):
        sg.windows(records, **{**valid, "watermark_delay": "2s", **windows})


def test_W17_options_that_split_partitions_are_rejected(spark: SparkSession, bootstrap: str, topic: Topic) -> None:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic.name, "minPartitions": "4"}
    records = spark.read.format("streamgroups").options(**options).load()
    with pytest.raises(InvalidOption, match="Option 'minPartitions' splits partitions"):
        program(records, window=sg.shapes.tumbling("10s"))
