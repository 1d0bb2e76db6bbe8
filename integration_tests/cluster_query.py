"""The queries of the tutorial on a cluster, as a program: ``python -m integration_tests.cluster_query '{...}'``.
``test_spark_clusters`` starts it, and kills its executors.

Two supervised queries of one group write late flights to a topic, exactly once. When the file ``stop`` exists, they end,
and a query counts all flights by carrier and hour if there is a topic for the hours.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from streamgroups.doctor.executor_checks import judge_executors
from streamgroups_spark.ops.executors import driver_versions, probe_executors
from streamgroups_testkit.spark_sessions import jvm_options, session_builder

#: The task that reads this flight waits until its executor is killed.
HELD_FLIGHT = 50
_HOLD_TIMEOUT_S = 120


def flights(spark: SparkSession, config: dict[str, Any], group: str) -> DataFrame:
    options = {
        "kafka.bootstrap.servers": config["bootstrap"],
        "subscribe": config["flights"],
        "group.id": group,
        "startingOffsets": "earliest",
    }
    return spark.readStream.format("streamgroups").options(**options).load()


def hold_once(directory: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function that waits at one flight, in its first attempt only. Each attempt writes a file with its process."""

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if pc.any(pc.equal(batch["number"], HELD_FLIGHT)).as_py():
                earlier = any(Path(directory).glob("attempt-*"))
                Path(directory, f"attempt-{os.getppid()}").touch()
                if not earlier:
                    time.sleep(_HOLD_TIMEOUT_S)
            yield batch

    return hold


def late_flights(spark: SparkSession, config: dict[str, Any], name: str) -> StreamingQuery:
    """The first query of the tutorial, with a function that can be held."""
    flight = F.from_json(F.col("value").cast("string"), "carrier string, number int, delay int")
    rows = flights(spark, config, config["group"]).select("key", flight.alias("flight")).select("key", "flight.*")
    held = rows.mapInArrow(hold_once(config["directory"]), rows.schema).where("delay > 15")
    late = held.select(
        "key", F.to_json(F.struct("carrier", "number", "delay", F.lit(name).alias("query"))).alias("value")
    )
    sink = sg.KafkaSink(bootstrap_servers=config["bootstrap"], topic=config["late"])
    writer = sg.exactly_once(late, sink=sink, checkpoint=f"{config['directory']}/checkpoints/{name}")
    return writer.queryName(name).trigger(processingTime="200 milliseconds").start()


def hours(spark: SparkSession, config: dict[str, Any]) -> None:
    """The windows of the tutorial, to their end."""
    counts = sg.windows(
        flights(spark, config, f"{config['group']}-hours").withWatermark("timestamp", "1 minute"),
        on="timestamp",
        by=["key"],
        window=sg.shapes.tumbling("1 hour"),
        aggregate={"flights": "count(*)"},
        flush=True,
    )
    hour = F.unix_millis("window_start").alias("hour_ms")
    rows = counts.select(F.to_json(F.struct(hour, F.col("key").cast("string").alias("key"), "flights")).alias("value"))
    sink = sg.KafkaSink(bootstrap_servers=config["bootstrap"], topic=config["hours"])
    writer = sg.exactly_once(rows, sink=sink, checkpoint=f"{config['directory']}/checkpoints/hours")
    writer.trigger(availableNow=True).start().awaitTermination()


def main(config: dict[str, Any]) -> int:
    builder = session_builder("cluster").master(config["master"]).config("spark.driver.memory", "512m")
    builder = builder.config("spark.executor.memory", "512m").config("spark.executor.cores", "1")
    spark = (
        builder.config("spark.executor.extraJavaOptions", jvm_options()).config("spark.cores.max", "2").getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    sg.register(spark)
    directory = Path(config["directory"])
    found = judge_executors(*probe_executors(spark, [config["bootstrap"]]), driver_versions())
    (directory / "executors.json").write_text(json.dumps([{**asdict(it), "state": it.state.value} for it in found]))

    def supervise(name: str) -> None:
        outcome = sg.supervise(lambda: late_flights(spark, config, name))
        (directory / f"{name}.restarts").write_text(str(outcome.restarts))

    threads = [threading.Thread(target=supervise, args=(name,)) for name in config["queries"]]
    for thread in threads:
        thread.start()
    while not (directory / "stop").exists() and all(thread.is_alive() for thread in threads):
        time.sleep(0.1)
    for query in spark.streams.active:
        query.stop()
    for thread in threads:
        thread.join()
    if "hours" in config:
        hours(spark, config)
    application = spark.sparkContext.applicationId
    spark.stop()
    # The workers of "local-cluster" write to the Spark home, which other tests use too.
    shutil.rmtree(Path(os.environ["SPARK_HOME"], "work", application), ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
