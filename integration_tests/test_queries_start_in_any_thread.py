"""Reads and writes can start in a thread other than that of their session, as ``sg.supervise`` needs for several queries.

Spark searches a sink in the active session of the calling thread. Source: Spark's ``DataSource.lookupDataSource``.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from integration_tests.tiers import LONG
from streamgroups_testkit.producing import produce
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import read_committed

RECORDS = 20


@LONG
def test_spark_reads_and_writes_the_format_in_another_thread(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic, output = new_topic(1), new_topic(1)
    produce(bootstrap, topic, RECORDS, partitions=1)
    cluster = {"kafka.bootstrap.servers": bootstrap}

    def stream() -> None:
        rows = spark.readStream.format("streamgroups").options(**shared_options(bootstrap, group, topic)).load()
        writer = rows.select("value").writeStream.format("streamgroups").options(**cluster, topic=output)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        writer.start().awaitTermination()

    def batch() -> int:
        rows = spark.read.format("streamgroups").options(**cluster, subscribe=topic).load().select("value")
        rows.write.format("streamgroups").options(**cluster, topic=output).mode("append").save()
        return rows.count()

    with ThreadPoolExecutor(1) as thread:
        for work in (stream, batch):
            thread.submit(work).result()
            assert thread.submit(SparkSession.getActiveSession).result() is None
    assert len(read_committed(bootstrap, output)) == 2 * RECORDS


def test_exactly_once_and_supervise_start_queries_in_another_thread(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic, output = new_topic(1), new_topic(1)
    produce(bootstrap, topic, RECORDS, partitions=1)
    active = SparkSession.getActiveSession()

    def rows(name: str) -> DataFrame:
        options = shared_options(bootstrap, f"{group}-{name}", topic)
        return spark.readStream.format("streamgroups").options(**options).load().select("key", "value")

    def exactly_once() -> SparkSession | None:
        sink = sg.KafkaSink(bootstrap_servers=bootstrap, topic=output)
        writer = sg.exactly_once(rows("once"), sink=sink, checkpoint=str(tmp_path / "once"))
        writer.trigger(availableNow=True).start().awaitTermination()
        return SparkSession.getActiveSession()

    def start() -> StreamingQuery:
        options = {
            "kafka.bootstrap.servers": bootstrap,
            "topic": output,
            "delivery": "at-least-once",
            "checkpointLocation": str(tmp_path / "supervised"),
        }
        writer = rows("supervised").writeStream.format("streamgroups").options(**options)
        return writer.trigger(availableNow=True).start()

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(exactly_once).result() is None, "the thread has no active session again"
        outcome = thread.submit(sg.supervise, start, policy=sg.RestartPolicy(first_wait_ms=1, max_failures=1)).result()
    assert outcome.restarts == 0
    assert len(read_committed(bootstrap, output)) == 2 * RECORDS
    assert SparkSession.getActiveSession() is active
