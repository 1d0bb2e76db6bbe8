"""S10, W5, W6, W9: windows of partitions, in shared and exclusive queries: idle timeout, processing time, sessions, and
records before the watermark.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from integration_tests.collected_rows import CollectedRows
from integration_tests.command_line import streamgroups
from integration_tests.tiers import LONG
from streamgroups.errors import InvalidOption
from streamgroups_spark.bridge.plan import analyzed, read_streams
from streamgroups_spark.bridge.stage_name import DirectColumns, StageName
from streamgroups_testkit.clocks import controlled_clock
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.queries import exclusive_options, shared_options
from streamgroups_testkit.reading import committed_metadata, committed_offsets
from streamgroups_testkit.waits import wait_until

START_MS = 1_750_000_000_000
Row = tuple[str, int, int, str, int | None]


class Topic:
    """A topic of two partitions, with records at seconds after a start."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._producer, self.name = ordered_producer(bootstrap), name

    def write(self, partition: int, *at_s: float, value: str = "") -> None:
        for time_s in at_s:
            time_ms = START_MS + int(time_s * 1_000)
            self._producer.produce(self.name, value, f"key-{partition}", partition, timestamp=time_ms)
        assert self._producer.flush(30) == 0


class Windows(CollectedRows[Row]):
    """Queries with windows, whose rows are collected in memory."""

    def __init__(self, spark: SparkSession, directory: Path, options: dict[str, str]) -> None:
        super().__init__(directory)
        self._spark, self.options = spark, options

    def define(
        self, prepare: Callable[[DataFrame], DataFrame] = lambda df: df, delay: str | None = "0 seconds", **windows: Any
    ) -> DataFrame:
        records = self._spark.readStream.format("streamgroups").options(**self.options).load()
        timed = prepare(records.withColumn("key", F.expr("cast(key AS string)")))
        if delay is not None:
            timed = timed.withWatermark("timestamp", delay)
        return sg.windows(timed, **{"on": "timestamp", "by": ["key"], "aggregate": {"n": "count(*)"}, **windows})

    def read_batch(self, batch: DataFrame) -> list[Row]:
        found = batch.select(
            "key", F.unix_millis("window_start").alias("start"), F.unix_millis("window_end").alias("end"), "pane", "n"
        ).collect()
        return [(r.key, (r.start - START_MS) // 1_000, (r.end - START_MS) // 1_000, r.pane, r.n) for r in found]


@pytest.fixture
def topic(bootstrap: str, new_topic: Callable[..., str]) -> Topic:
    return Topic(bootstrap, new_topic(2, retention_ms="-1"))


@pytest.fixture
def shared(spark: SparkSession, bootstrap: str, group: str, topic: Topic, tmp_path: Path) -> Windows:
    return Windows(spark, tmp_path, shared_options(bootstrap, group, topic.name, "consumer"))


def test_W5_the_windows_of_an_idle_partition_close_and_a_filter_closes_none(
    shared: Windows, topic: Topic, bootstrap: str, group: str
) -> None:
    rows = shared.define(lambda df: df.where("value != 'out'"), window=sg.shapes.tumbling("10s"), idle_timeout="2s")
    topic.write(0, 1, 2)
    topic.write(1, 3)
    stop = threading.Event()

    def keep_busy() -> None:
        # No record passes the filter, and the partition is not idle.
        while not stop.wait(0.3):
            topic.write(1, 4, value="out")

    busy = threading.Thread(target=keep_busy)
    with shared.running("checkpoint", rows) as query:
        busy.start()
        try:
            shared.wait(query, [("key-0", 0, 10, "idle", 2)])
        finally:
            stop.set()
            busy.join()
        shared.wait(query, [("key-0", 0, 10, "idle", 2), ("key-1", 0, 10, "idle", 1)])
        # The closed window counts no record, and the next one does.
        topic.write(0, 5, 12)
        shared.wait(query, [*shared.rows[:1], ("key-0", 10, 20, "idle", 1), *shared.rows[1:]])
    assert all(";state=" in it for it in committed_metadata(bootstrap, group, topic.name).values())


def test_W11_the_delay_of_the_source_applies_to_windows_without_another_one(shared: Windows, topic: Topic) -> None:
    """A record that is 15 s behind another one is counted, with a delay of 30 s."""
    shared.options |= {"watermarkDelay": "30s"}
    tumbling = sg.shapes.tumbling("10s")
    topic.write(0, 1, 17, 2, 60, 3)
    with shared.running("delayed", shared.define(delay=None, window=tumbling)) as query:
        shared.wait(query, [("key-0", 0, 10, "on time", 2), ("key-0", 10, 20, "on time", 1)])


def test_W11_an_idle_timeout_of_the_source_is_rejected_for_windows_of_partitions(shared: Windows) -> None:
    shared.options |= {"partitionIdleTimeout": "30s"}
    with pytest.raises(InvalidOption, match="has no effect on windows of partitions"):
        shared.define(window=sg.shapes.tumbling("10s"))


@LONG
def test_W5_the_idle_timeout_waits_for_transactions_and_continues_in_the_next_query(
    spark: SparkSession, shared: Windows, topic: Topic, bootstrap: str, group: str, tmp_path: Path
) -> None:
    shared.options |= {"kafka.isolation.level": "read_committed"}
    transaction = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic.name})
    transaction.init_transactions(30)
    with controlled_clock(spark, START_MS) as clock:
        rows = shared.define(window=sg.shapes.tumbling("10s"), idle_timeout="20s")

        def rows_at(time_s: int, write: Callable[[], object] = lambda: None) -> list[Row]:
            """The rows after a poll at this time, when the records of the function arrive."""
            with clock.moved_to(START_MS + time_s * 1_000):
                write()
            query.processAllAvailable()
            return shared.rows

        with shared.running("first", rows) as query:
            assert rows_at(1, lambda: topic.write(0, 1)) == []
            transaction.begin_transaction()
            transaction.produce(topic.name, "", "key-0", 0, timestamp=START_MS)
            assert transaction.flush(30) == 0
            assert rows_at(60) == [], "a record is available"
            assert rows_at(70, lambda: transaction.abort_transaction(30)) == []
            assert rows_at(89) == []
            first = ("key-0", 0, 10, "idle", 1)
            assert rows_at(90) == [first]
            assert rows_at(100, lambda: topic.write(0, 12)) == [first]
        with shared.running("second", rows) as query:
            assert rows_at(119) == [first]
            second = ("key-0", 10, 20, "idle", 1)
            assert rows_at(120) == [first, second], "the source was idle while no query was running"
        topic.write(0, 22)
        latest = ("--to-latest", "--topic", f"{topic.name}:0", "--state-location", str(tmp_path / "streamgroups-state"))
        reset = streamgroups("groups", "reset", group, *latest, "--execute", "-b", bootstrap)
        assert reset.returncode == 0, reset.stderr
        with shared.running("third", rows) as query:
            # The record before the position was read at this time, to bring the state there.
            assert rows_at(200) == rows_at(219) == [first, second]
            assert rows_at(220) == [first, second, ("key-0", 20, 30, "idle", 1)]


