"""W7, W9: Spark's expressions of event time have a result for each time that a producer can send. The tests need no broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from streamgroups.event_time.event_shapes import EventShape
from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.watermark import MAX_EVENT_TIME_MS
from streamgroups.event_time.windows import Hopping, Shape
from streamgroups_spark.event_time.split_late import LateRule, split
from streamgroups_spark.windows.query_columns import dead_letter
from unit_tests.extreme_times import EXTREME_TIMES_US, LIMITS_MS, LIMITS_US
from unit_tests.streamgroups_operators.lifetime_model import of_events
from unit_tests.streamgroups_operators.window_model import START_MS, Query, Record

_MAX_US = MAX_EVENT_TIME_MS * 1_000
_TIMES_US = EXTREME_TIMES_US | LIMITS_US
_ZONE = "spark.sql.session.timeZone"


@pytest.fixture(params=["America/New_York", "Asia/Tokyo"])
def spark(local_spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session with the time zone of the parameter, and with ANSI mode."""
    before = local_spark.conf.get(_ZONE)
    local_spark.conf.set(_ZONE, request.param)
    assert local_spark.conf.get("spark.sql.ansi.enabled") == "true"
    yield local_spark
    local_spark.conf.set(_ZONE, str(before))


def test_W19_the_letter_of_an_end_has_a_watermark_after_the_first_one_only(spark: SparkSession) -> None:
    query = Query(of_events(EventShape.EDGE, Hopping(10, 10), delay_ms=3))
    ends = [Record(5, until=it) for it in (8, *LIMITS_MS.values())]
    found = [row for records in (ends, [Record(START_MS)], ends) for row in query.step(records)[1]]
    names = ("start", "end", "event_time", "watermark", "why", "pane")
    rows = spark.createDataFrame(
        [(*(row[name] for name in names), (i,)) for i, row in enumerate(found)],
        "start long, end long, event_time long, watermark long, why string, pane string, record struct<offset: long>",
    )
    letters = [it.dead_letter for it in rows.select(dead_letter(rows)).collect()]
    assert [it.offset for it in letters] == list(range(2 * len(ends)))
    assert {it.details["why"] for it in letters} == {"no start"}
    assert [it.details.get("watermark") for it in letters] == [
        *[None] * len(ends),
        *["2024-11-23T03:59:59.997000Z"] * len(ends),
    ]


@pytest.mark.parametrize(
    "window", [sg.shapes.hopping("100000 days", hop="50000 days"), sg.shapes.session("3s")], ids=str
)
def test_W7_windows_of_the_query_count_event_times_only(
    local_spark: SparkSession, window: Shape, tmp_path: Path
) -> None:
    times_us = [it for it in _TIMES_US.values() if it is not None]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text("\n".join(json.dumps({"us": it}) for it in [None, *times_us]))
    rows = local_spark.readStream.schema("us long").json(str(tmp_path / "in"))
    timed = rows.select(F.lit("a").alias("key"), F.timestamp_micros("us").alias("ts")).withWatermark("ts", "0 seconds")
    counts = sg.windows(timed, on="ts", by=["key"], window=window, aggregate={"n": "count(*)"}, time="query")
    found: list[int] = []

    def collect(batch: DataFrame, _: int) -> None:
        found.extend(row.n for row in batch.select("n", F.unix_micros("window_start")).collect())

    writer = counts.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    # Windows before 1970 are late, because Spark's first watermark is 1970. Two windows contain each time.
    positive = sum(0 <= it <= _MAX_US for it in times_us)
    assert sum(found) >= positive * (2 if isinstance(window, Hopping) else 1)


def test_W9_no_row_is_adjusted_to_a_watermark_beyond_the_limit(spark: SparkSession) -> None:
    """``withWatermark`` generates a watermark from any timestamp."""
    later = [_MAX_US - 999, _MAX_US, *(it for it in _TIMES_US.values() if it is not None and it > _MAX_US)]
    watermarks_us = [_MAX_US - 1_000, *later]
    rows = spark.createDataFrame(list(enumerate(watermarks_us)), "id int, w long").select(
        "id",
        F.timestamp_micros(F.lit(0)).alias("ts"),
        F.timestamp_micros(F.lit(2**63 - 1)).alias("until"),
        F.timestamp_micros("w").alias("watermark"),
    )
    on_time, late = split(rows, LateRule("ts", None, OnViolation.ADJUST, "until"))
    assert [tuple(row) for row in on_time.select("id", F.unix_micros("ts")).collect()] == [(0, _MAX_US)]
    letters = (
        sg.event_time.dead_letters(late).select(F.get_json_object("details.record", "$.id"), "details.why").collect()
    )
    assert [tuple(row) for row in letters] == [(str(i), "violation") for i in range(1, len(watermarks_us))]
