"""W19, S10: windows count intervals and edges, whose open edges continue in a query with a new checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from integration_tests.tiers import LONG
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.queries import shared_options

START_MS = 1_750_000_000_000
HOUR_S = 3_600


@LONG
def test_W19_windows_count_intervals_and_edges(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(1, retention_ms="-1")
    producer = ordered_producer(bootstrap)
    rows: list[tuple[Any, ...]] = []

    def write(*records: tuple[int, int | None]) -> None:
        """Each record has a time, and an end in its value. Both are seconds after a start."""
        for at_s, until_s in records:
            value = b"" if until_s is None else str(until_s).encode()
            producer.produce(topic, value, b"key", 0, timestamp=START_MS + at_s * 1_000)
        assert producer.flush(30) == 0

    def collect(batch: DataFrame, _: int) -> None:
        start = F.expr(f"(unix_millis(window_start) - {START_MS}) div 1000").alias("start")
        found = batch.select(start, "pane", "n", "revision", "dead_letter.details.why").collect()
        rows.extend(tuple(row) for row in found)

    def run(group: str, checkpoint: str, on: str, until: str, event_shape: str) -> list[tuple[Any, ...]]:
        """Runs a query over all new records. Returns its rows in the order of windows."""
        records = spark.readStream.format("streamgroups").options(**shared_options(bootstrap, group, topic, "consumer"))
        # The watermark follows each change of the start, because it is generated from the new column.
        timed = records.load().withColumns({"start": F.expr(on)}).withColumn("until", F.expr(until))
        counts = sg.windows(
            timed.withWatermark("start", "0 seconds"),
            on="start",
            until="until",
            event_shape=event_shape,
            by=["key"],
            window=sg.shapes.tumbling("10s"),
            aggregate={"n": "count(*)"},
            dead_letters=True,
        )
        rows.clear()
        writer = counts.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(120)
        return sorted(rows, key=lambda row: row[0])

    edge = ("timestamp", f"timestamp_millis({START_MS} + try_cast(cast(value AS string) AS bigint) * 1000)", "edge")
    write((1, None), (12, None))
    assert run(f"{topic}-edges", "first", *edge) == [(0, "on time", 1, 0, None)]
    # The first record ends an edge, and the second one has no start.
    write((1, 25), (13, 20), (45, None))
    assert run(f"{topic}-edges", "second", *edge) == [
        (10, "on time", 2, 0, None),
        (10, "dead letter", None, None, "no start"),
        (20, "on time", 2, 0, None),
        (30, "on time", 1, 0, None),
    ]
    # The same five records as intervals of 15 seconds, an hour later.
    intervals = run(
        f"{topic}-intervals", "third", "timestamp + interval 1 hour", "start + interval 15 seconds", "interval"
    )
    assert intervals == [(HOUR_S + at, "on time", n, 0, None) for at, n in ((0, 1), (10, 4), (20, 2))]
