"""S9: stateful queries of a shared group are rejected before the first batch, for every operator and sink; other
queries are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pandas as pd
import pyspark
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import streamgroups as sg
from integration_tests.event_times import departures
from integration_tests.tiers import LONG
from streamgroups.errors import InvalidOption
from streamgroups_spark.bridge import plan
from streamgroups_spark.bridge.plan import analyzed, read_streams
from streamgroups_spark.internals.logical_operators import KNOWN
from streamgroups_testkit.producing import produce
from streamgroups_testkit.queries import exclusive_options, shared_options
from streamgroups_testkit.reading import committed_offsets, end_offsets
from streamgroups_testkit.waits import wait_until

#: No broker runs at this address, because the rejection precedes the first connection.
NOWHERE = "127.0.0.1:9"


class Counting(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N803
        yield pd.DataFrame({"n": [sum(map(len, rows))]})


def _with_pandas(df: DataFrame) -> DataFrame:
    def count(_key: Any, rows: Iterator[pd.DataFrame], _state: Any) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame({"n": [sum(map(len, rows))]})

    return df.groupBy("key").applyInPandasWithState(count, "n long", "n long", "append", "NoTimeout")


def _in_sql(df: DataFrame) -> DataFrame:
    return df.sparkSession.sql(
        "WITH seen AS (SELECT key FROM {flights}) SELECT key, count(*) FROM seen GROUP BY key", flights=df
    )


def _joined(df: DataFrame) -> DataFrame:
    return df.withWatermark("timestamp", "1 second").alias("l").join(df.alias("r"), F.expr("l.key = r.key"))


def _table(df: DataFrame) -> DataFrame:
    return df.sparkSession.createDataFrame([(b"1",)], "value binary")


#: Stateful operators by their names in Spark's plan, and their output mode.
STATE: Mapping[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "Aggregate": (lambda df: df.groupBy("key").count(), "complete"),
    "Aggregate in SQL": (_in_sql, "complete"),
    "Deduplicate": (lambda df: df.dropDuplicates(["key"]), "append"),
    "DeduplicateWithinWatermark": (
        lambda df: df.withWatermark("timestamp", "1 second").dropDuplicatesWithinWatermark(["key"]),
        "append",
    ),
    "Except": (lambda df: df.select("value").subtract(_table(df)), "append"),
    "Intersect": (lambda df: df.select("value").intersect(_table(df)), "append"),
    "GlobalLimit": (lambda df: df.limit(3), "append"),
    "Join": (_joined, "append"),
    "FlatMapGroupsInPandasWithState": (_with_pandas, "append"),
    "TransformWithStateInPySpark": (
        lambda df: df.groupBy("key").transformWithStateInPandas(Counting(), "n long", "append", "none"),
        "append",
    ),
}
#: The queries that are started, with their writers. The same plan identifies all others.
STARTED: Mapping[str, Callable[[Any, Path], Any]] = {
    "Except": lambda writer, _: writer.format("noop").outputMode("update"),
    "Aggregate in SQL": lambda writer, _: writer.format("console").trigger(availableNow=True),
    "Join": lambda writer, _: writer.foreachBatch(lambda rows, _id: rows.count()),
    "TransformWithStateInPySpark": lambda writer, directory: writer.format("json").option("path", str(directory)),
}


@pytest.mark.parametrize("name", STATE)
def test_what_keeps_state_is_known_by_its_plan(spark: SparkSession, group: str, name: str) -> None:
    keep_state, _ = STATE[name]
    kept = keep_state(departures(spark, shared_options(NOWHERE, group, "flights", "classic")))
    streams = read_streams(analyzed(kept))
    assert name.split()[0] in {operator for stream in streams for operator in stream.operators}


@pytest.mark.parametrize(
    "name", [it if it == "TransformWithStateInPySpark" else pytest.param(it, marks=LONG) for it in STARTED]
)
def test_what_keeps_state_is_rejected(
    rocksdb: None, spark: SparkSession, group: str, tmp_path: Path, name: str
) -> None:
    keep_state, mode = STATE[name]
    kept = keep_state(departures(spark, shared_options(NOWHERE, group, "flights", "classic")))
    writer = STARTED[name](kept.writeStream.outputMode(mode), tmp_path / "output")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    message = rf"is stateful \({name.split()[0]}\), but shares its stream.*'{group}'.*membership=exclusive"
    with pytest.raises(StreamingQueryException, match=message):
        query.awaitTermination(60)
    assert not list((tmp_path / "checkpoint" / "offsets").glob("*")), "it is rejected before its first batch"


def test_an_unknown_operator_is_rejected_with_its_name(
    spark: SparkSession, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "KNOWN", KNOWN - {"Generate"})
    flights = departures(spark, shared_options(NOWHERE, group, "flights", "classic"))
    generated = flights.withColumn("n", F.explode(F.array(F.lit(1))))
    query = generated.writeStream.format("noop").start()
    message = rf"of PySpark {pyspark.__version__} that is unknown .* \(Generate\), and shares its stream.*'{group}'"
    with pytest.raises(StreamingQueryException, match=message):
        query.awaitTermination(60)
    with pytest.raises(InvalidOption, match=message):
        sg.exactly_once(
            generated, sink=sg.KafkaSink(bootstrap_servers=NOWHERE, topic="output"), checkpoint="/data/unused"
        )
    timed = generated.withWatermark("timestamp", "1 second")
    with pytest.raises(InvalidOption, match=r"Before sg\.windows, .* unknown .*\(Generate\)"):
        sg.windows(timed, on="timestamp", by=["key"], window=sg.shapes.tumbling("5m"), aggregate={"n": "count(*)"})


def test_functions_of_ours_reject_it_when_they_are_called(spark: SparkSession, group: str) -> None:
    flights = departures(spark, shared_options(NOWHERE, group, "flights", "classic"))
    with pytest.raises(InvalidOption, match=r"is stateful \(sg\.with_event_time\).*membership=exclusive"):
        sg.with_event_time(flights, "timestamp")
    # Its state follows the partition, but a result without a key would be one for each partition.
    with pytest.raises(InvalidOption, match=r"the values of no column.*membership=exclusive"):
        sg.windows(
            flights.withWatermark("timestamp", "1 second"),
            on="timestamp",
            window=sg.shapes.tumbling("5m"),
            aggregate={"n": "count(*)"},
        )


def test_each_stream_and_each_query_counts_for_itself(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, 20, partitions=2)
    shared = departures(spark, shared_options(bootstrap, group, topic, "classic"))
    own = departures(spark, exclusive_options(bootstrap, f"{group}-own", topic, "classic"))
    airlines = spark.range(20).select(F.col("id").cast("string").alias("name")).groupBy("name").count()
    joined = shared.join(airlines, F.expr("cast(value as string) = name")).select("value")
    both = joined.union(own.dropDuplicates(["value"]).select("value"))
    with ExitStack() as running:
        # One DataFrame, and so one set of options, in two concurrent queries.
        queries = []
        for i, frame in enumerate((both, shared.dropDuplicates(["value"]))):
            writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / str(i)))
            queries.append(writer.start())
            running.callback(queries[-1].stop)
        with pytest.raises(StreamingQueryException, match=r"is stateful \(Deduplicate\)"):
            queries[1].awaitTermination(60)
        ends = end_offsets(bootstrap, topic, 2)
        groups = (group, f"{group}-own")
        wait_until(
            lambda: all(committed_offsets(bootstrap, reading, topic) == ends for reading in groups),
            f"{groups} have read all",
        )
        assert queries[0].isActive


@LONG
def test_what_cannot_be_known_is_not_taken_for_stateless(
    spark: SparkSession, group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If Spark does not expose the process of a source, its group identifies the candidate queries. If no candidate
    responds, no query may be shared.
    """
    flights = departures(spark, shared_options(NOWHERE, group, "flights", "classic"))
    monkeypatch.setattr("streamgroups_spark.bridge.active_queries.ActiveQueries._process_ids", lambda *_: [])
    query = flights.dropDuplicates(["key"]).writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException, match=r"is stateful \(Deduplicate\)"):
        query.awaitTermination(60)
    monkeypatch.setattr("streamgroups_spark.bridge.active_queries.ActiveQueries.answer", lambda *_: None)
    query = flights.writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException, match=r"does not report whether the query is stateful.*sg\.register"):
        query.awaitTermination(60)
