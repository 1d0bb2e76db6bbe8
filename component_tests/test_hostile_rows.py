"""P4: rows that end no query: the expressions of Spark for single rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from streamgroups.event_time.violations import Why
from streamgroups_spark.dlq.late_letters import late_failure

MIN_US, MAX_US = -(2**63), 2**63 - 1
ZONES = ["UTC", "America/New_York", "Europe/London", "Asia/Kolkata", "Pacific/Kiritimati", "Pacific/Pago_Pago"]


@pytest.fixture
def set_zone(local_spark: SparkSession) -> Iterator[Callable[[str], None]]:
    """Sets the time zone of the session for one test."""
    before = str(local_spark.conf.get("spark.sql.session.timeZone"))
    yield lambda zone: local_spark.conf.set("spark.sql.session.timeZone", zone)
    local_spark.conf.set("spark.sql.session.timeZone", before)


# ---- times of late records -------------------------------------------------------------------------------------------


def facts(df: DataFrame) -> list[dict[str, str]]:
    """The details of letters of late records, whose event time is the column ``us``."""
    time = F.timestamp_micros("us")
    why = F.lit(Why.LATE.value)
    letter = late_failure(df.schema, F.col, step="windows", why=why, event_time=time, watermark=time)
    return [row[0]["details"] for row in df.select(letter).collect()]


@pytest.mark.parametrize("zone", ZONES)
def test_P4_times_of_letters_are_those_of_python(
    local_spark: SparkSession, set_zone: Callable[[str], None], zone: str
) -> None:
    choose = random.Random(zone)
    epoch, day_us = datetime(1970, 1, 1, tzinfo=timezone.utc), 86_400_000_000
    change = datetime(2026, 3, 8, 2, 30, tzinfo=timezone.utc)
    micros = [(change - epoch) // timedelta(microseconds=1) + hour * 3_600_000_000 for hour in range(-24, 25)]
    micros += [choose.randint(-719_162 * day_us, 2_932_896 * day_us) for _ in range(2_000)]
    micros += [choose.randint(0, 22_000 * day_us) for _ in range(2_000)]
    set_zone(zone)
    found = facts(local_spark.createDataFrame([(it,) for it in micros], "us long").coalesce(1))
    expected = [
        (epoch + timedelta(microseconds=it)).replace(tzinfo=None).isoformat("T", "microseconds") for it in micros
    ]
    assert [(it["event_time"], it["watermark"]) for it in found] == [(f"{it}Z", f"{it}Z") for it in expected]


@pytest.mark.parametrize("zone", ZONES)
def test_P4_the_first_and_last_time_are_letters(
    local_spark: SparkSession, set_zone: Callable[[str], None], zone: str
) -> None:
    set_zone(zone)
    first, last, none = facts(local_spark.createDataFrame([(MIN_US,), (MAX_US,), (None,)], "us long").coalesce(1))
    assert first["event_time"] == "-290308-12-21T19:59:05.224192Z"
    assert last["watermark"] == "+294247-01-10T04:00:54.775807Z"
    assert "event_time" not in none
