"""W4-W7: windows of a running query: late records update panes or become dead letters, sessions survive a restart, idle
windows close.

``make test`` runs what the state in Spark's state store needs. The rules of time have unit tests.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from integration_tests.tiers import LONG
from streamgroups.errors import InvalidOption
from streamgroups.monitoring.query_progress import read_progress
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.reading import committed_offsets
from streamgroups_testkit.session_queries import stop_between_batches
from streamgroups_testkit.spark_sessions import STATE_STORE
from streamgroups_testkit.waits import wait_until

#: Event times are seconds after this time in the past, so the clock has passed the end of every window.
EPOCH_MS = 1_577_836_800_000
COUNT = {"records": "count(*)", "total": "sum(offset)"}


class Stream:
    """A topic of one partition whose records have a key and an event time, and a query on it."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, group: str, checkpoint: Path) -> None:
        self._spark, self.checkpoint = spark, checkpoint
        self._topic, self._sent = topic, 0
        self._options = {
            "kafka.bootstrap.servers": bootstrap,
            "group.id": group,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "membership": "exclusive",
        }
        self._producer = ordered_producer(bootstrap)
        self.rows: list[Row] = []
        self.query: StreamingQuery | None = None

    def frame(self, **options: str) -> DataFrame:
        read = self._spark.readStream.format("streamgroups").options(**self._options | options).load()
        return read.withColumn("key", F.col("key").cast("string")).withWatermark("timestamp", "0 seconds")

    def send(self, *records: tuple[str, int]) -> None:
        for key, at_s in records:
            self._producer.produce(self._topic, key=key, value=b"", timestamp=EPOCH_MS + at_s * 1000)
        self._sent += len(records)
        assert self._producer.flush(30) == 0

    def start(self, windowed: DataFrame, **trigger: Any) -> None:
        def keep(batch: DataFrame, _batch_id: int) -> None:
            self.rows += batch.collect()

        writer = windowed.writeStream.foreachBatch(keep).option("checkpointLocation", str(self.checkpoint))
        self.query = (writer.trigger(**trigger) if trigger else writer).start()

    def send_and_take(self, *records: tuple[str, int], rows: int) -> list[tuple[object, ...]]:
        """Writes records, waits until exactly these records are processed, and returns this number of output rows."""
        self.send(*records)
        options = self._options
        done = {0: self._sent}
        wait_until(
            lambda: committed_offsets(options["kafka.bootstrap.servers"], options["group.id"], self._topic) == done,
            f"the batch of {records} is done",
        )
        wait_until(lambda: len(self.rows) >= rows, f"{rows} rows; there are {self.rows}")
        return self.take()

    def take(self) -> list[tuple[object, ...]]:
        found, self.rows = self.rows, []
        return sorted(map(shown, found), key=str)

    @property
    def late(self) -> int:
        """The number of late records in the query's progress."""
        assert self.query is not None
        return sum(read_progress(progress.json).late_records for progress in self.query.recentProgress)

    def stop(self) -> None:
        assert self.query is not None
        stop_between_batches(self.query, self.checkpoint)


def shown(row: Row) -> tuple[object, ...]:
    """A row in seconds: key, records and pane of a window, or the missed window of a dead letter."""
    seconds = [_seconds(row.window_start), _seconds(row.window_end)]
    if row.pane == "dead letter":
        letter, facts = row.dead_letter, row.dead_letter.details
        key = None if letter.key is None else letter.key.decode()
        return (*seconds, key, facts["why"], seconds_of(facts["watermark"]), int(facts["late_by_ms"]), letter.offset)
    return (*seconds, row.key, row.records, row.pane, row.revision)


def seconds_of(text: str) -> int:
    """A time in the details of a dead letter."""
    return _seconds(datetime.fromisoformat(text.replace("Z", "+00:00")))


def _seconds(time: Any) -> int:
    return int(time.timestamp()) - EPOCH_MS // 1000


@pytest.fixture
def stream(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path, rocksdb: None
) -> Iterator[Stream]:
    opened = Stream(spark, bootstrap, new_topic(1, retention_ms="-1"), group, tmp_path / "checkpoint")
    yield opened
    if opened.query is not None:
        opened.stop()


