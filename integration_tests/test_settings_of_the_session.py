"""S1, S4, P4: settings of the session that change types or remove reports change neither records nor their times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import TimestampType

import streamgroups as sg
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.spark_sessions import changed_settings

AT_MS = int(datetime(2026, 3, 8, 12, 30, tzinfo=timezone.utc).timestamp()) * 1_000


@pytest.fixture
def set_conf(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Sets a setting of the session for one test."""
    with changed_settings(spark) as set_to:
        yield set_to


@pytest.fixture
def topic(bootstrap: str, new_topic: Callable[..., str]) -> str:
    """A topic with one record."""
    name, producer = new_topic(1, retention_ms="-1"), ordered_producer(bootstrap)
    producer.produce(name, b"value", "key", 0, timestamp=AT_MS)
    assert producer.flush(30) == 0
    return name


def test_S1_records_and_letters_have_their_times_with_timestamps_without_a_zone(
    spark: SparkSession,
    set_conf: Callable[[str, str], None],
    bootstrap: str,
    group: str,
    topic: str,
    tmp_path: Path,
) -> None:
    set_conf("spark.sql.session.timeZone", "America/New_York")
    set_conf("spark.sql.timestampType", "TIMESTAMP_NTZ")

    def fail(_: dict[str, object]) -> dict[str, object]:
        raise ValueError("no")

    def times(df: DataFrame) -> list[tuple[int, int]]:
        assert isinstance(df.schema["timestamp"].dataType, TimestampType)
        failed = sg.safely(df, fail, output="price double", takes="record", columns=["value"])
        shown = failed.select(F.unix_millis("timestamp"), F.unix_millis("dead_letter.timestamp"))
        return [(row[0], row[1]) for row in shown.collect()]

    of_batch = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    assert times(spark.read.format("streamgroups").options(**of_batch).load()) == [(AT_MS, AT_MS)]
    found: list[tuple[int, int]] = []
    frame = spark.readStream.format("streamgroups").options(**shared_options(bootstrap, group, topic)).load()
    writer = frame.writeStream.foreachBatch(lambda batch, _: found.extend(times(batch)))
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert found == [(AT_MS, AT_MS)]


def test_S4_a_target_without_reports_of_durations_is_rejected(
    spark: SparkSession,
    set_conf: Callable[[str, str], None],
    bootstrap: str,
    group: str,
    topic: str,
    tmp_path: Path,
) -> None:
    set_conf("spark.sql.streaming.numRecentProgressUpdates", "1")
    options = shared_options(bootstrap, group, topic) | {"targetBatchTime": "10s"}
    frame = spark.readStream.format("streamgroups").options(**options).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException, match="numRecentProgressUpdates is below 2"):
        query.awaitTermination(120)
