"""The forks of a campaign of savepoints: bounded runs in one Spark session, three at a time. ``integration_tests.campaign.forks``
starts it as ``python -m integration_tests.campaign.fork_query FILE``.

A fork writes exactly once to a topic of its own, because a busy machine can fence its member. It starts again after a failure.
Its rows are then in ``rows.json`` in its directory, or its error in ``error.txt``.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from integration_tests.campaign.computing_queries import through_spark
from integration_tests.campaign.targets import create
from integration_tests.campaign.windows import windows
from streamgroups.supervision.policy import RestartPolicy
from streamgroups_testkit.reading import read_committed, wait_until_no_transaction_is_open
from streamgroups_testkit.spark_sessions import session_builder

ROWS_FILE, ERROR_FILE = "rows.json", "error.txt"


def run(spark: SparkSession, options: dict[str, str], fork: dict[str, Any]) -> None:
    """Reads from the positions of a group to the end of the topic."""
    output, bootstrap, topic = Path(fork["output"]), options["kafka.bootstrap.servers"], f"out-{fork['group']}"
    output.mkdir(parents=True)
    create(bootstrap, topic)

    def start() -> StreamingQuery:
        source = spark.readStream.format("streamgroups").options(**{**options, "group.id": fork["group"]}).load()
        rows = windows(source if fork["is_direct"] else through_spark(source)).select("value", "partition")
        sink = sg.KafkaSink(bootstrap_servers=bootstrap, topic=topic, transaction_timeout="1 minute")
        writer = sg.exactly_once(rows, sink=sink, checkpoint=str(output / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    try:
        sg.supervise(start, policy=RestartPolicy(first_wait_ms=50, max_backoff_ms=500, max_failures=20))
    except Exception as e:
        (output / ERROR_FILE).write_text(f"{e}\n{e.__cause__}")
        return
    wait_until_no_transaction_is_open(bootstrap, topic)
    (output / ROWS_FILE).write_text(json.dumps([it.value.decode() for it in read_committed(bootstrap, topic)]))


def main(config: dict[str, Any]) -> int:
    spark = session_builder("forks").config("spark.driver.memory", "1g").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    sg.register(spark)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(partial(run, spark, config["options"]), config["forks"]))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