@LONG
def test_a_late_record_updates_and_a_later_one_is_emitted_with_the_window_that_it_missed(stream: Stream) -> None:
    windowed = sg.windows(
        stream.frame(),
        on="timestamp",
        by=["key"],
        window=sg.shapes.tumbling("10s"),
        aggregate=COUNT,
        buckets=4,
        allowed_lateness="10s",
        dead_letters=True,
    )
    stream.start(windowed)
    took = stream.send_and_take
    assert took(("a", 5), ("a", 6), ("b", 7), rows=0) == []
    assert took(("a", 12), rows=2) == [(0, 10, "a", 2, "on time", 0), (0, 10, "b", 1, "on time", 0)]
    assert took(("a", 8), rows=1) == [(0, 10, "a", 3, "update", 1)]
    assert took(("c", 9), rows=1) == [(0, 10, "c", 1, "update", 1)]
    assert took(("a", 35), rows=1) == [(10, 20, "a", 1, "on time", 0)]
    assert took(("a", 7), rows=1) == [(0, 10, "a", "late", 35, 28_000, 7)], "offset 7 is 28 seconds late"
    wait_until(lambda: stream.late == 1, "X8: it is counted")


@LONG
def test_W9_what_is_before_the_watermark_is_lifted_to_it_or_dropped(stream: Stream) -> None:
    frame = stream.frame().withColumn("until", F.col("timestamp") + F.expr("INTERVAL 2 SECONDS"))
    windowed = sg.windows(
        frame,
        on="timestamp",
        window=sg.shapes.tumbling("10s"),
        aggregate={"records": "count(*)", "key": "max(key)"},
        on_violation="adjust",
        until="until",
        dead_letters=True,
        buckets=2,
    )
    stream.start(windowed)
    took = stream.send_and_take
    assert took(("a", 12), rows=0) == []
    # Records b and c are valid until 0:13 and 0:11. The watermark raises them to 0:12, where only b is still valid.
    assert took(("b", 11), rows=0) == []
    (letter,) = took(("c", 9), rows=1)
    assert letter[3:6] == ("violation", 12, 3_000)
    assert took(("d", 25), rows=1) == [(10, 20, "b", 2, "on time", 0)]


@LONG
def test_a_session_merges_across_batches_and_survives_a_restart(stream: Stream) -> None:
    def windowed() -> DataFrame:
        return sg.windows(
            stream.frame(),
            on="timestamp",
            by=["key"],
            window=sg.shapes.session("10s"),
            aggregate=COUNT,
            buckets=4,
            allowed_lateness="30s",
        )

    stream.start(windowed())
    first = stream.send_and_take(("a", 0), ("a", 18), ("b", 2), rows=2)
    assert first == [(0, 10, "a", 1, "on time", 0), (2, 12, "b", 1, "on time", 0)]
    stream.stop()
    stream.start(windowed())
    assert stream.send_and_take(("a", 9), rows=1) == [(0, 10, "a", None, "retraction", 1)]
    assert stream.send_and_take(("b", 40), rows=1) == [(0, 28, "a", 3, "on time", 1)]


@LONG
@pytest.mark.parametrize("dead_letters", [True, False])
def test_an_idle_window_closes_by_the_clock(stream: Stream, dead_letters: bool) -> None:
    windowed = sg.windows(
        stream.frame(),
        on="timestamp",
        by=["key"],
        window=sg.shapes.tumbling("10s"),
        aggregate=COUNT,
        idle_timeout="1s",
        dead_letters=dead_letters,
    )
    stream.send(("a", 5))
    stream.start(windowed, processingTime="200 milliseconds")
    wait_until(lambda: stream.rows, "the window closes")
    assert stream.take() == [(0, 10, "a", 1, "idle", 0)]
    stream.send(("a", 6), ("b", 11))
    late = [(0, 10, "a", "late", 10, 4_000, 1)] if dead_letters else []
    wait_until(lambda: len(stream.rows) == 1 + len(late), "the next window closes, and the late record is emitted")
    assert stream.take() == [*late, (10, 20, "b", 1, "idle", 0)]
    wait_until(lambda: stream.late == 1, "X8: it is counted, emitted or not")


