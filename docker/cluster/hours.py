"""Counts flights by carrier and hour, and writes the counts to PostgreSQL, exactly once: hours.py CHECKPOINT

The windows of the tutorial for a cluster. Any number of drivers share the group. Each has its own checkpoint, and all
checkpoints are in one directory, which drivers and executors share. It also contains the state.
"""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg

spark = SparkSession.builder.appName("hours").getOrCreate()
sg.register(spark)


def start() -> StreamingQuery:
    flights = (
        spark.readStream.format("streamgroups")
        .option("kafka.bootstrap.servers", os.environ["BROKERS"])
        .option("group.id", "hours")
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .load()
    )
    hours = sg.windows(
        flights.withWatermark("timestamp", "1 minute"),
        on="timestamp",
        by=["key"],
        window=sg.shapes.tumbling("1 hour"),
        aggregate={"flights": "count(*)"},
    )
    rows = hours.selectExpr("window_start AS hour", "CAST(key AS STRING) AS carrier", "flights")
    table = sg.PostgresSink(conninfo=os.environ["DATABASE"], table="hours")
    return sg.exactly_once(rows, sink=table, checkpoint=sys.argv[1]).queryName("hours").start()


sg.supervise(start)
spark.stop()
