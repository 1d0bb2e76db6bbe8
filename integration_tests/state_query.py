"""Windows over a shared stream as a program: ``python -m integration_tests.state_query '{...}'``.
``test_state_follows_its_partition`` starts and kills it.

The output is one file for each batch, or the topic of the option ``to``, exactly once.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from streamgroups_testkit.spark_sessions import session_builder

SIZE_S, DELAY_S, LATENESS_S = 10, 2, 5


def counts(spark: SparkSession, options: dict[str, str], time: str | None = None) -> DataFrame:
    """Records per window and key, and the sum of their values. ``time`` is that of ``sg.windows``."""
    records = spark.readStream.format("streamgroups").options(**options).load()
    timed = records.withColumn("key", F.expr("cast(key AS string)")).withWatermark("timestamp", f"{DELAY_S} seconds")
    return sg.windows(
        timed,
        on="timestamp",
        by=["key"],
        window=sg.shapes.tumbling(f"{SIZE_S} seconds"),
        aggregate={"n": "count(*)", "total": "sum(cast(cast(value AS string) AS bigint))"},
        allowed_lateness=f"{LATENESS_S} seconds",
        time=time,
    )


def start(spark: SparkSession, config: dict[str, Any]) -> StreamingQuery:
    """Starts the query."""
    rows = counts(spark, config["options"]).select(
        F.unix_millis("window_start").alias("start"), "key", "n", "total", "pane", "revision"
    )
    trigger = config.get("trigger", {"processingTime": "300 milliseconds"})
    if "to" in config:
        out = rows.select(F.to_json(F.struct(*rows.columns)).alias("value"))
        sink = sg.KafkaSink(**config["to"])
        return sg.exactly_once(out, sink=sink, checkpoint=config["checkpoint"]).trigger(**trigger).start()
    output = Path(config["output"])
    output.mkdir(parents=True, exist_ok=True)

    def write(batch: DataFrame, batch_id: int) -> None:
        path = output / f"{config['name']}-{batch_id}.json"
        path.with_suffix(".part").write_text(json.dumps([row.asDict() for row in batch.collect()]))
        path.with_suffix(".part").rename(path)

    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", config["checkpoint"])
    return writer.trigger(**trigger).start()


def main(config: dict[str, Any]) -> int:
    spark = session_builder("state").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    sg.register(spark)
    start(spark, config).awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
