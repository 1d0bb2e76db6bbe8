"""The query of the demo: ``python -m demo.query '{...}'``. Started by ``demo.processes``, two or three times.

It reads flights as one member of the group, and computes the delays of each airport and hour. The members share the
windows of a partition as they share the partition: its next owner continues with them. The rows are in the output topic
exactly once, also after a kill.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg

_FLIGHT = "dest string, time_hour timestamp, arr_delay double"
WATERMARK_DELAY, ALLOWED_LATENESS = "6 hours", "36 hours"


def main(config: dict[str, Any]) -> int:
    """Runs the query until SIGTERM."""
    _end_with_the_demo()
    spark = _session(config["name"])
    flights = (
        spark.readStream.format("streamgroups")
        .options(**config["options"])
        .load()
        .withColumn("flight", F.from_json(F.col("value").cast("string"), _FLIGHT))
        .select("partition", "offset", "flight.*")
    )
    rows = delays(flights).select(
        F.col("dest").alias("airport"),
        F.col("window_start").alias("hour"),
        *("flights", "arrived", "mean_min", "worst_min", "revision"),
        F.lit(config["name"]).alias("member"),
    )
    output = rows.select(F.to_json(F.struct("*"), {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ssX"}).alias("value"))
    sink = sg.KafkaSink(bootstrap_servers=config["options"]["kafka.bootstrap.servers"], topic=config["output"])
    query = (
        sg.exactly_once(output, sink=sink, checkpoint=config["checkpoint"])
        .trigger(processingTime="500 milliseconds")
        .start()
    )

    # A flag instead of an exception, because an exception during a call to Java breaks the connection.
    stop_requested = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop_requested.set())
    while not stop_requested.is_set() and not query.awaitTermination(0.2):  # type: ignore[arg-type]
        pass
    query.stop()
    spark.stop()
    return 0


def delays(flights: DataFrame) -> DataFrame:
    """Returns the delays by airport and hour.

    A flight is written to the topic when it lands, after flights that are up to 31 hours ahead of it. The row of an hour is
    emitted 6 hours after its end. A flight that lands later updates the row, within 36 more hours. Flights that were
    cancelled or diverted have no delay: only ``flights`` counts them.
    """
    return sg.windows(
        flights.withWatermark("time_hour", WATERMARK_DELAY),
        on="time_hour",
        by=["dest"],
        window=sg.shapes.tumbling("1 hour"),
        aggregate={
            "flights": "count(*)",
            "arrived": "count(arr_delay)",
            "mean_min": "avg(arr_delay)",
            "worst_min": "max(arr_delay)",
        },
        allowed_lateness=ALLOWED_LATENESS,
        # The key of a record is its airport, so that an airport is in one partition.
        prepartitioned=True,
    )


def _session(name: str) -> SparkSession:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    sg.register(spark)
    return spark


def _end_with_the_demo() -> None:
    """Ends with the demo: standard input is a pipe from the demo, and its end means that the demo has ended."""

    def wait() -> None:
        os.read(0, 1)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=wait, name="demo-watch", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
