"""W7, W9: Spark's expressions of event time have a result for each time that a producer can send. The tests need no broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from streamgroups.event_time.event_shapes import EventShape
from streamgroups.event_time.windows import Hopping
from streamgroups_spark.windows.query_columns import dead_letter
from unit_tests.extreme_times import LIMITS_MS
from unit_tests.streamgroups_operators.lifetime_model import of_events
from unit_tests.streamgroups_operators.window_model import START_MS, Query, Record

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