@pytest.mark.parametrize(
    ("prepare", "is_direct"),
    [
        pytest.param(lambda df: df, True, id="only columns", marks=LONG),
        # The filter needs the records, and leaves all of them.
        pytest.param(lambda df: df.where("partition >= 0"), False, id="a filter"),
    ],
)
def test_S10_spark_counts_records_that_the_operator_receives_directly(
    shared: Windows, topic: Topic, prepare: Callable[[DataFrame], DataFrame], is_direct: bool
) -> None:
    rows = shared.define(prepare, window=sg.shapes.tumbling("10s"))
    assert (_direct_columns(rows) is not None) == is_direct
    topic.write(0, 1, 2, 12)
    topic.write(1, 3, 27)
    with shared.running("checkpoint", rows) as query:
        shared.wait(query, [("key-0", 0, 10, "on time", 2), ("key-1", 0, 10, "on time", 1)])
        query.processAllAvailable()
        reports = [it for it in query.recentProgress if it.numInputRows]
    assert sum(it.numInputRows for it in reports) == 5
    assert max(it.eventTime["max"] for it in reports) == "2025-06-15T15:07:07.000Z"
    assert min(it.eventTime["min"] for it in reports) == "2025-06-15T15:06:41.000Z"


@pytest.mark.parametrize("value", ["true", "false"])
def test_S10_results_are_the_same_without_direct_records(shared: Windows, topic: Topic, value: str) -> None:
    shared.options |= {"directRecords": value}
    rows = shared.define(window=sg.shapes.tumbling("10s"))
    assert (_direct_columns(rows) is not None) == (value == "true")
    first: list[Row] = [("key-0", 0, 10, "on time", 2), ("key-1", 0, 10, "on time", 1)]
    with shared.running("checkpoint", rows) as query:
        topic.write(0, 1, 2, 12)
        topic.write(1, 3, 27)
        shared.wait(query, first)
        topic.write(0, 14, 23)
        shared.wait(query, [first[0], ("key-0", 10, 20, "on time", 2), first[1]])
        query.processAllAvailable()
        reports = [it for it in query.recentProgress if it.numInputRows]
    # Each report has the figure of the batch before.
    direct = [json.loads(it.sources[0].latestOffset)["directRecords"] for it in reports]
    assert len(reports) >= 2
    assert direct == [0, *([it.numInputRows for it in reports[:-1]] if value == "true" else [0] * (len(reports) - 1))]


