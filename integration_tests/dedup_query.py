"""A query without duplicates as a program: ``python -m integration_tests.dedup_query '{...}'``.
``test_dedup_drops_retries`` starts and kills it.
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


def once(df: DataFrame, **arguments: Any) -> DataFrame:
    """The records of a stream, without those that a producer has sent again."""
    return sg.dedup(df, **{"id": "key", "horizon": "10 minutes"} | arguments)


def start(spark: SparkSession, config: dict[str, Any]) -> StreamingQuery:
    """Starts the query, which writes the place and the id of each record, exactly once."""
    records = spark.readStream.format("streamgroups").options(**config["options"]).load()
    place = F.struct("partition", "offset", F.expr("cast(key AS string)").alias("id"))
    rows = once(records).select(F.to_json(place).alias("value"))
    return sg.exactly_once(rows, sink=sg.KafkaSink(**config["to"]), checkpoint=config["checkpoint"]).start()


def main(config: dict[str, Any]) -> int:
    spark = session_builder("dedup").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    sg.register(spark)
    start(spark, config).awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
