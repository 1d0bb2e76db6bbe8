"""O3: ``sg.reports.MetricsListener`` exports the same figures of a running query as Kafka's tool and ``groups describe`` show
for its group.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import streamgroups as sg
from integration_tests.command_line import streamgroups
from integration_tests.tiers import LONG
from streamgroups_testkit.broker import Broker
from streamgroups_testkit.producing import Load, produce
from streamgroups_testkit.reading import committed_offsets, describe_group
from streamgroups_testkit.waits import wait_until

Samples: TypeAlias = dict[tuple[str, tuple[str, ...]], float]
#: The interval of Spark's idle events.
IDLE_MS = "500"


@pytest.fixture
def listen(spark: SparkSession) -> Iterator[Callable[..., sg.reports.MetricsListener]]:
    """Creates and adds listeners; removes them after the test."""
    made: list[sg.reports.MetricsListener] = []
    before = spark.conf.get("spark.sql.streaming.noDataProgressEventInterval")
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", IDLE_MS)

    def make(**arguments: object) -> sg.reports.MetricsListener:
        made.append(sg.reports.MetricsListener(port=0, registry=CollectorRegistry(), **arguments))  # type: ignore[arg-type]
        spark.streams.addListener(made[-1])
        return made[-1]

    yield make
    for listener in made:
        spark.streams.removeListener(listener)
        listener.close()
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", str(before))


def scrape(metrics: sg.reports.MetricsListener) -> Samples:
    """The whole response: values by name and labels, without ids, and without the label of processors."""
    with urllib.request.urlopen(f"http://{metrics.address}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {
        (s.name, tuple(v for k, v in sorted(s.labels.items()) if k not in ("query_id", "processor"))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def of_partitions(samples: Samples, name: str, query: str) -> dict[int, int]:
    """The figures of a query by partition."""
    found = {}
    for (sample, labels), value in samples.items():
        if sample == f"streamgroups_partition_{name}" and labels[2] == query:
            found[int(labels[1])] = int(value)
    return found


def reading(spark: SparkSession, bootstrap: str, group: str, topic: str, **more: str) -> DataFrame:
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "group.id": group,
        "subscribe": topic,
        "startingOffsets": "earliest",
        **more,
    }
    return spark.readStream.format("streamgroups").options(**options).load()


def described_by_us(bootstrap: str, group: str) -> dict[int, tuple[int, int, int]]:
    """Committed offset, end offset and lag of each partition, by ``streamgroups groups describe``."""
    result = streamgroups("groups", "describe", group, "-b", bootstrap, "-o", "json")
    (found,) = json.loads(result.stdout)["groups"]
    return {p["partition"]: (p["committed_offset"], p["end_offset"], p["lag"]) for p in found["partitions"]}


def exported(samples: Samples, query: str) -> dict[int, tuple[int, int, int]]:
    committed, end, lag = (
        of_partitions(samples, name, query) for name in ("committed_offset", "end_offset", "lag_records")
    )
    return {p: (committed[p], end[p], lag[p]) for p in committed}


@LONG
def test_O3_figures_agree_once_the_batch_is_committed(
    kafka: Broker,
    bootstrap: str,
    new_topic: Callable[..., str],
    group: str,
    spark: SparkSession,
    listen: Callable[..., sg.reports.MetricsListener],
) -> None:
    topic, other = new_topic(2), new_topic(1)
    produce(bootstrap, topic, 40, partitions=2)
    metrics = listen()
    with_cluster = listen(bootstrap_servers=bootstrap, interval_s=0.2)
    rate = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", "1")
        .load()
        .selectExpr("encode(string(value), 'utf-8') value")
    )
    both = reading(spark, bootstrap, group, topic).select("value").union(rate)
    query = reading(spark, bootstrap, group, topic).writeStream.format("noop").queryName("board").start()
    second = reading(spark, bootstrap, f"{group}-2", other).writeStream.format("noop").start()
    try:
        everything = {0: (20, 20, 0), 1: (20, 20, 0)}
        wait_until(lambda: exported(scrape(metrics), "board") == everything, "Spark has reported all records")
        wait_until(lambda: committed_offsets(bootstrap, group, topic) == {0: 20, 1: 20}, "it is committed")
        assert described_by_us(bootstrap, group) == everything
        rows = {
            int(r["PARTITION"]): (int(r["CURRENT-OFFSET"]), int(r["LOG-END-OFFSET"]), int(r["LAG"]))
            for r in describe_group(kafka, group)
        }
        assert rows == everything
        # Only the cluster has these values.
        wait_until(lambda: exported(scrape(with_cluster), "board") == everything, "the cluster has reported the same")
        samples = scrape(with_cluster)
        assert samples["streamgroups_group_members", (group, "board")] == 1
        assert samples["streamgroups_group_state", (group, "board", "Stable")] == 1
        assert samples["streamgroups_up", ()] == 1
        assert of_partitions(samples, "beginning_offset", "board") == {0: 0, 1: 0}
        samples = scrape(metrics)
        assert samples["streamgroups_query_input_rows_total", ("board",)] == 40
        assert not [name for name, _ in samples if name.startswith(("streamgroups_group_members", "streamgroups_up"))]
        assert str(second.id) in {
            labels[0] for name, labels in samples if name == "streamgroups_query_last_event_timestamp_seconds"
        }
    finally:
        query.stop()
        second.stop()
    wait_until(lambda: "board" not in str(scrape(metrics)), "the series of a stopped query vanish")
    mixed = both.writeStream.format("noop").queryName("mixed").start()
    try:
        produce(bootstrap, topic, 6, partitions=2, first=40)
        wait_until(
            lambda: exported(scrape(metrics), "mixed") == {0: (23, 23, 0), 1: (23, 23, 0)}, "our source beside another"
        )
    finally:
        mixed.stop()


@LONG
def test_O3_a_query_that_is_behind_and_one_that_fails(
    bootstrap: str,
    new_topic: Callable[..., str],
    group: str,
    spark: SparkSession,
    tmp_path: Path,
    listen: Callable[..., sg.reports.MetricsListener],
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 1_000, partitions=1)
    metrics = listen(bootstrap_servers=bootstrap, interval_s=0.2)
    alone = listen()
    resume = tmp_path / "continue"

    def hold(batch: DataFrame, batch_id: int) -> None:
        if batch_id > 0:
            wait_until(resume.exists, "the test lets the second batch end", 120)
            raise RuntimeError("password=hunter2")

    slow = reading(spark, bootstrap, group, topic, maxOffsetsPerTrigger="100")
    query = slow.writeStream.foreachBatch(hold).queryName("slow").start()
    try:
        # The second batch is in flight. The first is committed, and the tool counts all other records as lag.
        wait_until(lambda: committed_offsets(bootstrap, group, topic) == {0: 100}, "the first batch is committed")
        wait_until(lambda: exported(scrape(metrics), "slow") == {0: (100, 1_000, 900)}, "the cluster reports it")
        assert described_by_us(bootstrap, group) == {0: (100, 1_000, 900)}
        # Spark's own events report the first batch only, and do not report its commit. Each listener receives them by itself.
        wait_until(lambda: exported(scrape(alone), "slow") == {0: (0, 1_000, 900)}, "Spark's events report it")
        assert of_partitions(scrape(alone), "processed_offset", "slow") == {0: 100}
        assert scrape(metrics)["streamgroups_group_lag_seconds", (group, "slow")] > 0
        resume.touch()
        with pytest.raises(StreamingQueryException):
            query.awaitTermination(120)
    finally:
        resume.touch()
        query.stop()

    def failures() -> dict[tuple[str, ...], float]:
        return {labels: v for (name, labels), v in scrape(alone).items() if name == "streamgroups_query_failures_total"}

    wait_until(failures, "the failure is counted")
    ((cause, name),) = failures()
    assert (name, "hunter2" in cause, cause != "") == ("slow", False, True)
    wait_until(lambda: not exported(scrape(alone), "slow"), "its series are gone")


@LONG
def test_G11_queries_that_share_a_group_report_each_partition_once(
    bootstrap: str,
    new_topic: Callable[..., str],
    group: str,
    spark: SparkSession,
    listen: Callable[..., sg.reports.MetricsListener],
) -> None:
    topic = new_topic(4)
    metrics = listen()
    queries = []
    try:
        for name in ("one", "two"):
            source = reading(spark, bootstrap, group, topic, **{"kafka.client.id": name})
            queries.append(source.writeStream.format("noop").queryName(name).start())

        def shared() -> bool:
            samples = scrape(metrics)
            one, two = exported(samples, "one").keys(), exported(samples, "two").keys()
            assert not one & two
            return len(one) == len(two) == 2

        with Load(bootstrap, topic, partitions=4, per_second=200):
            wait_until(shared, "each query reports two partitions", 120)
    finally:
        for query in queries:
            query.stop()
