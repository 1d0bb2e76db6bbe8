"""W7, W9, X8: ``sg.event_time.split_late`` returns exactly the rows that Spark's operators drop, also after a restart."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import streamgroups as sg
from integration_tests.dead_letters import letters_in
from integration_tests.event_times import MINUTE_MS, depart, departures, minute_of
from integration_tests.tiers import LONG
from streamgroups.errors import InvalidOption
from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.watermark import MAX_EVENT_TIME_MS, At
from streamgroups.event_time.windows import Session, Shape
from streamgroups.monitoring.query_progress import LATE_COUNTS, read_progress
from streamgroups_spark.event_time.split_late import LateRule, split
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.queries import exclusive_options
from streamgroups_testkit.reading import read_committed
from unit_tests.extreme_times import EXTREME_TIMES_US
from unit_tests.window_rules import Drop, Interval, Lift, judge

WINDOW = "5 minutes"


def run(writer: DataStreamWriter) -> StreamingQuery:
    """Runs a query until it has read all records."""
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(120)
    return query


def dropped_by_spark(progress: Any) -> list[int]:
    """The rows that each operator of a batch has dropped as late."""
    return sorted(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)


def split_off(progress: Any) -> int:
    """The rows that all calls of ``split_late`` have split off in a batch."""
    return sum(row["late"] or 0 for name, row in progress.observedMetrics.items() if name.startswith(LATE_COUNTS))


def recorded(name: str, type_: str, record: str = "dead_letter.details.record") -> Column:
    """A column of the record of a dead letter, which has no value."""
    return F.get_json_object(F.col(record), f"$.{name}").cast(type_)


def forget_from(checkpoint: Path, batch_id: int) -> None:
    """Leaves the checkpoint of a driver that failed during a batch."""
    for log, first in (("commits", batch_id), ("offsets", batch_id + 1)):
        for path in (checkpoint / log).iterdir():
            if int(path.name.strip(".").removesuffix(".crc")) >= first:
                path.unlink()


@LONG
def test_W7_X8_rows_are_late_if_spark_drops_them(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic = new_topic(2, retention_ms="-1")
    options = exclusive_options(bootstrap, group, topic, "consumer")
    options |= {"eventTimeHeader": "dep_ms", "includeWatermark": "true"}
    found: list[Row] = []

    def run_again() -> StreamingQuery:
        timed = sg.with_event_time(departures(spark, options), "eventTime", watermark_delay="0s")
        on_time, late = sg.event_time.split_late(timed, "eventTime", window=sg.shapes.tumbling(WINDOW))
        counted = on_time.groupBy(F.window("eventTime", WINDOW)).count()
        # Here Spark drops late rows itself. Each one is a group of its own, so Spark counts each one.
        own = timed.groupBy(F.window("eventTime", WINDOW), "partition", "offset").count()
        details = F.col("dead_letter.details")
        late = late.select(F.lit("late").alias("what"), details["event_time"].cast("timestamp").alias("at"), F.lit(1))
        rows = counted.select(F.lit("window"), "window.start", "count").union(
            own.select(F.lit("own"), "window.start", "count")
        )
        writer = (
            rows.union(late)
            .toDF("what", "at", "n")
            .writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
        )
        return run(writer.option("checkpointLocation", str(tmp_path)))

    dropped = []
    # Minutes 3 and 4 are in a closed window. Minute 5 is before the watermark, and its window is open.
    for minutes in ({0: [0, 1, 6], 1: [2, 6]}, {0: [3, 5, 12], 1: [4, 12]}):
        depart(bootstrap, topic, minutes)
        query = run_again()
        assert query.exception() is None
        for progress in query.recentProgress:
            split_rows, unsplit_rows = dropped_by_spark(progress)
            assert (split_rows, split_off(progress)) == (0, unsplit_rows), "only Spark's own operator drops rows"
            dropped.append(unsplit_rows)
    assert sum(dropped) == 2
    minutes_of = {
        what: sorted((minute_of(row.at), row.n) for row in found if row.what == what) for what in ("window", "late")
    }
    assert minutes_of == {"window": [(0, 3), (5, 3)], "late": [(3, 1), (4, 1)]}


@LONG
def test_W7_X8_late_rows_of_windows_reach_a_topic_of_their_own(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    flights, counts, letters, unsplit = new_topic(2, retention_ms="-1"), new_topic(1), new_topic(1), new_topic(1)
    options = exclusive_options(bootstrap, group, flights, "consumer")
    options |= {"eventTimeHeader": "dep_ms", "includeWatermark": "true"}

    def for_topic(topic: str, key: str, rows: DataFrame) -> DataFrame:
        value = F.to_json(F.struct("*"))
        return rows.select(
            F.lit(topic).alias("topic"), F.expr(f"cast({key} AS string)").alias("key"), value.alias("value")
        )

    def run_again() -> StreamingQuery:
        timed = sg.with_event_time(departures(spark, options), "eventTime", watermark_delay="0s")
        on_time, late = sg.event_time.split_late(timed, "eventTime", window=sg.shapes.tumbling(WINDOW))
        counted = on_time.groupBy(F.window("eventTime", WINDOW)).count()
        # Here Spark drops late rows itself. Each one is a group of its own, so Spark counts each one.
        own = timed.groupBy(F.window("eventTime", WINDOW), "partition", "offset").count()
        rows = for_topic(counts, "window.start", counted).union(for_topic(unsplit, "offset", own))
        rows = rows.unionByName(late, allowMissingColumns=True)
        sink = sg.KafkaSink(bootstrap_servers=bootstrap, topic=None)
        dead = sg.KafkaSink(bootstrap_servers=bootstrap, topic=letters)
        return run(sg.exactly_once(rows, sink=sink, dead_letters=dead, checkpoint=str(tmp_path / "checkpoint")))

    late_rows = []
    for minutes, without_time in (
        ({0: [0, 1, 6], 1: [2, 6]}, 0),
        # Minutes 3 and 4 are in a closed window. Minute 5 is before the watermark, and its window is open.
        ({0: [3, 5, 12], 1: [4, 12]}, 2),
    ):
        depart(bootstrap, flights, minutes)
        producer = ordered_producer(bootstrap)
        for _ in range(without_time):
            producer.produce(flights, value="no header", partition=0)
        assert producer.flush(30) == 0
        query = run_again()
        assert query.exception() is None
        late_rows.append(0)
        for progress in query.recentProgress:
            split_rows, unsplit_rows = dropped_by_spark(progress)
            assert split_rows == 0, "no late row reaches the operator after the split"
            late_rows[-1] += unsplit_rows
            without_time -= split_off(progress) - unsplit_rows
            assert read_progress(progress.json).late_records == unsplit_rows + split_off(progress)
        assert without_time == 0, "rows without an event time are counted too"
    assert late_rows == [0, 2]

    def values(topic: str) -> list[dict[str, Any]]:
        return [json.loads(record.value) for record in read_committed(bootstrap, topic)]

    def minute(text: str | None) -> int | None:
        return None if text is None else minute_of(datetime.fromisoformat(text.replace("Z", "+00:00")))

    found = Counter((minute(it["window"]["start"]), it["count"]) for it in values(counts))
    assert found == Counter({(0, 3): 1, (5, 3): 1})
    found_letters = letters_in(bootstrap, letters)
    dead = [
        (it["why"], minute(it.get("event_time")), minute(it.get("window_start")), it.get("late_by_ms"))
        for it in (letter.details for letter in found_letters)
    ]
    # The watermark in Spark is a millisecond less than the latest minute.
    assert Counter(dead) == Counter(
        {
            ("late", 3, 0, str(3 * MINUTE_MS - 1)): 1,
            ("late", 4, 0, str(2 * MINUTE_MS - 1)): 1,
            ("no event time", None, None, None): 2,
        }
    )
    assert all(it.origin is not None and it.origin.topic_partition.topic == flights for it in found_letters)
    assert len(values(unsplit)) == sum(count for _, count in found)


@LONG
def test_X8_late_rows_of_other_operators_on_sparks_own_watermark(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic = new_topic(1, retention_ms="-1")
    found: list[Row] = []

    def stream(name: str) -> tuple[DataFrame, DataFrame]:
        options = exclusive_options(bootstrap, f"{group}-{name}", topic, "consumer")
        read = departures(spark, options | {"includeWatermark": "true", "maxOffsetsPerTrigger": "2"})
        timed = read.select(F.col("offset").alias(name), "timestamp", "watermark").withWatermark(
            "timestamp", "0 seconds"
        )
        return timed, sg.event_time.split_late(timed, "timestamp")[1]

    (left, late_left), (right, late_right) = stream("of_left"), stream("of_right")
    once = left.dropDuplicatesWithinWatermark(["of_left"]).select(F.lit("once"), "of_left")
    pairs = left.alias("l").join(right.alias("r"), F.expr("of_left = of_right AND l.timestamp = r.timestamp"))
    late = [
        letters.select(F.lit(side), recorded(f"of_{side}", "bigint"))
        for side, letters in (("left", late_left), ("right", late_right))
    ]
    rows = reduce(DataFrame.union, [once, pairs.select(F.lit("pair"), "of_left"), *late]).toDF("what", "offset")
    # Two records in each batch. A row is late by the watermark of the batch before.
    depart(bootstrap, topic, {0: [0, 10, 5, 12, 3, 10, 13, 4]})
    writer = rows.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
    writer = writer.option("checkpointLocation", str(tmp_path))
    query = run(writer)
    assert query.exception() is None
    for progress in query.recentProgress:
        # The join drops the late rows of both sides.
        assert dropped_by_spark(progress) == [split_off(progress) // 2, split_off(progress)]
    by_what = {what: {row.offset for row in found if row.what == what} for what in ("left", "right", "once", "pair")}
    # Minute 5 is in the batch in which Spark has received minute 10 as its watermark, and the batch before had none.
    assert by_what == {"left": {4, 5, 7}, "right": {4, 5, 7}, "once": {0, 1, 2, 3, 6}, "pair": {0, 1, 2, 3, 6}}
    # A batch that runs again has the same late rows, although Spark has a later watermark by then.
    last = max(progress.batchId for progress in query.recentProgress if split_off(progress))
    forget_from(tmp_path, last)
    found.clear()
    again = run(writer)
    assert again.exception() is None
    assert (again.recentProgress[0].batchId, split_off(again.recentProgress[0])) == (last, 2)
    assert {(row.what, row.offset) for row in found} == {("left", 7), ("right", 7), ("once", 6), ("pair", 6)}


def test_W17_no_row_of_bounded_data_is_late(spark: SparkSession, bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1, retention_ms="-1")
    depart(bootstrap, topic, {0: [0, 10, 1]})
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "eventTimeHeader": "dep_ms"}
    rows = spark.read.format("streamgroups").options(**options, includeWatermark="true").load()
    unknown = F.when(F.col("offset") != 1, F.col("eventTime")).alias("at")
    on_time, late = sg.event_time.split_late(
        rows.select("offset", unknown, "watermark"), "at", window=sg.shapes.tumbling(WINDOW)
    )
    assert [(r.offset, r.watermark) for r in on_time.orderBy("offset").collect()] == [(0, None), (2, None)]
    (letter,) = sg.event_time.dead_letters(late).collect()
    assert (letter.offset, letter.details.keys()) == (1, {"why", "record", "missing"})
    assert (letter.details["why"], letter.error_class) == ("no event time", "NoEventTime")


# ---- the rules -------------------------------------------------------------------------------------------------------

#: Microseconds around the ends of windows and around watermarks, also before 1970.
TIMES_US = [base + d for base in (-5_000_000, 0, 5_000_000, 10_000_000, 13_000_000) for d in (-1_000, -1, 0, 1, 1_000)]
WATERMARKS_MS = [-5_000, 0, 4_999, 5_000, 10_000, 12_999]


def judged_rows(spark: SparkSession) -> DataFrame:
    pairs = [(t, w) for t in TIMES_US for w in WATERMARKS_MS]
    rows = spark.createDataFrame([(i, t, w) for i, (t, w) in enumerate(pairs)], "id int, time_us long, w_ms long")
    return rows.select("id", F.timestamp_micros("time_us").alias("ts"), F.timestamp_millis("w_ms").alias("watermark"))


@pytest.mark.parametrize(
    "window",
    [
        pytest.param(sg.shapes.tumbling("5s"), marks=LONG),
        sg.shapes.hopping("10s", hop="4s"),
        pytest.param(sg.shapes.session("3s"), marks=LONG),
    ],
)
def test_a_row_is_late_if_its_window_in_spark_has_ended(spark: SparkSession, window: Shape) -> None:
    rows = judged_rows(spark)
    if isinstance(window, Session):
        spark_window = F.session_window("ts", f"{window.gap_ms} milliseconds")
    else:
        spark_window = F.window("ts", f"{window.size_ms} milliseconds", f"{window.hop_ms} milliseconds")
    each = rows.groupBy("id", "watermark", spark_window.alias("w")).count()
    ends = each.groupBy("id", "watermark").agg(F.max("w.end").alias("end"), F.max("w.start").alias("start"))
    expected = {(r.id, r.start, r.end) for r in ends.where("end <= watermark").collect()}
    on_time, late = split(rows, LateRule("ts", window))
    found = sg.event_time.dead_letters(late).select(
        recorded("id", "int", "details.record"),
        *(F.to_timestamp(F.col("details")[name]) for name in ("window_start", "window_end")),
    )
    assert {tuple(row) for row in found.collect()} == expected
    assert {r.id for r in on_time.collect()} == set(range(rows.count())) - {id for id, _, _ in expected}
    assert 0 < len(expected) < rows.count()


@pytest.mark.parametrize(
    "window",
    [
        *(pytest.param(it, marks=LONG) for it in (None, sg.shapes.tumbling("5s"))),
        sg.shapes.hopping("400 days", hop="3 days"),
        sg.shapes.session("3s"),
    ],
)
def test_a_time_beyond_the_bound_is_no_event_time(spark: SparkSession, window: Shape | None) -> None:
    """Sums of a time and a window would overflow, which fails the query in ANSI mode."""
    bound_us = MAX_EVENT_TIME_MS * 1_000
    beside = [sign * bound_us + d for sign in (-1, 1) for d in (-1, 0, 1)]
    times_us = sorted({*beside, *(it for it in EXTREME_TIMES_US.values() if it is not None)})
    rows = spark.createDataFrame(list(enumerate(times_us)), "id int, time_us long")
    rows = rows.select("id", F.timestamp_micros("time_us").alias("ts"), F.timestamp_millis(F.lit(0)).alias("watermark"))
    on_time, late = split(rows, LateRule("ts", window))
    letters = sg.event_time.dead_letters(late).select(recorded("id", "int", "details.record"), "details.why").collect()
    why = dict.fromkeys(range(len(times_us)), "") | {it[0]: it.why for it in letters}
    assert {i for i, it in why.items() if not it} == {it.id for it in on_time.select("id").collect()}

    def end_us(time_us: int) -> int:
        if window is None:
            return time_us
        if isinstance(window, Session):
            return time_us + window.gap_ms * 1_000
        return time_us - time_us % (window.hop_ms * 1_000) + window.size_ms * 1_000

    assert {t: why[i] for i, t in enumerate(times_us)} == {
        t: "no event time" if abs(t) > bound_us else "late" if end_us(t) <= 0 else "" for t in times_us
    }


@pytest.mark.parametrize("policy", [OnViolation.DROP, OnViolation.ADJUST])
def test_W9_rows_are_judged_like_single_records(spark: SparkSession, policy: OnViolation) -> None:
    cases = [(start, until, w) for start in range(8) for until in (None, 0, 4, 5, 6, 9) for w in (0, 4, 5)]
    rows = spark.createDataFrame(list(enumerate(cases)), "id int, c struct<start: long, until: long, w: long>")
    rows = rows.select(
        "id",
        F.timestamp_millis("c.start").alias("ts"),
        F.timestamp_millis("c.until").alias("until"),
        F.timestamp_millis("c.w").alias("watermark"),
    )
    on_time, late = split(rows, LateRule("ts", None, policy, "until" if policy is OnViolation.ADJUST else None))
    expected: dict[int, int] = {}
    for i, (start, until, w) in enumerate(cases):
        # The watermark of this library is the first time after that of Spark.
        judgement = judge(Interval(start, start if until is None else max(start, until)), At(w + 1), policy)
        if not isinstance(judgement, Drop):
            expected[i] = judgement.interval.start_ms if isinstance(judgement, Lift) else start
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    assert {
        r.id: round((r.ts.astimezone(timezone.utc) - epoch).total_seconds() * 1_000) for r in on_time.collect()
    } == expected
    letters = sg.event_time.dead_letters(late).select(recorded("id", "int", "details.record"), "details.why")
    assert Counter(tuple(row) for row in letters.collect()) == Counter(
        {(i, "violation"): 1 for i in set(range(len(cases))) - expected.keys()}
    )


# ---- invalid arguments -----------------------------------------------------------------------------------------------


@LONG
def test_the_error_names_what_cannot_work(spark: SparkSession) -> None:
    base = exclusive_options("localhost:9", "board", "flights")

    def timed(**options: str) -> DataFrame:
        return departures(spark, base | options).withWatermark("timestamp", "1 second")

    with_column = timed(includeWatermark="true")
    dropping = timed(includeWatermark="true", onViolation="adjust")
    rejected: list[tuple[Callable[[], Any], str]] = [
        (lambda: sg.event_time.split_late(timed(), "timestamp"), "Set the option includeWatermark=true on the source"),
        (
            lambda: sg.event_time.split_late(with_column.drop("watermark"), "timestamp"),
            "no column 'watermark'.* Keep it",
        ),
        (lambda: sg.event_time.split_late(with_column, "time"), "Column 'time' does not exist"),
        (lambda: sg.event_time.split_late(with_column, "watermark"), "Column 'watermark' has no watermark"),
        (lambda: sg.event_time.split_late(with_column, "timestamp", window="5m"), "Option 'window' is '5m'"),  # type: ignore[arg-type]
        (
            lambda: sg.event_time.split_late(with_column, "timestamp", on_violation="skip"),
            "Option 'on_violation' is 'skip'",
        ),
        (lambda: sg.event_time.split_late(with_column, "timestamp", on_violation="adjust"), "'until' is missing"),
        (lambda: sg.event_time.split_late(dropping, "timestamp"), "'until' is missing"),
        (lambda: sg.event_time.split_late(with_column, "timestamp", until="timestamp"), "'until' requires"),
        (lambda: sg.event_time.split_late(spark.range(1), "id"), "reads the source 'Range'"),
        (
            lambda: sg.event_time.split_late(with_column.dropDuplicatesWithinWatermark(["offset"]), "timestamp"),
            "DeduplicateWithinWatermark precedes sg.event_time.split_late",
        ),
        (
            lambda: sg.with_event_time(
                departures(spark, base), "timestamp", emit_every="1 record", on_violation="drop"
            ),
            "Set the option includeWatermark=true on the source",
        ),
        (
            lambda: sg.windows(dropping, on="timestamp", window=sg.shapes.tumbling("5m"), aggregate={"n": "count(*)"}),
            "'until' is missing",
        ),
    ]
    for wrong, named in rejected:
        with pytest.raises(InvalidOption, match=named):
            wrong()
    sg.event_time.split_late(dropping, "timestamp", on_violation="keep")
    # The options of bounded data do not apply to the stream that is joined with them.
    names = spark.read.format("streamgroups").options(**base, endingOffsets="latest", onViolation="drop").load()
    sg.event_time.split_late(with_column.join(names.select("key"), "key"), "timestamp")
