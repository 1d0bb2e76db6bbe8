"""A copy from Kafka to Kafka whose checkpoint is on an object store, as a program. Started by ``test_checkpoints_on_s3``, which
kills it, and by ``benchmarks.store_checkpoints``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import streamgroups as sg


def _own(spark: SparkSession, config: dict[str, Any]) -> DataStreamWriter:
    sg.register(spark)
    rows = spark.readStream.format("streamgroups").options(**config["options"]).load().select("value")
    sink = sg.KafkaSink(bootstrap_servers=config["options"]["kafka.bootstrap.servers"], topic=config["output"])
    return sg.exactly_once(rows, sink=sink, checkpoint=config["checkpoint"])


def _sparks(spark: SparkSession, config: dict[str, Any]) -> DataStreamWriter:
    rows = spark.readStream.format("kafka").options(**config["options"]).load().select("value")
    to = {"kafka.bootstrap.servers": config["options"]["kafka.bootstrap.servers"], "topic": config["output"]}
    return rows.writeStream.format("kafka").options(**to).option("checkpointLocation", config["checkpoint"])


def main(config: dict[str, Any]) -> None:
    """Runs the query.

    Args:
        config: ``options`` of the source, the topic ``output``, ``checkpoint``, ``spark``, the settings of the session, and ``is_own``,
            whether source and sink are those of streamgroups. With ``until_read`` it ends when all records are read, and the
            last line of its output is a list with the durations of its triggers in milliseconds, as JSON.
    """
    builder = SparkSession.builder
    for name, value in config["spark"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    query = (_own if config["is_own"] else _sparks)(spark, config).start()
    if config["until_read"]:
        query.processAllAvailable()
        found = [it.durationMs["triggerExecution"] for it in query.recentProgress if it.numInputRows]
        sys.stdout.write(json.dumps(found) + "\n")
        query.stop()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
