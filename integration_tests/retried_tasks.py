"""A query whose first task fails after its write. Run as ``python -m integration_tests.retried_tasks '{...}'``.

The session of the tests does not retry tasks, so this query has one of its own. Started by ``test_a_task_is_retried``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from streamgroups_testkit.spark_sessions import session_builder

#: Two cores, and two attempts of each task.
MASTER = "local[2,2]"


def run(spark: SparkSession, config: dict[str, Any], name: str, sink: Any, columns: list[str]) -> str:
    """Runs a query to its end; returns the error if it failed."""
    failed = Path(config["directory"]) / f"{name}-has-failed"

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0 and not failed.exists():
            failed.touch()
            raise RuntimeError("the first attempt fails")

    options = {
        "kafka.bootstrap.servers": config["bootstrap"],
        "subscribe": config["topic"],
        "group.id": f"{config['group']}-{name}",
        "startingOffsets": "earliest",
    }
    source = spark.readStream.format("streamgroups").options(**options).load()
    rows = source.select("value", F.col("key").cast("string").cast("int").alias("number")).select(*columns)
    writer = sg.exactly_once(
        rows.mapInArrow(fail_once, rows.schema), sink=sink, checkpoint=f"{config['directory']}/checkpoint-{name}"
    )
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination(120)
    except StreamingQueryException as e:
        return str(e)
    finally:
        query.stop()
    return ""


def main(config: dict[str, Any]) -> int:
    spark = session_builder("retried-tasks").master(MASTER).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    sg.register(spark)
    kafka = sg.KafkaSink(bootstrap_servers=config["bootstrap"], topic=config["board"])
    ledgers: dict[str, Any] = {
        "postgres": sg.PostgresSink(conninfo=config["postgres"], table="board"),
        "delta": sg.DeltaSink(uri=config["delta"]),
    }
    ledger = config["ledger"]
    result = {
        "kafka": run(spark, config, "kafka", kafka, ["value"]),
        "kafka, restarted": run(spark, config, "kafka", kafka, ["value"]),
        ledger: run(spark, config, ledger, ledgers[ledger], ["number"]),
    }
    # On a separate line, so that the test can find it.
    print("results", json.dumps(result), flush=True)  # noqa: T201
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