def test_S10_another_branch_of_a_query_receives_its_records(shared: Windows, topic: Topic, spark: SparkSession) -> None:
    frame = spark.readStream.format("streamgroups").options(**shared.options).load()
    timed = frame.withColumn("key", F.expr("cast(key AS string)")).withWatermark("timestamp", "0 seconds")
    columns = ("window_start", "window_end", "key", "pane", "n")
    whole = sg.windows(timed, on="timestamp", by=["key"], window=sg.shapes.tumbling("10s"), aggregate={"n": "count(*)"})
    records = timed.selectExpr("timestamp", "timestamp", "key", "'record'", "1L").toDF(*columns)
    topic.write(0, 1, 12)
    with shared.running("checkpoint", whole.select(*columns).union(records)) as query:
        shared.wait(
            query, [("key-0", 0, 10, "on time", 1), ("key-0", 1, 1, "record", 1), ("key-0", 12, 12, "record", 1)]
        )


def test_S10_two_operators_with_one_name_are_rejected(shared: Windows, topic: Topic, spark: SparkSession) -> None:
    """They would have one state."""
    frame = spark.readStream.format("streamgroups").options(**shared.options).load()
    columns = ("window_start", "window_end", "key", "pane", "n")

    def windows(of: str) -> DataFrame:
        return sg.windows(
            frame.where(f"value {of} cast('x' AS BINARY)").withColumn("key", F.expr("cast(key AS string)")),
            on="timestamp", by=["key"], window=sg.shapes.tumbling("10s"), aggregate={"n": "count(*)"}, watermark_delay="0s",
        ).select(*columns)  # fmt: skip

    topic.write(0, 1, 12)
    with shared.running("checkpoint", windows("=").union(windows("!="))) as query:
        wait_until(lambda: query.exception() is not None, "the query is rejected")
        assert "several operators with state over one stream, in different branches: windows" in str(query.exception())


def test_S10_one_operator_in_two_branches_is_one_operator(shared: Windows, topic: Topic, spark: SparkSession) -> None:
    rows = shared.define(window=sg.shapes.tumbling("10s"))
    [stage] = {stream.stages for stream in read_streams(analyzed(rows.union(rows)))}
    assert StageName.parse(stage[0]).id


def _direct_columns(rows: DataFrame) -> DirectColumns | None:
    [stream] = read_streams(analyzed(rows))
    return StageName.parse(stream.stages[0]).direct_columns


def test_W6_windows_by_the_clock_are_emitted_without_new_records(shared: Windows, topic: Topic) -> None:
    rows = shared.define(window=sg.shapes.tumbling("1s"), boundary="processingTime")
    topic.write(0, 1, 2, 3)
    with shared.running("checkpoint", rows) as query:
        wait_until(lambda: len(shared.rows) == 1 and query.isActive, "the window is emitted")
    [(key, _, _, pane, n)] = shared.rows
    assert (key, pane, n) == ("key-0", "on time", 3)


