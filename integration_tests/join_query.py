"""The query of ``test_joins_of_topics`` as a program: ``python -m integration_tests.join_query '{...}'``.

It joins two topics and writes the rows to a topic or a Delta table, exactly once.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from streamgroups_testkit.spark_sessions import session_builder
from unit_tests.streamgroups_operators.join_model import DELAY_US, WITHIN_US


def joined(spark: SparkSession, left: str, right: str, options: dict[str, str], **more: Any) -> DataFrame:
    """The partition, the key, and the offsets of both records of each row."""
    records = spark.readStream.format("streamgroups").options(**options).load()
    timed = records.select("key", "topic", "partition", "offset", "timestamp").withWatermark(
        "timestamp", f"{DELAY_US // 1_000_000} seconds"
    )
    within = f"{WITHIN_US // 1_000_000}s"
    arguments: dict[str, Any] = {
        "by": ["key"],
        "on": "timestamp",
        "within": within,
        "how": "full",
        "dead_letters": True,
    } | more
    rows = sg.join(timed, left=left, right=right, name="paid", **arguments)
    return rows.select(
        F.coalesce("left.partition", "right.partition").alias("partition"),
        F.col("key").cast("string"),
        F.col("left.offset").alias("one"),
        F.col("right.offset").alias("other"),
        F.col("dead_letter").isNotNull().alias("late"),
    )


def start(spark: SparkSession, config: dict[str, Any]) -> StreamingQuery:
    """Starts the query."""
    rows = joined(spark, config["left"], config["right"], config["options"])
    if "delta" in config:
        writer = sg.exactly_once(rows, sink=sg.DeltaSink(uri=config["delta"]), checkpoint=config["checkpoint"])
    else:
        out = rows.select(F.to_json(F.struct(*rows.columns)).alias("value"))
        writer = sg.exactly_once(out, sink=sg.KafkaSink(**config["to"]), checkpoint=config["checkpoint"])
    return writer.trigger(**config.get("trigger", {"processingTime": "300 milliseconds"})).start()


def main(config: dict[str, Any]) -> int:
    # Another time zone than the session of the tests: a state does not depend on it.
    spark = session_builder("join").config("spark.sql.session.timeZone", "Asia/Tokyo").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    sg.register(spark)
    start(spark, config).awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
