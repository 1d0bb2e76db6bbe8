"""The query of the demo: ``python -m demo.query '{...}'``. Started by ``demo.processes``, two or three times.

It reads flights as one member of the group, parses them, and writes their delays: one file per batch, complete or not
at all. It is at least once, so each row has a key that is the same when a flight is read again: topic, partition and
offset. Readers of the files count each flight once by this key.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg

_FLIGHT = "carrier string, dep_delay double, arr_delay double"
_COLUMNS = ("partition", "offset", "carrier", "dep_delay", "arr_delay")


def main(config: dict[str, Any]) -> int:
    """Runs the query until SIGTERM."""
    _end_with_the_demo()
    spark = _session(config["name"])
    flights = (
        spark.readStream.format("streamgroups")
        .options(**config["options"])
        .load()
        .withColumn("flight", F.from_json(F.col("value").cast("string"), _FLIGHT))
        .select("partition", "offset", "flight.*")
    )
    output = Path(config["output"])

    def write(batch: DataFrame, batch_id: int) -> None:
        rows = batch.select(*_COLUMNS).toArrow().to_pydict()
        if rows["offset"]:
            path = output / f"{config['name']}-{batch_id}.json"
            path.with_suffix(".part").write_text(json.dumps(rows))
            path.with_suffix(".part").rename(path)

    query = flights.writeStream.foreachBatch(write).option("checkpointLocation", config["checkpoint"]).start()

    # A flag instead of an exception, because an exception during a call to Java breaks the connection.
    stop_requested = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop_requested.set())
    while not stop_requested.is_set() and not query.awaitTermination(0.2):  # type: ignore[arg-type]
        pass
    query.stop()
    spark.stop()
    return 0


def _session(name: str) -> SparkSession:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    sg.register(spark)
    return spark


def _end_with_the_demo() -> None:
    """Ends with the demo: standard input is a pipe from the demo, and its end means that the demo has ended."""

    def wait() -> None:
        os.read(0, 1)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=wait, name="demo-watch", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
