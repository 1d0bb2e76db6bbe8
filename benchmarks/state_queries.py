"""Names and queries that the measurements of state have in common. Used by ``state``, ``other_keys`` and
``dedup``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from benchmarks.sources import until_end
from streamgroups_testkit.spark_sessions import ROCKSDB, STATE_STORE

SPARK_WINDOWS = "Spark's window aggregation, RocksDB"
EXCLUSIVE = "sg.windows, exclusive, transformWithState"


@contextmanager
def rocksdb(spark: SparkSession) -> Iterator[None]:
    """Spark's state store for the queries of a family. ``transformWithState`` needs it."""
    spark.conf.set(STATE_STORE, ROCKSDB)
    try:
        yield
    finally:
        spark.conf.unset(STATE_STORE)


def windows(frame: DataFrame, *, by: str, delay: str, **more: Any) -> DataFrame:
    """Counts records by a column in windows of a minute.

    Args:
        frame: the records.
        by: the column.
        delay: the delay of the watermark.
        more: more arguments of ``sg.windows``.
    """
    timed = frame.withWatermark("timestamp", delay)
    return sg.windows(
        timed, on="timestamp", by=[by], window=sg.shapes.tumbling("1 minute"), aggregate={"n": "count(*)"}, **more
    )


def spark_windows(frame: DataFrame, *, by: str, delay: str) -> DataFrame:
    """The same counts by Spark's own window aggregation."""
    timed = frame.withWatermark("timestamp", delay)
    return timed.groupBy(F.window("timestamp", "1 minute"), by).agg(F.count("*").alias("n"))


def until_all_is_read(rows: DataFrame, checkpoint: Path) -> list[Any]:
    """Runs a query that reads all available records. Returns its progress reports.

    Args:
        rows: the query. The sum of its column ``n`` is observed.
        checkpoint: the checkpoint.
    """
    observed = rows.observe("check", F.sum("n").alias("n"))
    writer = observed.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    return until_end(writer.trigger(availableNow=True).start())


def counted(progress: list[Any]) -> int:
    """Returns the sum of ``n`` in all batches."""
    rows = (it.observedMetrics.get("check") for it in progress)
    return sum(row["n"] or 0 for row in rows if row)


def triggers_s(progress: list[Any]) -> float:
    """Returns the time of all triggers, in seconds."""
    return float(sum(it.durationMs["triggerExecution"] for it in progress)) / 1000
