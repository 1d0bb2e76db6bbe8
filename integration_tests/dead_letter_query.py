"""A query that decodes, calls a function and writes, with dead letters, as a program:
``python -m integration_tests.dead_letter_query '{...}'``. ``test_ten_thousand_records_with_poison`` starts and kills it.
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

#: The size of a value that the topic of the output rejects.
LIMIT = 100_000


def priced(record: dict[str, Any]) -> dict[str, Any]:
    """Raises an error for a flight without seats."""
    return {"price": record["delay"] / record["seats"]}


def start(spark: SparkSession, config: dict[str, Any]) -> StreamingQuery:
    """Starts the query."""
    records = spark.readStream.format("streamgroups").options(**config["options"]).load()
    decoded = sg.decode(records, sg.schemas.Json("n int, delay int, seats int, padding int"))
    flights = decoded.select("*", "record.delay", "record.seats").withColumn("n", F.col("record.n"))
    # Letters of the function have the source record.
    prices = sg.safely(flights, priced, output="price double", columns=["delay", "seats"], takes="record")
    text = F.concat(F.to_json(F.struct("n", "price")), F.repeat(F.lit(" "), F.coalesce("record.padding", F.lit(0))))
    rows = prices.select("key", text.alias("value"), "dead_letter")
    sink = sg.KafkaSink(
        bootstrap_servers=config["bootstrap"], topic=config["board"], settings={"max.request.size": str(LIMIT)}
    )
    dead: Any = sg.KafkaSink(bootstrap_servers=config["bootstrap"], topic=config["dead"])
    if "postgres" in config:
        dead = sg.PostgresSink(conninfo=config["postgres"], table=config["dead"])
    writer = sg.exactly_once(rows, sink=sink, dead_letters=dead, checkpoint=config["checkpoint"])
    return writer.queryName("prices").trigger(processingTime="200 milliseconds").start()


def main(config: dict[str, Any]) -> int:
    spark = session_builder("letters").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    sg.register(spark)
    start(spark, config).awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
