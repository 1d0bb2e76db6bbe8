"""A member of a campaign: a query that writes exactly once, in a process of its own. ``python -m integration_tests.campaign_query '{...}'``."""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from streamgroups.supervision import RestartPolicy


def sink_of(config: dict[str, Any]) -> Any:
    """The sink that is asked for."""
    if config["sink"] == "kafka":
        to = {"kafka.bootstrap.servers": config["bootstrap"], "topic": config["to"]}
        return sg.KafkaSink({**to, "delivery": "at-least-once"} if config["sabotaged"] else to)
    if config["sink"] == "postgres":
        return sg.PostgresSink(conninfo=config["to"], table="board")
    return sg.DeltaSink(uri=config["to"])


def output(source: DataFrame, sink: str) -> DataFrame:
    """What is written of each record: enough to tell which one it was."""
    if sink == "kafka":
        # The source's partition is kept: so the order within it can be seen.
        return source.select("value", "partition")
    return source.select(F.col("value").cast("string").alias("value"), "partition", "offset")


def main(config: dict[str, Any]) -> int:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName(config["name"])
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    sg.register(spark)

    def start() -> StreamingQuery:
        source = spark.readStream.format("streamgroups").options(**config["options"]).load()
        to_write = output(source, config["sink"])
        writer = sg.exactly_once(to_write, sink=sink_of(config), checkpoint=config["checkpoint"])
        return writer.trigger(processingTime="50 milliseconds").start()

    sg.supervise(start, policy=RestartPolicy(first_wait_ms=50, most_wait_ms=500, most_failures=1_000))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