@pytest.fixture
def set_time_zone(spark: SparkSession) -> Iterator[Callable[[str], None]]:
    """Sets the time zone of the session until the end of the test."""
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    yield lambda zone: spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.session.timeZone", before)


@LONG
def test_S10_sessions_continue_in_a_query_with_a_new_checkpoint_and_another_time_zone(
    shared: Windows, topic: Topic, set_time_zone: Callable[[str], None]
) -> None:
    def day(records: DataFrame) -> DataFrame:
        return records.withColumn("day", F.expr("timestamp'2025-06-15T00:00:00Z'"))

    def rows() -> DataFrame:
        aggregate = {"n": "count(*)", "last": "max(timestamp)"}
        return shared.define(
            day, window=sg.shapes.session("5s"), by=["key", "day"], aggregate=aggregate, allowed_lateness="30s"
        )

    topic.write(0, 1, 4, 20)
    set_time_zone("America/New_York")
    shared.run("first", rows())
    assert shared.rows == [("key-0", 1, 9, "on time", 2)]
    # The first record extends the emitted session, the second one joins it with the open one.
    topic.write(0, 8, 12, 16, 60)
    set_time_zone("UTC")
    shared.run("second", rows())
    assert shared.rows == [
        ("key-0", 1, 9, "on time", 2),
        ("key-0", 1, 9, "retraction", None),
        ("key-0", 1, 25, "on time", 6),
    ]


@LONG
def test_S10_windows_of_partitions_in_an_exclusive_query_survive_its_checkpoint(
    spark: SparkSession, bootstrap: str, group: str, topic: Topic, tmp_path: Path
) -> None:
    # W11: the option of the source is the default of the argument.
    options = exclusive_options(bootstrap, group, topic.name) | {"onViolation": "drop"}
    windows = Windows(spark, tmp_path, options)
    rows = windows.define(window=sg.shapes.tumbling("10s"), time="partition")
    topic.write(0, 1, 5)
    topic.write(1, 1)
    windows.run("first", rows)
    # The record at 4 is before the watermark of its partition. That of the other partition is not.
    topic.write(0, 4, 7, 30)
    topic.write(1, 4, 30)
    windows.run("second", rows)
    assert windows.rows == [("key-0", 0, 10, "on time", 3), ("key-1", 0, 10, "on time", 2)]
    wait_until(lambda: committed_offsets(bootstrap, group, topic.name) == {0: 5, 1: 3}, "both batches are committed")


@LONG
def test_X2_a_ledger_contains_the_states_of_windows_that_the_clock_closes(
    shared: Windows, topic: Topic, postgres: str, tmp_path: Path
) -> None:
    rows = shared.define(window=sg.shapes.tumbling("10s"), idle_timeout="1s")
    out = rows.select("key", F.unix_millis("window_start").alias("start"), "pane", "n")
    sink = sg.PostgresSink(conninfo=postgres, table="board")

    def board() -> list[tuple[Any, ...]]:
        with psycopg.connect(postgres) as connection:
            if connection.execute("SELECT to_regclass('board')").fetchone() == (None,):
                return []
            return sorted(
                connection.execute("SELECT key, (start - %s) / 1000, pane, n FROM board", [START_MS]).fetchall()
            )

    def run_until(checkpoint: str, expected: list[tuple[Any, ...]]) -> None:
        writer = sg.exactly_once(out, sink=sink, checkpoint=str(tmp_path / checkpoint))
        query = writer.trigger(processingTime="200 milliseconds").start()
        try:
            wait_until(lambda: len(board()) >= len(expected) or not query.isActive, f"the rows {expected}")
            assert query.isActive, query.exception()
        finally:
            query.stop()
        assert board() == expected

    topic.write(0, 1, 2)
    run_until("first", [("key-0", 0, "idle", 2)])
    topic.write(0, 12)
    run_until("second", [("key-0", 0, "idle", 2), ("key-0", 10, "idle", 1)])
    with psycopg.connect(postgres) as connection:
        found = connection.execute("SELECT topic FROM streamgroups_ledger WHERE next_offset > 0").fetchall()
    # The other entries of a ledger belong to its fences.
    assert {name for (name,) in found} >= {topic.name, f"streamgroups.state.{topic.name}"}
