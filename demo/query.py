"""The query that the demo runs two or three of: ``python -m demo.query '{...}'``. Started by ``demo.processes``.

It reads flights as one member of the group, parses them, and writes what it learned of their delays: one file per batch,
whole or not at all. As any sink of an at-least-once query should, it writes what it has under a key that stays the same when
a flight comes again (topic, partition and offset), so whoever reads the files can count each flight once.
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
    """Runs the query until it is told to stop."""
    _die_with_the_demo()
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

    # A flag, not an exception: one that is raised inside a call to Java breaks the connection to it.
    asked_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: asked_to_stop.set())
    while not asked_to_stop.is_set() and not query.awaitTermination(0.2):  # type: ignore[arg-type]
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


def _die_with_the_demo() -> None:
    """Standard input is a pipe from the demo that carries nothing: its end means that the demo is gone, whatever the way."""

    def wait() -> None:
        os.read(0, 1)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=wait, name="demo-watch", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
