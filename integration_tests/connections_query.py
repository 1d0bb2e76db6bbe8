"""Queries with connections as a program: ``python -m integration_tests.connections_query '{...}'``.
``test_connections`` starts it, with the secrets in its environment and in files.

It keeps everything that Spark shows or stores in one directory: event log, local files, checkpoints, plans and web pages.
"""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from pyspark.sql import DataFrame, SparkSession

import streamgroups as sg
from streamgroups_testkit.spark_sessions import session_builder

_PAGES = ("jobs", "stages", "environment", "executors", "SQL", "StreamingQuery", "api/v1/applications")


def session(directory: Path) -> SparkSession:
    """A session that stores its pickles and events uncompressed."""
    for name in ("events", "local"):
        (directory / name).mkdir(parents=True)
    return (
        session_builder("connections")
        .config("spark.ui.enabled", "true")
        .config("spark.ui.port", "0")
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", (directory / "events").as_uri())
        .config("spark.eventLog.compress", "false")
        .config("spark.broadcast.compress", "false")
        .getOrCreate()
    )


def stream(spark: SparkSession, config: dict[str, Any], group: str) -> DataFrame:
    """The values of the topic, read with the connection ``prod``."""
    options = {"connection": "prod", "group.id": group, "subscribe": config["topic"], "startingOffsets": "earliest"}
    reader = spark.readStream.format("streamgroups").options(**options)
    return reader.load().selectExpr("CAST(value AS STRING) AS value")


def error_of(spark: SparkSession, config: dict[str, Any], connection: str) -> str:
    """The error of a read with a connection that does not work."""
    options = {"connection": connection, "subscribe": config["topic"]}
    try:
        spark.read.format("streamgroups").options(**options).load().count()
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return "it worked"


def main(config: dict[str, Any]) -> int:
    directory = Path(config["directory"])
    spark = session(directory)
    sg.register(spark)
    shown = directory / "shown"
    shown.mkdir()
    table = sg.PostgresSink(connection="warehouse", table="board")
    rows = stream(spark, config, config["group"])
    query = sg.exactly_once(rows, sink=table, checkpoint=str(directory / "board")).trigger(availableNow=True).start()
    query.awaitTermination()
    progress = query.lastProgress
    # A batch read, and a write to Kafka in one transaction.
    batch = spark.read.format("streamgroups").options(connection="prod", subscribe=config["topic"]).load()
    sink = sg.KafkaSink(connection="prod", topic=config["output"], transactional_id=config["group"])
    sg.write(batch.select("value"), sink=sink)
    with (shown / "plans").open("w") as file, redirect_stdout(file):
        batch.explain(True)
        rows.explain(True)
        file.write(f"{progress} {table} {sink}")
    (shown / "errors").write_text("\n".join(error_of(spark, config, name) for name in ("missing", "wrong")))
    for page in _PAGES:
        with urlopen(f"{spark.sparkContext.uiWebUrl}/{page}/") as response:
            (shown / page.replace("/", "-")).write_bytes(response.read())
    # The end of the session deletes them.
    shutil.copytree(directory / "local", shown / "local")
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
