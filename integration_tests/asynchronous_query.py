"""A query with Spark's asynchronous progress tracking, as a program:
``python -m integration_tests.asynchronous_query '{...}'``. ``test_asynchronous_progress_tracking`` starts and kills it.

The output is one file for each batch. Its name is no batch id: after a kill Spark uses batch ids again.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from streamgroups_testkit.spark_sessions import session_builder

#: Spark permits no other sink than its own ones without the second option, which it does not document.
OPTIONS = {"asyncProgressTrackingEnabled": "true", "_asyncProgressTrackingOverrideSinkSupportCheck": "true"}


def start(spark: SparkSession, config: dict[str, Any]) -> StreamingQuery:
    """Starts the query."""
    rows = spark.readStream.format("streamgroups").options(**config["options"]).load()
    if config["windows"]:
        rows = sg.windows(
            rows.withWatermark("timestamp", "0 seconds"),
            on="timestamp",
            by=["partition"],
            window=sg.shapes.tumbling("10 milliseconds"),
            aggregate={"offset": "min(offset)", "n": "count(*)"},
            prepartitioned=True,
        )
    output = Path(config["output"])

    def write(batch: DataFrame, _batch_id: int) -> None:
        path = output / uuid.uuid4().hex
        names = [name for name in ("partition", "offset", "n") if name in batch.columns]
        path.write_text(json.dumps([[row[name] for name in names] for row in batch.collect()]))
        path.rename(path.with_suffix(".json"))

    writer = rows.writeStream.foreachBatch(write).options(checkpointLocation=config["checkpoint"], **OPTIONS)
    return writer.trigger(processingTime="0 seconds").start()


def main(config: dict[str, Any]) -> int:
    spark = session_builder("asynchronous").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    sg.register(spark)
    start(spark, config).awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
