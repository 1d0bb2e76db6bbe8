"""W2: rows that are removed before ``sg.with_event_time`` do not advance the watermark, as with ``withWatermark`` there.

The oracle is a query of Spark with the same steps and ``withWatermark``. The removed records have any times, so that
one of them in the watermark would make the others late. The others are late for no query, because the two watermarks
advance in different batches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from integration_tests.event_times import START_MS, departures, minute_of
from integration_tests.tiers import LONG
from streamgroups.errors import InvalidOption
from streamgroups.event_time.windows import PaneKind
from streamgroups_spark.event_time.with_event_time import _read_column
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.queries import exclusive_options
from unit_tests.examples import examples

RECORDS, PER_BATCH, STEP_MS = 32, 11, 30_000
DELAY = "2 minutes"
#: No limit of the broker for the times of records.
ANY_TIME = {"retention_ms": "-1", "message_timestamp_after_max_ms": str(2**63 - 1)}
#: The last timestamp of a record that has microseconds in 64 bits.
LAST_MS = (2**63 - 1) // 1_000
YEARS_MS = 80 * 366 * 86_400_000
Step = Callable[[DataFrame], DataFrame]


def good_table(records: DataFrame) -> DataFrame:
    return records.join(F.broadcast(records.sparkSession.createDataFrame([("good",)], "kind string")), "kind")


def exploded(records: DataFrame) -> DataFrame:
    copies = F.when(F.col("kind") == "good", F.array(F.lit(1), F.lit(2))).otherwise(F.array().cast("array<int>"))
    return records.withColumn("copy", F.explode(copies))


def only_good(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.filter(pc.equal(batch["kind"], "good"))


#: The records of kind ``bad`` are removed by each of them.
STEPS: dict[str, Step] = {
    "filter": lambda it: it.where("kind = 'good'"),
    "filter and repartition": lambda it: it.where("kind = 'good'").repartition(2),
    "duplicates": lambda it: it.where("kind = 'good' OR id = -1").dropDuplicates(["id"]).where("kind = 'good'"),
    "join with a table": good_table,
    "explode": exploded,
    "function": lambda it: it.mapInArrow(only_good, it.schema),
}


def send(bootstrap: str, topic: str, random: Random) -> None:
    """Good records about 30 seconds apart, and bad ones of any time."""
    producer = ordered_producer(bootstrap)
    for i in range(RECORDS):
        kind = random.choice(["good", "good", "bad"]) if i else "bad"
        # No window ends at such a time, where Spark and this library differ by a millisecond.
        at_ms = START_MS + i * STEP_MS + random.randrange(-30, 30) * 1_000 + 500
        if kind == "bad":
            at_ms = START_MS + random.choice([1, 1, -1]) * random.randrange(86_400_000, YEARS_MS)
            at_ms = max(0, at_ms)
        value = json.dumps({"kind": kind, "id": i if kind == "good" else -1})
        producer.produce(topic, value=value if random.random() < 0.9 or kind == "good" else "{", timestamp=at_ms)
    assert producer.flush(30) == 0


def records(spark: SparkSession, bootstrap: str, topic: str, group: str) -> DataFrame:
    """The records with their kind. Values that are not JSON have none."""
    options = exclusive_options(bootstrap, group, topic, "consumer") | {"maxOffsetsPerTrigger": str(PER_BATCH)}
    text = F.col("value").cast("string")
    fields = {"kind": F.get_json_object(text, "$.kind"), "id": F.get_json_object(text, "$.id").cast("int")}
    return departures(spark, options).withColumns(fields)


class Results:
    """The windows that a query emits, and the latest watermark of Spark."""

    def __init__(self, timed: DataFrame) -> None:
        self._rows: list[Row] = []
        windows = timed.groupBy(F.window("timestamp", "1 minute")).agg(F.count("*").alias("records"))
        self._query: StreamingQuery = (
            windows.writeStream.foreachBatch(self._keep).trigger(availableNow=True).outputMode("append").start()
        )

    def _keep(self, batch: DataFrame, _batch_id: int) -> None:
        self._rows += batch.collect()

    def windows(self) -> dict[int, int]:
        """The number of records in each closed window, by its first minute."""
        assert self._query.awaitTermination(120), self._query.lastProgress
        return {minute_of(row.window.start): row.records for row in self._rows}


def compare(timed: DataFrame, expected: DataFrame) -> None:
    own, sparks = Results(timed), Results(expected.withWatermark("timestamp", DELAY))
    assert own.windows() == sparks.windows()
    assert len(sparks.windows()) > 2, "windows close"


@LONG
@pytest.mark.parametrize("name", sorted(STEPS))
def test_W2_removed_rows_do_not_advance_the_watermark(
    name: str, spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str
) -> None:
    for seed in range(examples(1)):
        topic = new_topic(1, **ANY_TIME)
        send(bootstrap, topic, Random(seed))
        own, sparks = (
            STEPS[name](records(spark, bootstrap, topic, f"{group}-{of}-{seed}")) for of in ("ours", "sparks")
        )
        compare(sg.with_event_time(own, "timestamp", watermark_delay="2m"), sparks)


@pytest.mark.parametrize("on", ["timestamp", pytest.param("copied", marks=LONG)])
def test_W7_spark_omits_a_time_beyond_the_limit(
    on: str, spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(1, **ANY_TIME)
    producer = ordered_producer(bootstrap)
    for at_ms in (START_MS, LAST_MS, START_MS + 1, START_MS + 3 * STEP_MS):
        producer.produce(topic, value="{}", timestamp=at_ms)
    assert producer.flush(30) == 0
    given = records(spark, bootstrap, topic, group).withColumn("copied", F.col("timestamp"))
    timed = sg.with_event_time(given, on, watermark_delay="0s").withColumn("timestamp", F.col(on))
    assert Results(timed).windows() == {0: 2}
    options = exclusive_options(bootstrap, group, topic, "consumer")
    bounded = spark.read.format("streamgroups").options(**options).load().withColumn("copied", F.col("timestamp"))
    counts = sg.with_event_time(bounded, on, watermark_delay="0s").groupBy(F.window(on, "1 minute")).count()
    assert {minute_of(row.window.start): row["count"] for row in counts.collect()} == {0: 2, 1: 1}


@LONG
def test_W2_rows_with_a_dead_letter_do_not_advance_the_watermark(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(1, **ANY_TIME)
    producer = ordered_producer(bootstrap)
    for i in range(RECORDS):
        late_ms, value = (YEARS_MS, "{") if i % 5 == 0 else (0, '{"id": 1}')
        producer.produce(topic, value=value, timestamp=START_MS + i * STEP_MS + 500 + late_ms)
    assert producer.flush(30) == 0
    decoded = sg.decode(records(spark, bootstrap, topic, f"{group}-ours"), sg.schemas.Json("id int"))
    timed = sg.with_event_time(decoded, "timestamp", watermark_delay="2m")
    sparks = sg.decode(records(spark, bootstrap, topic, f"{group}-sparks"), sg.schemas.Json("id int"))
    compare(timed.where("dead_letter IS NULL"), sparks.where("dead_letter IS NULL"))


@LONG
def test_W2_windows_with_the_time_of_the_query_follow_the_rows_that_reach_them(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(1, **ANY_TIME)
    send(bootstrap, topic, Random(1))
    good = {of: records(spark, bootstrap, topic, f"{group}-{of}").where("kind = 'good'") for of in ("ours", "sparks")}
    own = results_of_windows(sg.with_event_time(good["ours"], "timestamp", watermark_delay="2m"))
    sparks = results_of_windows(good["sparks"].withWatermark("timestamp", DELAY))
    assert own == sparks
    assert len(sparks) > 2


def results_of_windows(timed: DataFrame) -> set[tuple[object, ...]]:
    """The results of ``sg.windows`` with the time of the query. No record is late."""
    windows = sg.windows(
        timed,
        on="timestamp",
        by=["kind"],
        time="query",
        window=sg.shapes.tumbling("1 minute"),
        aggregate={"n": "count(*)"},
    )
    rows: list[Row] = []

    def keep(batch: DataFrame, _batch_id: int) -> None:
        rows.extend(batch.collect())

    query = windows.writeStream.foreachBatch(keep).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert [row.pane for row in rows] == [PaneKind.ON_TIME.value] * len(rows)
    return {(row.window_start, row.n) for row in rows}


@LONG
def test_W2_the_tasks_that_read_report_times_only_if_each_row_arrives(spark: SparkSession, bootstrap: str) -> None:
    read = departures(spark, exclusive_options(bootstrap, "unused", "flights", "consumer"))
    read.createOrReplaceTempView("flights")
    retaining = {
        "nothing": read,
        "alias": read.alias("f"),
        "view": spark.table("flights"),
        "columns": read.withColumn("key", F.upper(F.col("key").cast("string"))).select("timestamp", "key"),
        "hint": read.hint("coalesce", 2),
        "repartition": read.repartition(2),
        "coalesce": read.coalesce(1),
        "range": read.repartitionByRange(2, "key"),
        "metrics": read.observe("rows", F.count("*").alias("n")),
    }
    for name, df in retaining.items():
        assert _read_column(df, "timestamp") == "timestamp", name
    table = spark.createDataFrame([("UA",)], "carrier string")
    removing = {
        "filter": read.where("key IS NOT NULL"),
        "filter before columns": read.where("key IS NOT NULL").select("*", F.lit(1).alias("one")),
        "subquery": spark.sql("SELECT * FROM flights WHERE offset IN (SELECT 1)"),
        "no nulls": read.dropna(subset=["key"]),
        "duplicates": read.dropDuplicates(["key"]),
        "distinct": read.distinct(),
        "limit": read.limit(5),
        "explode": read.withColumn("n", F.explode(F.array(F.lit(1)))),
        "join": read.join(table, F.col("carrier") == F.col("key").cast("string")),
        "semi join": read.join(table, F.col("carrier") == F.col("key").cast("string"), "left_semi"),
        "map": read.mapInArrow(only_good, read.schema),
        "dedup": sg.dedup(read, id="key", horizon="1h"),
        "dead letters": sg.decode(read, sg.schemas.Json("a int")),
    }
    for name, df in removing.items():
        assert _read_column(df, "timestamp") is None, name
        assert sg.with_event_time(df, "timestamp", watermark_delay="0s").columns == df.columns, name
    with pytest.raises(InvalidOption, match=r"no column 'partition', 'offset'.*Call with_event_time before a select"):
        sg.with_event_time(read.where("true").select("topic", "timestamp"), "timestamp", watermark_delay="0s")
    with pytest.raises(InvalidOption, match=r"exactly one stream.*before a join or union"):
        sg.with_event_time(read.join(read.select("key"), "key"), "timestamp", watermark_delay="0s")