@LONG
def test_W7_python_aggregates_and_the_dead_letters_beside_them(stream: Stream) -> None:
    """Both helpers in one ``foreachBatch``, as in docs/windows.rst. Spark pickles the functions by value for the
    workers.
    """
    separator = "+"
    windowed = sg.windows(
        stream.frame(),
        on="timestamp",
        window=sg.shapes.tumbling("10s"),
        aggregate={
            "records": "count(*)",
            "median": sg.shapes.python_aggregate(statistics.median, "offset", returns="double"),
            "keys": sg.shapes.python_aggregate(lambda keys: separator.join(sorted(keys)), "key", returns="string"),
            "offsets": sg.shapes.python_aggregate(sorted, "offset", returns="array<bigint>"),
            "nothing": sg.shapes.python_aggregate(lambda _: None, "offset", returns="int"),
        },
        dead_letters=True,
    )
    letters: list[Row] = []

    def keep(batch: DataFrame, _batch_id: int) -> None:
        stream.rows += sg.shapes.window_results(batch).collect()
        letters.extend(sg.event_time.dead_letters(batch).collect())

    stream.query = windowed.writeStream.foreachBatch(keep).option("checkpointLocation", str(stream.checkpoint)).start()
    stream.send_and_take(("b", 3), ("a", 1), ("c", 9), rows=0)
    # The state of a Python aggregate is kept between batches.
    stream.send_and_take(("a", 5), rows=0)
    stream.send(("z", 25))
    wait_until(lambda: stream.rows, "the window closes")
    (row,) = stream.rows
    assert row.asDict().keys() == {"window_start", "window_end", *windowed.columns[2:-1]}
    assert (row.records, row.median, row.keys, row.offsets, row.nothing) == (4, 1.5, "a+a+b+c", [0, 1, 2, 3], None)
    stream.send(("late", 4))
    wait_until(lambda: letters, "the late record is a dead letter")
    (letter,) = letters
    facts = letter.details
    assert [seconds_of(facts[it]) for it in ("window_start", "window_end")] == [0, 10]
    assert (facts["why"], seconds_of(facts["event_time"]), seconds_of(facts["watermark"])) == ("late", 4, 25)
    assert (facts["late_by_ms"], letter.key, letter.offset) == ("21000", b"late", 5)
    assert (letter.step, letter.error_class) == ("windows", "LateRecord")
    assert len(stream.rows) == 1
    with pytest.raises(InvalidOption, match="no column 'dead_letter'"):
        sg.event_time.dead_letters(stream.frame())


@LONG
def test_W6_windows_by_the_clock_count_by_when_records_are_read(stream: Stream) -> None:
    """Event times of the past, in no order: no record is late."""
    windowed = sg.windows(
        stream.frame(),
        by=["key"],
        window=sg.shapes.tumbling("2s"),
        aggregate={
            "records": "count(*)",
            "offsets": sg.shapes.python_aggregate(sorted, "offset", returns="array<bigint>"),
        },
        boundary="processingTime",
        dead_letters=True,
    )
    began_s = time.time()
    stream.start(windowed, processingTime="200 milliseconds")
    stream.send(("a", 50), ("a", 0), ("b", 10))
    wait_until(lambda: len(stream.rows) >= 2, "their windows close")
    closed_s = time.time()
    stream.send(("a", 7))
    wait_until(lambda: len(stream.rows) >= 3, "the next window closes")
    first, last = [
        [row for row in stream.rows if 3 in row.offsets] == [row] for row in (stream.rows[0], stream.rows[-1])
    ]
    assert (first, last) == (False, True)
    assert sorted(offset for row in stream.rows for offset in row.offsets) == [0, 1, 2, 3]
    assert {row.key for row in stream.rows if 2 in row.offsets} == {"b"}
    for row in stream.rows:
        begins_s, ends_s = row.window_start.timestamp(), row.window_end.timestamp()
        assert (ends_s - begins_s, begins_s % 2) == (2, 0)
        assert began_s < ends_s, "it is a window of now, not of the event time"
        assert row.pane != "dead letter"
    assert stream.rows[-1].window_end.timestamp() > closed_s


