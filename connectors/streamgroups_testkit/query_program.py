"""A streaming query as a program: ``python -m streamgroups_testkit.query_program '{...}'``.

``queries.QueryProcess`` starts it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from streamgroups_testkit.spark_sessions import session_builder


def start_query(spark: SparkSession, config: Mapping[str, Any]) -> StreamingQuery:
    """Starts the query of this configuration (``queries.Query.config``)."""
    output = Path(config["output"])

    def write(batch: DataFrame, batch_id: int) -> None:
        columns = batch.select("topic", "partition", "offset").toArrow().to_pydict()
        records = list(zip(columns["topic"], columns["partition"], columns["offset"], strict=True))
        if config["batch_delay_s"]:
            time.sleep(config["batch_delay_s"])
        if not records:
            return
        path = output / f"{config['name']}-{batch_id}-{os.getpid()}.json"
        path.with_suffix(".part").write_text(json.dumps({"records": records}), encoding="utf-8")
        path.with_suffix(".part").rename(path)

    reader = spark.readStream.format("streamgroups").options(**config["options"])
    writer = reader.load().writeStream.foreachBatch(write).option("checkpointLocation", config["checkpoint"])
    if config["trigger"]:
        writer = writer.trigger(**config["trigger"])
    return writer.start()


def main(config: dict[str, Any]) -> int:
    spark = session_builder(config["name"]).config("spark.driver.memory", "512m").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    sg.register(spark)

    def start() -> StreamingQuery:
        return start_query(spark, config)

    for _ in range(config["supervised"]):
        # Each value is on a separate line, so that the test can find it.
        print("jvm", spark._jvm.ProcessHandle.current().pid(), flush=True)  # type: ignore[union-attr]  # noqa: T201
        print(sg.supervise(start), flush=True)  # noqa: T201
    if config["supervised"]:
        spark.stop()
        return 0

    query = start()
    stop_requested = threading.Event()
    # The handler sets a flag only: an exception during a call to the JVM would break the connection.
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop_requested.set())
    while not stop_requested.is_set() and not query.awaitTermination(1):
        pass
    query.stop()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
