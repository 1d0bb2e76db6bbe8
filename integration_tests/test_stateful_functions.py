"""S9, S10: the state of a function of ``sg.stateful`` follows its partition."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from integration_tests.tiers import LONG
from streamgroups.errors import InvalidOption
from streamgroups.query.packing import SMALL_TASK_OFFSETS
from streamgroups.state.file_names import StateFileName
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import committed_offsets, read_committed
from streamgroups_testkit.waits import wait_until

PARTITIONS, KEYS = 4, 20


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic(PARTITIONS)


@pytest.fixture
def options(bootstrap: str, group: str, topic: str) -> dict[str, str]:
    return shared_options(bootstrap, group, topic, "consumer") | {"maxOffsetsPerTrigger": "400"}


class Records:
    """Records written to a topic, and their number and sum for each key."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer, self._topic = ordered_producer(bootstrap), topic
        self._written = 0
        self.totals: dict[str, tuple[int, int]] = {}

    @property
    def ends(self) -> dict[int, int]:
        return dict.fromkeys(range(PARTITIONS), self._written)

    def write(self, count: int) -> None:
        """Writes records to each partition. A key belongs to one partition."""
        for partition in range(PARTITIONS):
            for value in range(self._written, self._written + count):
                key = f"{partition}-{value % KEYS}"
                n, total = self.totals.get(key, (0, 0))
                self.totals[key] = (n + 1, total + value)
                self._producer.produce(self._topic, str(value), key, partition)
                self._producer.poll(0)
        assert self._producer.flush(30) == 0
        self._written += count


def add(state: pa.Table, records: pa.Table, _time: sg.event_time.BatchTime) -> tuple[pa.Table, pa.Table]:
    """The number of records of each key, and the sum of their values."""
    new = records.group_by("key").aggregate([([], "count_all"), ("value", "sum")])
    rows = pa.concat_tables([state, new.rename_columns(["key", "n", "total"])])
    sums = rows.group_by("key").aggregate([("n", "sum"), ("total", "sum")]).rename_columns(state.column_names)
    return sums, sums


@dataclass
class Totals:
    """Queries of one group that write the number and sum of the values of each key to a topic, exactly once."""

    spark: SparkSession
    bootstrap: str
    target: str
    directory: Path

    def rows(self, options: dict[str, str]) -> DataFrame:
        """The number and sum of the values of each key."""
        records = self.spark.readStream.format("streamgroups").options(**options).load()
        values = records.selectExpr("key", "cast(cast(value AS string) AS bigint) AS value", "partition", "offset")
        columns = "n bigint, total bigint"
        totals = sg.stateful(values, add, by=["key"], state=columns, output=f"key binary, {columns}", name="totals")
        return totals.selectExpr("cast(key AS string) AS key", "n", "total")

    def start(self, name: str, options: dict[str, str], **trigger: Any) -> StreamingQuery:
        """Starts a query with a new checkpoint."""
        rows = self.rows(options).selectExpr("to_json(struct(key, n, total)) AS value")
        sink = sg.KafkaSink(bootstrap_servers=self.bootstrap, topic=self.target)
        writer = sg.exactly_once(rows, sink=sink, checkpoint=str(self.directory / name))
        return writer.trigger(**trigger or {"processingTime": "300 milliseconds"}).start()

    def written(self) -> dict[str, tuple[int, int]]:
        """The newest row of each key. Fails if a row was written twice."""
        rows = [json.loads(message.value) for message in read_committed(self.bootstrap, self.target)]
        counts = Counter((row["key"], row["n"]) for row in rows)
        assert [it for it, times in counts.items() if times > 1] == []
        return {row["key"]: (row["n"], row["total"]) for row in sorted(rows, key=lambda row: row["n"])}


@pytest.fixture
def totals(spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], tmp_path: Path) -> Totals:
    return Totals(spark, bootstrap, new_topic(1), tmp_path)


@LONG
def test_S10_X2_two_queries_share_a_function_and_one_stops(
    totals: Totals, admin: AdminClient, bootstrap: str, group: str, topic: str, options: dict[str, str]
) -> None:
    records = Records(bootstrap, topic)
    ann = totals.start("ann", options)
    bob = totals.start("bob", options)

    def both_own_partitions() -> bool:
        described = admin.describe_consumer_groups([group])[group].result(30)
        return sum(bool(member.assignment.topic_partitions) for member in described.members) == 2

    def all_read() -> bool:
        return committed_offsets(bootstrap, group, topic) == records.ends

    try:
        records.write(100)
        wait_until(all_read, "the records are read")
        wait_until(both_own_partitions, "both queries own partitions")
        records.write(200)
        ann.stop()
        records.write(100)
        wait_until(all_read, "all is read")
    finally:
        ann.stop()
        bob.stop()
    assert totals.written() == records.totals