@LONG
@pytest.mark.parametrize(
    "window", [sg.shapes.hopping("20s", hop="5s"), sg.shapes.session("4s")], ids=["hopping", "session"]
)
def test_both_ways_give_the_same(
    window: Any, spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], rocksdb: None, tmp_path: Path
) -> None:
    topic = new_topic(1, retention_ms="-1")
    reported = []
    for own_state in (False, True):
        stream = Stream(spark, bootstrap, topic, f"{topic}-{own_state}", tmp_path / str(own_state))
        if not own_state:
            stream.send(*((str(i % 3), i * 7 // 10 - (i * 37 % 41 if i % 4 == 0 else 0) + 50) for i in range(80)))
        windowed = sg.windows(
            stream.frame(maxOffsetsPerTrigger="20"),
            on="timestamp",
            by=["key"],
            window=window,
            aggregate={"records": "count(*)", "first": "min(offset)", "mean": "avg(offset)"},
            dead_letters=own_state,
            buckets=4,
        )
        plan = windowed._jdf.queryExecution().analyzed().toString()
        assert ("TransformWithState" in plan) == own_state
        stream.start(sg.shapes.window_results(windowed), availableNow=True)
        assert stream.query is not None
        stream.query.awaitTermination(60)
        reported.append(sorted(tuple(row) for row in stream.rows))
    assert reported[0] == reported[1]
    assert len(reported[0]) >= 5


def test_the_error_names_what_cannot_work(stream: Stream, spark: SparkSession) -> None:
    frame = stream.frame().withColumn("list", F.array("key"))
    good: dict[str, Any] = {"on": "timestamp", "window": sg.shapes.tumbling("5m"), "aggregate": {"n": "count(*)"}}
    rejected: list[tuple[dict[str, Any], str]] = [
        ({"on": "timestmp"}, "Column 'timestmp' does not exist"),
        ({"on": "offset"}, "Column 'offset' is of type bigint"),
        ({"on": None}, "The event time column is not set"),
        ({"by": "key"}, "Option 'by'"),
        ({"by": ["list"]}, "'list' of 'by'"),
        ({"aggregate": {}}, "'aggregate' is empty"),
        ({"aggregate": {"pane": "count(*)"}}, "have the name 'pane'"),
        ({"boundary": "processingTime", "idle_timeout": "1m"}, "idle_timeout"),
        ({"allowed_lateness": "-1m"}, "allowed_lateness"),
        ({"dead_letters": True, "aggregate": {"n": "stddev(offset)"}}, r"Aggregate 'n' is 'stddev\(offset\)'"),
        ({"dead_letters": True, "aggregate": {"n": "sum(key)"}}, "cannot compute sum of type string"),
        ({"buckets": 0}, "Option 'buckets' is 0"),
        ({"event_shape": "edges"}, "Allowed values: point, interval, edge"),
        ({"event_shape": "edge"}, "option 'until' is missing"),
        ({"event_shape": "edge", "until": "key"}, "Column 'key' is of type string"),
        ({"event_shape": "edge", "until": "timestamp"}, "Set time='partition' or time='group'"),
        ({"event_shape": "interval", "until": "timestamp", "time": "group", "flush": True}, "Omit 'flush'"),
    ]
    for wrong, named in rejected:
        with pytest.raises(InvalidOption, match=named):
            sg.windows(frame, **good | wrong)
    with pytest.raises(InvalidOption, match="has no watermark"):
        sg.windows(frame.withColumn("timestamp", F.expr("timestamp + interval 1 hour")), **good)
    with pytest.raises(InvalidOption, match="The DataFrame reads Range"):
        sg.windows(spark.range(1), **good)
    spark.conf.set(STATE_STORE, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
    with pytest.raises(InvalidOption, match="RocksDB"):
        sg.windows(frame, dead_letters=True, **good)
