"""A program that uses the library in a session of Spark Connect. It prints its results as one line of JSON.

Run by ``test_spark_connect.py``. A process has either a classic session or one of Spark Connect, so it is a program.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import streamgroups as sg


def main(bootstrap: str, topic: str, output: str, group: str, checkpoint: str) -> None:
    """Reads a batch and a stream, writes the stream to Kafka, and calls what Spark Connect cannot do."""
    # The server uses the packages of this process.
    spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "1").getOrCreate()
    try:
        sg.register(spark)
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
        streaming = {**given, "group.id": group, "startingOffsets": "earliest"}

        def stream(**options: str) -> DataFrame:
            return spark.readStream.format("streamgroups").options(**streaming, **options).load()

        def write(records: DataFrame, name: str) -> None:
            sink = {"kafka.bootstrap.servers": bootstrap, "topic": output, "checkpointLocation": f"{checkpoint}/{name}"}
            writer = records.select("key", "value").writeStream.format("streamgroups").options(**sink)
            writer.trigger(availableNow=True).start().awaitTermination(60)

        result = {
            "batch": spark.read.format("streamgroups").options(**given).load().count(),
            "shared": error_of(lambda: write(stream(), "shared")),
            "exactly_once": error_of(
                lambda: sg.exactly_once(
                    stream(), sink=sg.KafkaSink(bootstrap_servers=bootstrap, topic=output), checkpoint=checkpoint
                )
            ),
            "windows": error_of(
                lambda: sg.windows(
                    stream().withWatermark("timestamp", "10 seconds"),
                    on="timestamp",
                    by=["key"],
                    window=sg.shapes.tumbling("5 minutes"),
                    aggregate={"flights": "count(*)"},
                )
            ),
        }
        # The second run continues at the checkpoint of the first one.
        for _ in range(2):
            write(stream(membership="exclusive"), "exclusive")
        sys.stdout.write(json.dumps(result) + "\n")
    finally:
        spark.stop()


def error_of(call: Callable[[], Any]) -> str:
    """Returns the type and the text of the error of a call."""
    try:
        call()
    except (PySparkException, sg.errors.StreamGroupsError) as e:
        return f"{type(e).__name__}: {e}"
    return "no error"


if __name__ == "__main__":
    main(*sys.argv[1:])
