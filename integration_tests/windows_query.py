"""Windows by event time as a program: ``python -m integration_tests.windows_query '{...}'``.
``test_windows_follow_event_time`` starts and kills it.

Each batch writes its output rows to one file with its number, so a batch that is run again replaces its file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from integration_tests.event_times import MINUTE_MS, START_MS, by_departure, departures, minute_of
from streamgroups_testkit.spark_sessions import ROCKSDB, STATE_STORE, session_builder


def flights_by_departure(spark: SparkSession, config: dict[str, Any]) -> DataFrame:
    """Windows of five minutes by the event time of the payload, with additional options."""
    timed = sg.with_event_time(by_departure(departures(spark, config["options"])), "departure", **config["event_time"])
    return sg.windows(
        timed,
        on="departure",
        window=sg.shapes.tumbling("5 minutes"),
        aggregate={"flights": "count(*)"},
        dead_letters=True,
        buckets=2,
        **config["windows"],
    )


def start(spark: SparkSession, config: dict[str, Any]) -> StreamingQuery:
    """Starts it with output to files, or exactly once to the topic of the option ``to``."""
    if "to" in config:
        return _start_to_kafka(spark, config)
    output = Path(config["output"])
    output.mkdir(exist_ok=True)

    def write(batch: DataFrame, batch_id: int) -> None:
        path = output / f"{batch_id}.json"
        path.with_suffix(".part").write_text(json.dumps([reported(row) for row in batch.collect()]))
        path.with_suffix(".part").rename(path)

    writer = flights_by_departure(spark, config).writeStream.foreachBatch(write)
    return writer.option("checkpointLocation", config["checkpoint"]).trigger(processingTime="500 milliseconds").start()


def _start_to_kafka(spark: SparkSession, config: dict[str, Any]) -> StreamingQuery:
    minute = ((F.unix_millis("window_start") - START_MS) / MINUTE_MS).cast("int").alias("minute")
    rows = flights_by_departure(spark, config).select(F.to_json(F.struct(minute, "flights")).alias("value"))
    writer = sg.exactly_once(rows, sink=sg.KafkaSink(**config["to"]), checkpoint=config["checkpoint"])
    return writer.trigger(processingTime="500 milliseconds").start()


def reported(row: Row) -> list[object]:
    """A row: the minute at which its window begins, the reason of the pane, and the number of flights or how late the
    record was.
    """
    return [
        minute_of(row.window_start),
        row.pane,
        row.flights if row.dead_letter is None else int(row.dead_letter.details["late_by_ms"]),
    ]


def rows(output: Path) -> list[list[Any]]:
    """All rows that were written so far."""
    return [row for path in output.glob("*.json") for row in json.loads(path.read_text())]


def main(config: dict[str, Any]) -> int:
    spark = session_builder("windows").config(STATE_STORE, ROCKSDB).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    sg.register(spark)
    start(spark, config).awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
