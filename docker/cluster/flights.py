"""The query of docker/cluster.yaml: copies flights to a topic, exactly once, and exports its metrics."""

import os

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg

spark = SparkSession.builder.appName("flights").getOrCreate()
sg.register(spark)
spark.streams.addListener(sg.reports.MetricsListener(port=int(os.environ["METRICS_PORT"]), host="0.0.0.0"))
brokers = os.environ["BROKERS"]


def start() -> StreamingQuery:
    flights = (
        spark.readStream.format("streamgroups")
        .option("kafka.bootstrap.servers", brokers)
        .option("group.id", "flights")
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .load()
    )
    delays = sg.KafkaSink(bootstrap_servers=brokers, topic="delays")
    rows = flights.select("key", "value")
    return sg.exactly_once(rows, sink=delays, checkpoint="/checkpoints/flights").queryName("flights").start()


sg.supervise(start)
spark.stop()
