"""W16: with ``maxDrift`` a partition that is ahead of the watermark waits for the others, and the state stays small."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from prometheus_client import CollectorRegistry
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from integration_tests.tiers import LONG
from streamgroups.errors import InvalidOption
from streamgroups_testkit.queries import exclusive_options, shared_options
from streamgroups_testkit.reading import committed_offsets

logger = logging.getLogger(__name__)

START_MS = 1_750_032_000_000
MINUTE_MS = 60_000
DAY = 24 * 60


def write(bootstrap: str, topic: str, minutes: dict[int, range]) -> None:
    """Writes a record for each minute, by partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True})
    for partition, of in minutes.items():
        for minute in of:
            producer.produce(topic, None, f"key-{partition}", partition, timestamp=START_MS + minute * MINUTE_MS)
    assert producer.flush(60) == 0


def windows(spark: SparkSession, options: dict[str, str], time: str) -> DataFrame:
    timed = spark.readStream.format("streamgroups").options(**options).load().withWatermark("timestamp", "0 seconds")
    aggregate = {"n": "count(*)"}
    return sg.windows(
        timed, on="timestamp", by=["key"], window=sg.shapes.tumbling("5m"), aggregate=aggregate, time=time
    )


class States:
    """The state of a group's partitions while a query runs, by ``sg.reports.MetricsListener``."""

    def __init__(self, group: str) -> None:
        self._group, self._registry = group, CollectorRegistry()
        self._metrics = sg.reports.MetricsListener(registry=self._registry)
        self.largest, self.rows, self.batches = 0, 0, 0

    def write(self, batch: DataFrame, _: int) -> None:
        found = [
            sample.value
            for family in self._registry.collect()
            for sample in family.samples
            if sample.name == "streamgroups_partition_state_rows" and sample.labels["group"] == self._group
        ]
        self.largest = max(self.largest, int(sum(found)))
        self.rows += batch.count()
        self.batches += 1

    def run(self, rows: DataFrame, checkpoint: Path) -> States:
        writer = rows.writeStream.foreachBatch(self.write).trigger(availableNow=True)
        try:
            assert writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination(300)
        finally:
            self._metrics.close()
        return self


@LONG
def test_W16_the_state_of_windows_of_the_group_is_a_tenth_if_a_partition_is_a_day_behind(
    spark: SparkSession, bootstrap: str, group: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(3, retention_ms="-1")
    write(bootstrap, topic, {0: range(DAY), 1: range(-DAY, DAY), 2: range(DAY)})
    found = {}
    for name, limit in (("unlimited", {}), ("limited", {"maxDrift": "2h"})):
        options = shared_options(bootstrap, f"{group}-{name}", topic, "consumer") | limit
        states = States(f"{group}-{name}").run(windows(spark, options, "group"), tmp_path / name)
        found[name] = states
        ends = {0: DAY, 1: 2 * DAY, 2: DAY}
        assert committed_offsets(bootstrap, f"{group}-{name}", topic) == ends, "the run reads everything"
    unlimited, limited = found["unlimited"], found["limited"]
    logger.info(
        "rows of state: %d, with maxDrift %d in %d batches", unlimited.largest, limited.largest, limited.batches
    )
    assert unlimited.rows == limited.rows > 1_100, "the same windows close"
    assert 0 < limited.largest * 10 <= unlimited.largest


@LONG
def test_W16_the_state_of_sparks_own_windows_is_limited_too(
    spark: SparkSession, bootstrap: str, group: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(2, retention_ms="-1")
    write(bootstrap, topic, {0: range(60), 1: range(-240, 60)})
    options = exclusive_options(bootstrap, group, topic, "consumer") | {"maxDrift": "1h"}
    flights = spark.readStream.format("streamgroups").options(**options).load()
    timed = sg.with_event_time(flights, "timestamp", watermark_delay="0s")
    counts = timed.groupBy(F.window("timestamp", "5 minutes")).count()
    emitted: list[int] = []
    writer = counts.writeStream.outputMode("append").foreachBatch(
        lambda batch, _: emitted.extend(row["count"] for row in batch.collect())
    )
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    assert committed_offsets(bootstrap, group, topic) == {0: 60, 1: 300}
    rows = [it["stateOperators"][0]["numRowsTotal"] for it in query.recentProgress if it["stateOperators"]]
    # Without the limit, the first batch would open all 60 windows.
    assert 0 < max(rows) <= 30
    late = sum(
        it["stateOperators"][0]["numRowsDroppedByWatermark"] for it in query.recentProgress if it["stateOperators"]
    )
    assert (late, sum(emitted) > 300) == (0, True), "only the last windows are open"


def test_W16_max_drift_without_a_common_watermark_is_rejected(
    spark: SparkSession, bootstrap: str, group: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    options = exclusive_options(bootstrap, group, new_topic(1), "consumer") | {"maxDrift": "1h"}
    for time in ("partition", "query"):
        with pytest.raises(InvalidOption, match=r"'maxDrift' of the source is 1h.* no common watermark .*sg\.windows"):
            windows(spark, options, time)
    flights = spark.readStream.format("streamgroups").options(**options).load()
    with pytest.raises(InvalidOption, match=r"'maxDrift' of the source is 1h.* sg\.stateful"):
        sg.stateful(
            flights, lambda state, records, _: (state, records), by=["key"], state="n bigint", output="n bigint"
        )
    query = flights.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException, match=r"'maxDrift' is 1h, but the query of group .* has no watermark"):
        query.awaitTermination(120)
