"""A member of a campaign: a query that writes exactly once. ``integration_tests.campaign`` starts it as ``python -m
integration_tests.campaign.query '{...}'``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from integration_tests.campaign.resets import is_letter
from integration_tests.campaign.windows import windows
from streamgroups.supervision.policy import RestartPolicy
from streamgroups_testkit.spark_sessions import JVM, session_builder


def sink_of(config: dict[str, Any]) -> Any:
    """The sink of the configuration."""
    if config["sink"] == "kafka":
        servers, topic, login = config["bootstrap"], config["to"], config.get("login", {})
        if config["sabotaged"] == "ledger":
            return sg.KafkaSink(bootstrap_servers=servers, topic=topic, delivery="at-least-once", settings=login)
        # An abandoned transaction blocks the group for a short time only. With a disabled safeguard, this timeout
        # must not abort the transaction of a zombie.
        timeout = "1 minute" if config["sabotaged"] else "20s"
        return sg.KafkaSink(bootstrap_servers=servers, topic=topic, transaction_timeout=timeout, settings=login)
    if config["sink"] == "postgres":
        return sg.PostgresSink(conninfo=config["to"], table="board")
    return sg.DeltaSink(uri=config["to"])


def output(source: DataFrame, sink: str) -> DataFrame:
    """The output row of each record, with the columns that identify the record, and its dead letter."""
    letters = ["dead_letter"] if "dead_letter" in source.columns else []
    if sink == "kafka":
        # The column ``partition`` is the source partition, so the check can verify the order within it.
        return source.select("value", "partition", *letters)
    return source.select(F.col("value").cast("string").alias("value"), "partition", "offset", *letters)


def judged(record: dict[str, Any]) -> dict[str, Any]:
    """Raises an error for a record that must become a dead letter."""
    if is_letter(int(bytes(record["value"]).decode().rstrip("."))):
        raise ValueError("a dead letter")
    return {"is_right": True}


def main(config: dict[str, Any]) -> int:
    spark = (
        session_builder(config["name"])
        .master(config["master"])
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", JVM)
        # Otherwise Spark fails an application whose executors fail repeatedly.
        .config("spark.deploy.maxExecutorRetries", "-1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    sg.register(spark)

    def start() -> StreamingQuery:
        source = spark.readStream.format("streamgroups").options(**config["options"]).load()
        if config["kind"] == "stateful":
            source = source.dropDuplicates(["partition", "offset"])
        if config["kind"] == "windows":
            # The queries continue with the states of each other.
            source = windows(source, is_direct=config["name"] == "ann")
        letters: Any = None
        if config["letters"]:
            letters = sg.KafkaSink(
                bootstrap_servers=config["bootstrap"], topic=config["letters"], transaction_timeout="20s"
            )
            source = sg.safely(source, judged, output="is_right boolean", columns=["value"], takes="record")
        to_write = output(source, config["sink"])
        writer = sg.exactly_once(to_write, sink=sink_of(config), dead_letters=letters, checkpoint=config["checkpoint"])
        return writer.trigger(processingTime="1 second").start()

    sg.supervise(start, policy=RestartPolicy(first_wait_ms=50, max_backoff_ms=500, max_failures=1_000))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
