"""Flights by carrier and hour as a program: ``python -m integration_tests.flights_query '{...}'``.
``test_a_month_of_flights`` starts and kills it.

The windows are those of Spark, with a watermark of ``sg.with_event_time``, or those of partitions with the watermark of
the group. The output is exactly once in the topic of the option ``to``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from streamgroups_testkit.spark_sessions import session_builder

#: Records of a partition are out of order by at most this time.
DELAY = "30 minutes"


def flights_by_hour(spark: SparkSession, options: dict[str, str], time: str) -> DataFrame:
    """The number of flights of each carrier and hour."""
    records = spark.readStream.format("streamgroups").options(**options).load()
    departure_ms = F.get_json_object(F.col("value").cast("string"), "$.departure_ms").cast("long")
    flights = records.withColumn("departure", F.timestamp_millis(departure_ms))
    flights = flights.withColumn("key", F.col("key").cast("string"))
    if time == "query":
        timed = sg.with_event_time(flights, "departure", watermark_delay=DELAY)
    else:
        timed = flights.withWatermark("departure", DELAY)
    return sg.windows(
        timed,
        on="departure",
        by=["key"],
        window=sg.shapes.tumbling("1 hour"),
        aggregate={"flights": "count(*)"},
        time=time,
    )


def main(config: dict[str, Any]) -> int:
    spark = session_builder("flights").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    sg.register(spark)
    windows = flights_by_hour(spark, config["options"], config["time"])
    hour_ms = F.unix_millis("window_start").alias("hour_ms")
    rows = windows.select(F.to_json(F.struct(hour_ms, "key", "flights")).alias("value"))
    writer = sg.exactly_once(rows, sink=sg.KafkaSink(**config["to"]), checkpoint=config["checkpoint"])
    writer.trigger(processingTime="200 milliseconds").start().awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