@LONG
def test_S10_an_exclusive_query_continues_with_the_state_of_the_group(
    totals: Totals, bootstrap: str, topic: str, options: dict[str, str]
) -> None:
    records, exclusive = Records(bootstrap, topic), options | {"membership": "exclusive"}
    for name in ("first", "second"):
        records.write(200)
        assert totals.start(name, exclusive, availableNow=True).awaitTermination(60)
        assert totals.written() == records.totals


@LONG
def test_S10_a_coalesce_behind_an_operator_keeps_the_states_of_all_tasks(
    totals: Totals, bootstrap: str, topic: str, options: dict[str, str], tmp_path: Path
) -> None:
    records, found = Records(bootstrap, topic), dict[str, tuple[int, int]]()
    rows = totals.rows({name: value for name, value in options.items() if name != "maxOffsetsPerTrigger"})

    def collect(batch: DataFrame, _: int) -> None:
        found.update({row.key: (row.n, row.total) for row in batch.coalesce(1).collect()})

    # The first batch is large enough for two tasks. The second one needs the states of both.
    for count in (SMALL_TASK_OFFSETS // PARTITIONS + 1, KEYS):
        records.write(count)
        writer = rows.writeStream.foreachBatch(collect).trigger(availableNow=True)
        assert writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(60)
        assert found == records.totals
    assert any(StateFileName.parse(file.name).task for file in tmp_path.rglob("*.state"))


def nothing(state: pa.Table, _records: pa.Table, _time: sg.event_time.BatchTime) -> tuple[pa.Table, pa.Table]:
    return state, state


@pytest.fixture
def stream(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.readStream.format("streamgroups").options(**options).load()


@LONG
def test_S10_the_error_of_a_function_fails_the_query(
    stream: DataFrame, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    Records(bootstrap, topic).write(1)

    def reject(_state: pa.Table, _records: pa.Table, _time: sg.event_time.BatchTime) -> tuple[pa.Table, pa.Table]:
        raise ValueError("no such flight")

    rows = sg.stateful(stream, reject, by=["key"], state="n bigint", output="n bigint")
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    text = rf"function 'reject' of operator 'stateful' .*no such flight.*{topic}-\d from offset 0 to 0"
    with pytest.raises(StreamingQueryException, match=text):
        query.awaitTermination(60)


def beside_another_source(df: DataFrame) -> DataFrame:
    other = df.sparkSession.readStream.format("rate").load()
    kept = df.select("key", "partition", "offset")
    return kept.union(other.selectExpr("cast('a' AS binary)", "0", "value"))


@pytest.mark.parametrize(
    ("change", "arguments", "text"),
    [
        (lambda df: df.select("key", "value"), {}, "has no column 'partition'"),
        (lambda df: df, {"by": ["value"]}, "the values of value.*prepartitioned=True"),
        (lambda df: df, {"by": "key"}, r"Pass a list: \['key'\]"),
        (lambda df: df, {"by": [], "prepartitioned": True}, "'by' is empty"),
        (lambda df: df, {"by": ["kez"]}, "Column 'kez' does not exist"),
        (lambda df: df.selectExpr("*", "array(1) AS a"), {"by": ["key", "a"]}, "'a' of 'by' is of type array"),
        (lambda df: df.selectExpr("*", "value"), {}, "2 columns have the name 'value'"),
        (lambda df: df, {"state": "key binary"}, "2 columns have the name 'key'"),
        (lambda df: df, {"state": "many"}, "'state' is 'many', which Spark cannot parse"),
        (lambda df: df, {"output": "bigint"}, "'output' is 'bigint', which names no columns"),
        (lambda df: df, {"name": "../counts"}, r"'name' of sg.stateful is '../counts'"),
        (lambda df: df, {"version": 0}, "'version' is 0"),
        (lambda df: df, {"expire_after": "10"}, "'expire_after' is '10', which is not a duration"),
        (lambda df: df, {"expire_after": "0s"}, "'expire_after' is 0"),
        (lambda df: df, {"function": "count"}, "'function' is 'count'"),
        (lambda df: df.repartition(2), {}, r"moves records between tasks \(Repartition\)"),
        (beside_another_source, {}, "also reads the source 'rate'"),
    ],
)
def test_S9_what_a_state_cannot_follow_is_rejected(
    stream: DataFrame, change: Callable[[DataFrame], DataFrame], arguments: dict[str, Any], text: str
) -> None:
    valid: dict[str, Any] = {"function": nothing, "by": ["key"], "state": "n bigint", "output": "key binary, n bigint"}
    with pytest.raises(InvalidOption, match=text):
        sg.stateful(change(stream), **valid | arguments)


def test_W17_bounded_data_of_another_source_are_rejected(spark: SparkSession) -> None:
    with pytest.raises(InvalidOption, match="The DataFrame reads Range"):
        sg.stateful(spark.range(3), nothing, by=["id"], state="n bigint", output="n bigint")
