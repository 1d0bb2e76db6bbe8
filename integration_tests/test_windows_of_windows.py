"""W13, S10: operators behind windows in Spark: windows, a function, a join, and operators of Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from integration_tests.collected_rows import CollectedRows
from integration_tests.command_line import streamgroups
from integration_tests.tiers import LONG
from streamgroups.errors import InvalidOption
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.queries import exclusive_options, shared_options

START_MS = 1_750_000_200_000
MINUTE_MS = 60_000
PARTITIONS = 2
#: Key, start in minutes, and result.
Row = tuple[str, int, int]


class Records:
    """Records of two partitions, in order, and the windows of windows by a plain count."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer, self.topic = ordered_producer(bootstrap), topic
        self.minutes: dict[tuple[str, int], int] = defaultdict(int)

    def write(self, first_s: int, end_s: int) -> None:
        for at_s in range(first_s, end_s, 5):
            for partition in range(PARTITIONS):
                # The number of records of a minute varies.
                if (at_s // 60 + partition) % 3 or at_s % 20 == 0:
                    self._send(partition, at_s)
        assert self._producer.flush(30) == 0

    def _send(self, partition: int, at_s: int) -> None:
        key = f"{partition}-{at_s % 2}"
        self.minutes[key, at_s // 60] += 1
        self._producer.produce(self.topic, b"", key, partition, timestamp=START_MS + at_s * 1_000)
        self._producer.poll(0)

    def peaks(self, until_minute: int) -> list[Row]:
        """The most records of a minute, for each five minutes."""
        found: dict[tuple[str, int], int] = defaultdict(int)
        for (key, minute), count in self.minutes.items():
            start = minute - minute % 5
            if start + 5 <= until_minute:
                found[key, start] = max(found[key, start], count)
        return sorted((*place, count) for place, count in found.items())

    def growths(self, until_minute: int) -> list[Row]:
        """The change of the number of records in two minutes, for each minute."""
        found = []
        for key in {key for key, _ in self.minutes}:
            last = 0
            for start in range(-1, until_minute - 1):
                count = self.minutes.get((key, start), 0) + self.minutes.get((key, start + 1), 0)
                if count:
                    found.append((key, start, count - last))
                    last = count
        return sorted(found)


class Output(CollectedRows[Row]):
    """The rows of queries, which can fail once."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        super().__init__(directory)
        self._spark, self._fails = spark, False

    @contextmanager
    def failing_once(self) -> Iterator[None]:
        self._fails = True
        with pytest.raises(StreamingQueryException, match="on purpose"):
            yield

    def read(self, options: dict[str, str]) -> DataFrame:
        records = self._spark.readStream.format("streamgroups").options(**options).load()
        return records.withColumn("key", F.expr("cast(key AS string)")).withWatermark("timestamp", "0 seconds")

    def read_batch(self, batch: DataFrame) -> list[Row]:
        found = batch.selectExpr(
            "key", f"(unix_millis(start) - {START_MS}) div {MINUTE_MS}", "cast(n AS int)"
        ).collect()
        if found and self._fails:
            self._fails = False
            raise RuntimeError("on purpose")
        return [(row[0], row[1], row[2]) for row in found]


@pytest.fixture
def records(bootstrap: str, new_topic: Callable[..., str]) -> Records:
    return Records(bootstrap, new_topic(PARTITIONS, retention_ms="-1"))


@pytest.fixture
def output(spark: SparkSession, tmp_path: Path) -> Output:
    return Output(spark, tmp_path)


def peaks(df: DataFrame, **windows: Any) -> DataFrame:
    """The most records of a minute, for each five minutes."""
    minutes = sg.windows(df, on="timestamp", by=["key"], window=sg.shapes.tumbling("1 minute"), aggregate={"n": "count(*)"},
                         name="minutes", chained=True, **windows)  # fmt: skip
    found = sg.windows(minutes, on="window_start", by=["key"], window=sg.shapes.tumbling("5 minutes"),
                       aggregate={"n": "max(n)"}, name="peaks")  # fmt: skip
    return found.withColumnRenamed("window_start", "start")


@LONG
def test_W13_S10_windows_of_windows_follow_their_partitions(
    records: Records, output: Output, bootstrap: str, group: str
) -> None:
    options = shared_options(bootstrap, group, records.topic, "consumer") | {"maxOffsetsPerTrigger": "70"}
    records.write(0, 420)
    # Each batch continues with the states of the one before.
    output.run("first", peaks(output.read(options)))
    assert output.rows == records.peaks(5)
    records.write(420, 610)
    # A batch fails after both operators have written their states, and runs again.
    with output.failing_once():
        output.run("first", peaks(output.read(options)))
    output.run("first", peaks(output.read(options)))
    assert output.rows == records.peaks(10)
    location = str(output.directory / "streamgroups-state")
    listed = command("state", "list", location)
    assert "minutes" in listed
    assert "peaks" in listed
    named = "-b", bootstrap, "--state", "--state-location", location
    assert "missing" not in command("groups", "describe", group, *named)
    # The next owner has another checkpoint. Both operators continue with states before the new offsets, and read the
    # records in between again.
    reset = "--topic", records.topic, "--shift-by", "-90", "--execute", "--state-location", location
    command("groups", "reset", group, "-b", bootstrap, *reset)
    before = output.rows
    output.run("second", peaks(output.read(options)))
    assert len(output.rows) > len(before)
    assert set(output.rows) == set(before)
    command("state", "verify", location)


@LONG
def test_W13_a_function_processes_the_results_of_hopping_windows_with_the_time_of_the_group(
    records: Records, output: Output, bootstrap: str, group: str
) -> None:
    def growth(state: pa.Table, rows: pa.Table, time: sg.event_time.BatchTime) -> tuple[pa.Table, pa.Table]:
        counts = {row["key"]: row["last"] for row in state.to_pylist()}
        found = []
        for row in rows.to_pylist():
            found.append({"key": row["key"], "start": row["window_start"], "n": row["n"] - counts.get(row["key"], 0)})
            counts[row["key"]] = row["n"]
        keys = pa.table({"key": list(counts), "last": list(counts.values())})
        return keys, pa.Table.from_pylist(found, pa.schema([(it.name, it.type) for it in OUTPUT]))

    options = shared_options(bootstrap, group, records.topic, "consumer")
    minutes = sg.windows(output.read(options), on="timestamp", by=["key"], window=sg.shapes.hopping("2 minutes", hop="1 minute"),
                         aggregate={"n": "count(*)"}, time="group", name="minutes", chained=True)  # fmt: skip
    rows = sg.stateful(minutes, growth, by=["key"], state="last bigint", output="key string, start timestamp, n bigint")
    records.write(0, 300)
    with output.running("growth", rows) as query:
        expected = records.growths(4)
        output.wait(query, expected)
        assert "minutes" not in str(sg.event_time.explain_time(query)), "the time is that of the partitions"
        records.write(300, 421)
        output.wait(query, records.growths(7))


OUTPUT = pa.schema([("key", pa.string()), ("start", pa.timestamp("us", "UTC")), ("n", pa.int64())])


@LONG
def test_W13_a_join_joins_the_results_of_windows(
    output: Output, bootstrap: str, group: str, new_topic: Callable[..., str]
) -> None:
    left, right = (Records(bootstrap, new_topic(PARTITIONS, retention_ms="-1")) for _ in range(2))
    options = shared_options(bootstrap, group, f"{left.topic},{right.topic}", "consumer")
    options |= {"kafka.group.remote.assignor": "range", "maxOffsetsPerTrigger": "60"}
    minutes = sg.windows(output.read(options), on="timestamp", by=["key"], window=sg.shapes.tumbling("1 minute"),
                         aggregate={"n": "count(*)"}, name="minutes", chained=True)  # fmt: skip
    both = sg.join(minutes, left=left.topic, right=right.topic, by=["key"], on="window_start", within="0 seconds",
                   how="left", name="both")  # fmt: skip
    rows = both.selectExpr("key", "left.window_start AS start", "left.n + coalesce(right.n, 100) AS n")
    left.write(0, 250)
    right.write(100, 450)
    output.run("both", rows)
    left.write(250, 400)
    output.run("both", rows)
    expected = {
        (key, minute, count + right.minutes.get((key, minute), 100))
        for (key, minute), count in left.minutes.items()
        if minute < 6
    }
    assert output.rows == sorted(expected)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param("count(*)", "spark", marks=pytest.mark.long),
        pytest.param(sg.shapes.python_aggregate(len, "offset", returns="bigint"), "max(n)", marks=pytest.mark.long),
        pytest.param("count(*)", sg.shapes.python_aggregate(max, "n", returns="bigint"), marks=pytest.mark.long),
    ],
    ids=["spark", "python-spark", "spark-python"],
)
def test_W13_operators_of_spark_process_the_results_of_windows_of_the_query(
    records: Records, output: Output, bootstrap: str, group: str, rocksdb: None, first: Any, then: Any
) -> None:
    options = exclusive_options(bootstrap, group, records.topic)
    minutes = sg.windows(output.read(options), on="timestamp", by=["key"], window=sg.shapes.tumbling("1 minute"),
                         aggregate={"n": first}, buckets=2, chained=True)  # fmt: skip
    if then == "spark":
        found = minutes.groupBy(F.window("window_time", "5 minutes"), "key").agg(F.max("n").alias("n"))
        rows = found.select("key", F.col("window.start").alias("start"), "n")
    else:
        found = sg.windows(minutes, on="window_time", by=["key"], window=sg.shapes.tumbling("5 minutes"),
                           aggregate={"n": then}, buckets=2)  # fmt: skip
        rows = found.withColumnRenamed("window_start", "start")
    records.write(0, 470)
    output.run("peaks", rows)
    assert output.rows == records.peaks(5)
    records.write(470, 1_000)
    output.run("peaks", rows)
    assert output.rows == records.peaks(15)


@LONG
def test_W13_what_has_no_correct_result_is_rejected(output: Output, bootstrap: str, group: str) -> None:
    options = shared_options(bootstrap, group, "flights", "consumer")
    df = output.read(options)
    first: dict[str, Any] = {
        "on": "timestamp",
        "by": ["key"],
        "window": sg.shapes.tumbling("1 minute"),
        "name": "minutes",
    }
    first |= {"aggregate": {"n": "count(*)"}, "chained": True}
    for changed, text in (
        ({"allowed_lateness": "1 minute"}, "'chained' of sg.windows cannot be combined with 'allowed_lateness'"),
        ({"flush": True}, "cannot be combined with 'flush'"),
        ({"dead_letters": True}, "cannot be combined with 'dead_letters'"),
        ({"boundary": "processingTime"}, "cannot be combined with boundary=processingTime"),
        ({"aggregate": {"offset": "count(*)"}}, "Two output columns have the name 'offset'"),
    ):
        with pytest.raises(InvalidOption, match=text):
            sg.windows(df, **{**first, **changed})
    minutes = sg.windows(df, **first)
    idle = sg.windows(df, **first, idle_timeout="2 minutes")
    second: dict[str, Any] = {
        "on": "window_start",
        "by": ["key"],
        "window": sg.shapes.tumbling("5 minutes"),
        "name": "peaks",
    }
    second |= {"aggregate": {"n": "max(n)"}}
    plain = sg.windows(df, **{**first, "chained": False})
    watermarked = minutes.withWatermark("window_start", "1 minute")
    shifted = minutes.withColumn("window_start", F.expr("window_start - INTERVAL 1 HOUR"))
    for results, changed, text in (
        (plain, {}, "'minutes', which has no event time for another operator"),
        (minutes, {"name": "minutes"}, "Two operators of the query have the name 'minutes'"),
        (minutes.drop("partition"), {}, "no column 'partition'"),
        (minutes.repartition(3), {}, "moves records between tasks"),
        (shifted, {}, "'window_start', which is not a time of the results"),
        (watermarked, {}, "under the watermark of the operator 'minutes'"),
        (minutes, {"watermark_delay": "1 minute"}, "under the watermark of the operator 'minutes'"),
        (minutes, {"time": "group"}, "the watermark is that of the operator 'minutes'"),
        (minutes, {"time": "query"}, "the records are results of the operator 'minutes'"),
        (minutes, {"flush": True}, "the open windows of the operator 'minutes' are not emitted"),
        (minutes, {"boundary": "processingTime"}, "the records are results of the operator 'minutes'"),
        (minutes, {"event_shape": "edge", "until": "window_end"}, "a result of windows has its start and its end"),
        (minutes, {"idle_timeout": "1 minute"}, "the operator 'minutes' has none"),
        (idle, {"idle_timeout": "1 minute"}, "the operator 'minutes' has 2m"),
        (idle, {"idle_timeout": "2 minutes"}, "cannot be combined with on='window_start'"),
    ):
        with pytest.raises(InvalidOption, match=text):
            sg.windows(results, **{**second, **changed})
    joined: dict[str, Any] = {"left": "a", "right": "b", "by": ["key"], "on": "window_start", "within": "0 seconds"}
    with pytest.raises(InvalidOption, match="can have results without new records"):
        sg.join(idle, **joined)
    exclusive = output.read(exclusive_options(bootstrap, group, "flights"))
    with pytest.raises(InvalidOption, match="for windows of the query"):
        sg.windows(exclusive, **{**first, "idle_timeout": "1 minute"})
    assert "window_time" in sg.windows(exclusive, **{**first, "window": sg.shapes.session("1 minute")}).columns
    once = sg.dedup(exclusive, id="offset", horizon="1 minute").withWatermark("timestamp", "0 seconds")
    assert "partition" not in sg.windows(once, **{**second, "on": "timestamp", "aggregate": {"n": "count(*)"}}).columns
    with pytest.raises(InvalidOption, match="'dedup', which has no event time for another operator"):
        sg.windows(once, **{**second, "on": "timestamp", "time": "partition"})
    with pytest.raises(InvalidOption, match="needs records of the source"):
        sg.dedup(minutes.withColumn("timestamp", F.col("window_start")), id="n", horizon="1 minute")


def command(*arguments: str) -> str:
    """Runs a command that must succeed. Returns its output."""
    done = streamgroups(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout
