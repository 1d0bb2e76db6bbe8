"""W8-W11: the examples of StreamInsight's "Advancing application time" for Spark's own operators: generation at the
adapter with Drop, generation at the query with Adjust, and an imported time with Adjust in a join.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from integration_tests.event_times import START_MS, departures
from integration_tests.tiers import LONG
from streamgroups.monitoring.query_progress import QueryProgress, read_progress
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.queries import exclusive_options

Interval = tuple[int, int | None]


def send(bootstrap: str, topic: str, intervals: Iterable[Interval]) -> None:
    """Writes records that are valid from a second until another one."""
    producer = ordered_producer(bootstrap)
    for start, until in intervals:
        value = json.dumps({"until": None if until is None else START_MS + until * 1_000})
        producer.produce(topic, value=value, timestamp=START_MS + start * 1_000)
    assert producer.flush(30) == 0


def stream(spark: SparkSession, bootstrap: str, group: str, topic: str, **options: str) -> DataFrame:
    """The records of a topic, with the end of their validity."""
    given = exclusive_options(bootstrap, group, topic, "consumer") | {"includeWatermark": "true"} | options
    until_ms = F.get_json_object(F.col("value").cast("string"), "$.until").cast("long")
    return departures(spark, given).withColumn("until", F.timestamp_millis(until_ms))


class Output:
    """The rows that the runs of a query have written, with times in seconds, and its counts."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint, self.rows, self.progress = checkpoint, list[Row](), list[QueryProgress]()

    def run(self, df: DataFrame) -> None:
        """Runs a query until it has read all records."""
        times = [F.round((F.unix_millis(name) - START_MS) / 1_000).cast("int").alias(name) for name in df.columns]
        writer = df.select(*times).writeStream.foreachBatch(lambda batch, _: self.rows.extend(batch.collect()))
        query: StreamingQuery = (
            writer.option("checkpointLocation", str(self._checkpoint)).trigger(availableNow=True).start()
        )
        query.awaitTermination(120)
        assert query.exception() is None
        self.progress += [read_progress(it.json) for it in query.recentProgress]

    def take(self) -> list[tuple[Any, ...]]:
        found, self.rows = self.rows, []
        return sorted(map(tuple, found))

    @property
    def counts(self) -> tuple[int, int]:
        """The dropped records and the adjusted ones."""
        return sum(it.late_records for it in self.progress), sum(it.adjusted_records for it in self.progress)


@LONG
def test_W8_W9_W11_generation_at_the_adapter_with_drop(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    """``AdvanceTimeGenerationSettings(10, 5 s)`` with ``Drop``. The query overrides the delay of the adapter, 0 s."""
    topic = new_topic(1, retention_ms="-1")
    adapter = {"emitEvery": "10 records", "watermarkDelay": "0s", "onViolation": "drop"}

    def timed() -> DataFrame:
        records = stream(spark, bootstrap, group, topic, **adapter)
        once = sg.with_event_time(records, "timestamp", watermark_delay="5s").dropDuplicatesWithinWatermark(["offset"])
        return once.select("timestamp")

    output = Output(tmp_path / "checkpoint")
    send(bootstrap, topic, ((second, None) for second in range(10)))
    output.run(timed())
    assert output.take() == [(second,) for second in range(10)]
    # After ten records the watermark is at second 4, five seconds before the last one.
    send(bootstrap, topic, [(3, None), (4, None), (6, None)])
    output.run(timed())
    assert output.take() == [(4,), (6,)]
    assert output.counts == (1, 0)


@LONG
def test_W9_generation_at_the_query_with_adjust(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    """``AdvanceTimeGenerationSettings(1, 0 s)`` with ``Adjust``. Windows count an adjusted record after the watermark."""
    topic = new_topic(1, retention_ms="-1")

    def timed() -> DataFrame:
        settings = {"emit_every": "1 record", "watermark_delay": "0s", "on_violation": "adjust", "until": "until"}
        records = stream(spark, bootstrap, group, topic, onViolation="drop")
        once = sg.with_event_time(records, "timestamp", **settings).dropDuplicatesWithinWatermark(["offset"])
        return once.select("timestamp", "until")

    output = Output(tmp_path / "checkpoint")
    send(bootstrap, topic, [(10, 12)])
    output.run(timed())
    send(bootstrap, topic, [(5, 20), (5, 10), (7, None), (11, None)])
    output.run(timed())
    assert sorted(output.take(), key=str) == [(10, 12), (10, 20), (11, None)]
    assert output.counts == (2, 1)


@LONG
def test_W9_W10_imported_time_with_adjust_in_a_join(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    """A slow lookup stream follows a fast data stream. The adapter of the data stream generates its time."""
    data_topic, lookup_topic = new_topic(1, retention_ms="-1"), new_topic(1, retention_ms="-1")
    data_group = f"{group}-data"
    adapter = {"emitEvery": "1 record", "watermarkDelay": "0s"}

    def joined() -> DataFrame:
        data = sg.with_event_time(stream(spark, bootstrap, data_group, data_topic, **adapter), "timestamp")
        lookup = sg.with_event_time(
            stream(spark, bootstrap, f"{group}-lookup", lookup_topic),
            "timestamp",
            import_from=data_group,
            on_violation="adjust",
            until="until",
        )
        left = data.select(F.col("partition").alias("key"), F.col("timestamp").alias("at"))
        right = lookup.select(F.col("partition").alias("lookup_key"), F.col("timestamp").alias("since"), "until")
        # Spark derives the retention of its state from the condition, so it needs the longest validity of a record.
        joined = left.join(
            right, F.expr("key = lookup_key AND at >= since AND at < until AND at < since + INTERVAL 1 HOUR")
        )
        return joined.select("at", "since", "until")

    output = Output(tmp_path / "checkpoint")
    send(bootstrap, lookup_topic, [(0, 100)])
    send(bootstrap, data_topic, [(0, None), (10, None)])
    output.run(joined())
    assert output.take() == [(0, 0, 100), (10, 0, 100)]
    # The time of the data is at second 10. The first record is valid until later, and the second one is not.
    send(bootstrap, lookup_topic, [(2, 50), (3, 8)])
    send(bootstrap, data_topic, [(20, None)])
    output.run(joined())
    assert output.take() == [(10, 10, 50), (20, 0, 100), (20, 10, 50)]
    assert output.counts == (1, 1)
