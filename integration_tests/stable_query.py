"""A query with a nondeterministic function and a side effect, as a program: ``python -m integration_tests.stable_query
'{...}'``. ``test_side_effects_have_stable_input`` starts and kills it.
"""

from __future__ import annotations

import json
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from streamgroups_testkit.spark_sessions import session_builder

#: Every fifth record has no row.
FILTERED = 5


def start(spark: SparkSession, config: dict[str, Any]) -> StreamingQuery:
    """Starts the query. It writes the rows of each batch as computed, and as its effect has received them."""
    name, directory = config["name"], Path(config["directory"])
    hangs = threading.Event()
    records = spark.readStream.format("streamgroups").options(**config["options"]).load()
    rows = records.where(F.col("offset") % FILTERED != 0).select(
        "topic",
        "partition",
        "offset",
        F.col("value").cast("string").alias("value"),
        F.current_timestamp().alias("batch_time"),
        F.expr("uuid()").alias("chance"),
    )

    def effect(found: DataFrame, batch: sg.side_effects.StableBatch) -> None:
        _store(directory, name, "effect", found, ranges=[str(it) for it in batch.ranges], repeated=len(batch.repeated))

    stable = sg.side_effects.stable_batches(effect, checkpoint=config["checkpoint"], location=str(directory / "stable"))

    def write(found: DataFrame, batch_id: int) -> None:
        _store(directory, name, "computed", found, batch_id=batch_id)
        stable(found, batch_id)
        if config["hangs"]:
            (directory / "hangs").touch()
            hangs.wait()

    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", config["checkpoint"])
    return writer.trigger(processingTime="200 milliseconds").start()


def _store(directory: Path, name: str, kind: str, rows: DataFrame, **more: Any) -> None:
    found = [{**row.asDict(), "batch_time": row.batch_time.timestamp()} for row in rows.collect()]
    path = directory / kind / f"{name}-{uuid.uuid4().hex}.json"
    path.parent.mkdir(exist_ok=True)
    path.with_suffix(".part").write_text(json.dumps({"name": name, "rows": found, **more}))
    path.with_suffix(".part").rename(path)


def main(config: dict[str, Any]) -> int:
    spark = session_builder("stable").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    sg.register(spark)
    start(spark, config).awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
