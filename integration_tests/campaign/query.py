"""A member of a campaign: a query that writes exactly once. ``integration_tests.campaign`` starts it as ``python -m
integration_tests.campaign.query '{...}'``.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from integration_tests.campaign.computing_queries import COMPUTATIONS, NUMBER, PLACE, through_spark
from integration_tests.campaign.resets import is_letter
from integration_tests.campaign.windows import PARTITIONS
from streamgroups.supervision.policy import RestartPolicy
from streamgroups_testkit.spark_sessions import JVM, session_builder

#: How long a query may take until its first rows, whose plan is printed, in seconds.
_PLAN_S = 60


def sink_of(config: dict[str, Any]) -> Any:
    """The sink of the configuration."""
    if config["sink"] == "kafka":
        place, topic, settings = config["place"], config["to"], config["settings"]
        if config["sabotaged"] in ("ledger", "idempotence"):
            return sg.KafkaSink(**place, topic=topic, delivery="at-least-once", settings=settings)
        # An abandoned transaction blocks the group for a short time only. With a disabled safeguard, this timeout
        # must not abort the transaction of a zombie.
        timeout = "1 minute" if config["sabotaged"] else "20s"
        return sg.KafkaSink(**place, topic=topic, transaction_timeout=timeout, settings=settings)
    if config["sink"] == "postgres":
        return sg.PostgresSink(conninfo=config["to"], table="board")
    return sg.DeltaSink(uri=config["to"], storage_options=config.get("storage_options", {}))


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


def show_plan(query: StreamingQuery) -> None:
    """Prints the plan and the progress of a query into its log, where no secret may be."""
    # The query can end meanwhile, and the JVM with it.
    with suppress(Exception):
        for _ in range(_PLAN_S):
            if query.lastProgress is not None and query.lastProgress["numInputRows"]:
                query.explain(extended=True)
                print(query.lastProgress, flush=True)  # noqa: T201
                return
            time.sleep(1)


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
        source = _records(spark, config)
        if config["kind"] == "stateful":
            source = source.dropDuplicates(["partition", "offset"])
        if config["kind"] in COMPUTATIONS:
            source = COMPUTATIONS[config["kind"]](source, config["options"]["subscribe"])
        letters: Any = None
        if config["letters"]:
            letters = sg.KafkaSink(
                bootstrap_servers=config["bootstrap"], topic=config["letters"], transaction_timeout="20s"
            )
            source = sg.safely(source, judged, output="is_right boolean", columns=["value"], takes="record")
        to_write = output(source, config["sink"])
        checkpoint = config["checkpoint"] + ("/reading" if config["between"] else "")
        writer = sg.exactly_once(to_write, sink=sink_of(config), dead_letters=letters, checkpoint=checkpoint)
        query = writer.trigger(processingTime="1 second").start()
        threading.Thread(target=show_plan, args=[query], daemon=True).start()
        return query

    policy = RestartPolicy(first_wait_ms=50, max_backoff_ms=500, max_failures=1_000)
    stop = threading.Event()
    with _in_background(partial(_repartition, spark, config), policy, stop) if config["between"] else nullcontext():
        sg.supervise(start, policy=policy, stop=stop)
    spark.stop()
    return 0


def _records(spark: SparkSession, config: dict[str, Any]) -> DataFrame:
    """The stream of a query: the input, or the topic in between."""
    if config["between"]:
        options = {**config["options"], "group.id": config["reading_group"]}
        del options["subscribe"]
        return sg.read_repartitioned(
            spark, topic=config["between"], by=["place"], columns="number string, place string", options=options
        )
    source = spark.readStream.format("streamgroups").options(**config["options"]).load()
    # The queries continue with the states of each other.
    return source if config["name"] == "ann" else through_spark(source)


def _repartition(spark: SparkSession, config: dict[str, Any]) -> StreamingQuery:
    """Starts the query that writes the topic in between."""
    source = spark.readStream.format("streamgroups").options(**config["options"]).load()
    records = source.selectExpr(f"{NUMBER} AS number").withColumn("place", F.expr(PLACE))
    checkpoint = config["checkpoint"] + "/writing"
    writer = sg.repartition(
        records,
        by=["place"],
        topic=config["between"],
        partitions=PARTITIONS,
        checkpoint=checkpoint,
        transaction_timeout="20s",
    )
    return writer.trigger(processingTime="1 second").start()


@contextmanager
def _in_background(start: Callable[[], StreamingQuery], policy: RestartPolicy, stop: threading.Event) -> Iterator[None]:
    """Supervises a query in a thread until the end of the block. Its end ends the program."""

    def run() -> None:
        try:
            sg.supervise(start, policy=policy, stop=stop)
        finally:
            stop.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
