"""Two queries as a program: ``python -m integration_tests.repartition_query '{...}'``. One writes flights to a topic that is
partitioned by airport, the other one counts them in windows. ``test_repartition`` starts and kills it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from streamgroups_testkit.spark_sessions import session_builder

PARTITIONS, SIZE_MS = 3, 10_000
COLUMNS = "timestamp timestamp, airport string"
_EVERY = {"processingTime": "200 milliseconds"}


def write(spark: SparkSession, config: dict[str, Any]) -> StreamingQuery:
    """Starts the query that writes the topic."""
    records = spark.readStream.format("streamgroups").options(**config["source"]).load()
    flights = records.select(F.from_json(F.col("value").cast("string"), "at_ms bigint, airport string").alias("it"))
    columns = flights.selectExpr("timestamp_millis(it.at_ms) AS timestamp", "it.airport")
    directory = config["directory"]
    writer = sg.repartition(
        columns, by=["airport"], topic=config["topic"], partitions=PARTITIONS, checkpoint=f"{directory}/writing"
    )
    return writer.trigger(**_EVERY).start()


def count(spark: SparkSession, config: dict[str, Any]) -> StreamingQuery:
    """Starts the query that reads the topic."""
    flights = sg.read_repartitioned(
        spark, topic=config["topic"], by=["airport"], columns=COLUMNS, options=config["options"]
    )
    counts = sg.windows(
        flights.withWatermark("timestamp", "0 seconds"),
        on="timestamp",
        by=["airport"],
        window=sg.shapes.tumbling(f"{SIZE_MS}ms"),
        aggregate={"n": "count(*)"},
        allowed_lateness="1 day",
    )
    rows = F.struct(F.unix_millis("window_start").alias("start_ms"), "airport", "n", "revision")
    output = counts.select(F.to_json(rows, {"ignoreNullFields": "false"}).alias("value"))
    sink = sg.KafkaSink(bootstrap_servers=config["source"]["kafka.bootstrap.servers"], topic=config["counts"])
    return sg.exactly_once(output, sink=sink, checkpoint=f"{config['directory']}/counting").trigger(**_EVERY).start()


def main(config: dict[str, Any]) -> int:
    spark = session_builder("repartition").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    sg.register(spark)
    write(spark, config)
    count(spark, config)
    spark.streams.awaitAnyTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
