"""S12: a topic that is partitioned by other keys contains every record once, with its exact values."""

from __future__ import annotations

import json
import random
import string
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

import streamgroups as sg
from integration_tests.dead_letters import letters_in
from integration_tests.programs import running
from integration_tests.repartition_query import PARTITIONS, SIZE_MS, count, write
from integration_tests.test_kafka_sink_is_exactly_once import run
from integration_tests.tiers import LONG
from streamgroups.errors import InvalidOption, StreamGroupsError, UnknownTopic
from streamgroups_kafka.write.partitioner import partitions_of_keys
from streamgroups_spark.bridge.plan import analyzed, leaves
from streamgroups_spark.frames.key_columns import record_key
from streamgroups_spark.frames.record_values import column_of, from_value, to_value
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import read_committed
from streamgroups_testkit.waits import wait_until

START_MS = 1_750_000_000_000
AIRPORTS = [*(f"A{i:02}" for i in range(12)), "", None]

# ---- values ----------------------------------------------------------------------------------------------------------

#: Values that text formats often lose.
EDGES = (
    "timestamp'2013-11-03 01:30:00.000001-04:00'",
    "timestamp'2013-11-03 01:30:00.000001-05:00'",
    "timestamp'1800-01-01 00:00:00.123456'",
    "timestamp_micros(-62135596800000001)",
    "timestamp_micros(9223372036854775807)",
    "timestamp_ntz'2013-03-10 02:30:00.000001'",
    "timestamp_ntz'+12345-01-01 00:00:00'",
    "timestamp_ntz'-0044-03-15 00:00:00'",
    "date'0001-01-01'",
    "date'9999-12-31'",
    "date'-0044-03-15'",
    "date'1582-10-10'",
    "time'12:34:56.123456'",
    "array(double('NaN'), double('Infinity'), double('-Infinity'), double('-0.0'), 4.9E-324D, 1.7976931348623157E308D)",
    "array(float('NaN'), float('-Infinity'), float('-0.0'), float('1.4E-45'), float('0.1'), float('16777217'))",
    "12345678901234567890123456789012345678BD",
    "cast('-0.00000000000000000000000000000000000001' AS decimal(38, 38))",
    "cast(1.50 AS decimal(10, 2))",
    "array(-9223372036854775808L, 9223372036854775807L, null)",
    "array(-128Y, 127Y)",
    "X'00FF'",
    "X''",
    "cast(null AS binary)",
    "array('', 'null', '\\\\\"', cast(X'00' AS string), '\\n\\r\\t', '\U0001f600\u2028\ufeff', null)",
    "interval '-5-1' year to month",
    "interval '-1 02:03:04.000005' day to second",
    "interval '3' hour",
    "null",
    "array()",
    "array(named_struct('a', cast(null AS int)), null)",
    "named_struct('a', cast(null AS int), 'b', cast(null AS int))",
    "cast(null AS struct<a: int>)",
    "named_struct('From', 1, 'a.b`c', array(true), '', 'x')",
    "map('a', 1, '', null, 'a.b', 3)",
    "map(2, array('x'), 1, null)",
    "map(date'2013-01-01', map(1.5D, timestamp'2013-01-01 00:00:00.000001'))",
    "array(map(named_struct('a', 'é'), X'01'), null, map())",
    "map('a', map(1, 'b'))",
    "named_struct('m', map(1, 2), 's', 'x')",
    "cast(null AS map<int, int>)",
    "'É' COLLATE UNICODE_CI",
)


@pytest.fixture
def new_york(spark: SparkSession) -> Iterator[None]:
    """A time zone with clock changes, and another one than that of the reader."""
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


def there_and_back(df: DataFrame, schema: StructType | None = None) -> DataFrame:
    """The rows of a DataFrame, written and read as values."""
    schema = schema or df.schema
    parsed = df.select(from_value(to_value(df.schema).cast("binary").cast("string"), schema).alias("row"))
    return parsed.select(*(column_of(F.col("row"), it).alias(it.name) for it in schema.fields))


@LONG
def test_S12_values_that_text_formats_lose(spark: SparkSession, new_york: None) -> None:
    df = spark.range(1).selectExpr(*(f"{text} AS c{i}" for i, text in enumerate(EDGES)))
    read = there_and_back(df)
    assert read.dtypes == df.dtypes
    texts = [[f"cast(c{i} AS string) AS c{i}" for i in range(len(EDGES))]] * 2
    [before], [after] = (it.selectExpr(*columns).collect() for it, columns in zip((df, read), texts, strict=True))
    assert {EDGES[i]: (a, b) for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b} == {}
    text = df.select(to_value(df.schema).alias("value")).first()
    assert text is not None
    assert json.loads(text.value)["c0"] == "2013-11-03T05:30:00.000001Z"


_ATOMS: dict[str, Callable[[random.Random], Any]] = {
    "boolean": lambda r: r.random() < 0.5,
    "bigint": lambda r: r.randint(-(2**63), 2**63 - 1) >> r.randint(0, 62),
    "double": lambda r: r.choice([float("nan"), float("-inf"), -0.0, r.uniform(-1, 1) * 10.0 ** r.randint(-300, 300)]),
    "decimal(30,7)": lambda r: Decimal(r.randint(-(10**29), 10**29) >> r.randint(0, 90)).scaleb(-7),
    "string": lambda r: "".join(r.choice([*string.printable, "\0", "\u2028", "\U0001f600", "é"]) for _ in range(9)),
    "binary": lambda r: bytearray(r.randbytes(r.randint(0, 5))),
    "date": lambda r: date(1, 1, 1) + timedelta(days=r.randint(0, 3_652_058)),
    "timestamp": lambda r: datetime(1970, 1, 2) + timedelta(microseconds=r.randint(0, 2**57)),
    "timestamp_ntz": lambda r: datetime(1, 1, 1) + timedelta(microseconds=r.randint(0, 315_000_000_000_000_000)),
}


def random_type(choose: random.Random, depth: int) -> tuple[str, Callable[[], Any]]:
    """A type, as Spark's DDL, and a function that returns a random value of it."""
    kind = choose.choice(["atom"] * 3 + ["array", "map", "struct"] * (depth > 0))
    if kind == "atom":
        name = choose.choice(list(_ATOMS))
        return name, lambda: _ATOMS[name](choose) if choose.random() < 0.8 else None
    inner, make = random_type(choose, depth - 1)
    if kind == "array":
        return (
            f"array<{inner}>",
            lambda: [make() for _ in range(choose.randint(0, 3))] if choose.random() < 0.8 else None,
        )
    if kind == "struct":
        other, make_other = random_type(choose, depth - 1)
        return f"struct<a: {inner}, b: {other}>", lambda: (make(), make_other()) if choose.random() < 0.8 else None
    key = choose.choice(["string", "bigint", "date", "timestamp"])
    return f"map<{key}, {inner}>", lambda: {_ATOMS[key](choose): make() for _ in range(choose.randint(0, 3))}


def test_S12_random_types_and_values(spark: SparkSession) -> None:
    choose = random.Random(12)
    types = [random_type(choose, 3) for _ in range(40)]
    schema = ", ".join(f"c{i} {ddl}" for i, (ddl, _) in enumerate(types))
    rows = [tuple(make() for _, make in types) for _ in range(50)]
    df = spark.createDataFrame(rows, schema)
    # Texts, because NaN differs from itself.
    assert [repr(row) for row in there_and_back(df).collect()] == [repr(row) for row in df.collect()]


def test_S12_a_new_column_is_null(spark: SparkSession) -> None:
    known = spark.range(1).selectExpr("1 AS a")
    schema = StructType().add("a", "integer").add("b", "string")
    assert there_and_back(known, schema).collect() == [(1, None)]


def test_S12_keys(spark: SparkSession) -> None:
    df = spark.range(1).selectExpr(
        *("'JFK' AS s", "X'00FF' AS b", "7 AS i", "cast(null AS string) AS n", "date'2013-01-01' AS d"),
        "1.50BD AS dec",
    )

    def key(*by: str) -> bytes | None:
        row = df.select(record_key(df.schema, by, {name: F.col(name) for name in by}).alias("key")).first()
        assert row is not None
        return None if row.key is None else bytes(row.key)

    assert (key("s"), key("b"), key("n")) == (b"JFK", b"\x00\xff", None)
    assert key("i") == b'{"i":7}'
    assert key("s", "n", "d", "dec", "b") == b'{"s":"JFK","n":null,"d":"2013-01-01","dec":1.50,"b":"AP8="}'


# ---- queries ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def stream(spark: SparkSession, bootstrap: str, group: str, new_topic: Callable[..., str]) -> DataFrame:
    """Flights as the source returns them, with an airport."""
    options = shared_options(bootstrap, group, new_topic(2), "consumer")
    records = spark.readStream.format("streamgroups").options(**options).load()
    return records.selectExpr("*", "substr(cast(value AS string), 1, 3) AS airport")


OWN = ("airport", "value")


@pytest.mark.parametrize(
    ("change", "arguments", "text"),
    [
        (lambda df: df, {}, "The columns key, topic, partition, offset, timestampType have the names"),
        (lambda df: df.select(*OWN), {"by": ["carrier"]}, "Column 'carrier' does not exist"),
        (lambda df: df.select(*OWN), {"by": "airport"}, r"Pass a list: \['airport'\]"),
        (lambda df: df.select(*OWN), {"by": []}, "'by' is empty"),
        (lambda df: df.select(*OWN), {"by": ["airport", "airport"]}, "contains 'airport' 2 times"),
        (lambda df: df.selectExpr("airport", "1D AS lat"), {"by": ["lat"]}, "'lat' of 'by' is of type double"),
        (lambda df: df.selectExpr("airport COLLATE UTF8_LCASE AS airport"), {}, "is of type string collate UTF8_LCASE"),
        (lambda df: df.selectExpr("airport", "parse_json('1') AS v"), {}, "'v' contains the type variant"),
        (lambda df: df.selectExpr("airport", "1 AS AirPort"), {}, "2 columns have the name 'airport'"),
        (lambda df: df.select(*OWN), {"partitions": 0}, "'partitions' is 0"),
        (lambda df: df.select(*OWN), {"settings": {"acks": "1"}}, "Option 'kafka.acks' is '1'"),
        (lambda df: df.select(*OWN), {"partitions": None}, "does not exist. Set 'partitions' to create it"),
        (lambda df: df.groupBy("airport").count(), {}, "is stateful"),
    ],
)
def test_S12_invalid_arguments_create_no_topic(
    stream: DataFrame,
    bootstrap: str,
    group: str,
    tmp_path: Path,
    change: Callable[[DataFrame], DataFrame],
    arguments: dict[str, Any],
    text: str,
) -> None:
    valid: dict[str, Any] = {"by": ["airport"], "topic": f"by-{group}", "partitions": 2, "checkpoint": str(tmp_path)}
    with pytest.raises(StreamGroupsError, match=text):
        sg.repartition(change(stream), **valid | arguments)
    assert valid["topic"] not in ordered_producer(bootstrap).list_topics(timeout=10).topics


def test_S12_the_topic_must_have_the_number_of_partitions_and_another_name(
    stream: DataFrame, new_topic: Callable[..., str], tmp_path: Path, group: str
) -> None:
    valid: dict[str, Any] = {"by": ["airport"], "checkpoint": str(tmp_path)}
    flights = stream.select(*OWN)
    with pytest.raises(InvalidOption, match=r"has 3 partitions, but option 'partitions' is 2.*Set partitions=3"):
        sg.repartition(flights, topic=new_topic(3), partitions=2, **valid)
    [leaf] = leaves(analyzed(stream))
    source = leaf.extraOptions().get("subscribe")
    with pytest.raises(InvalidOption, match=f"reads topic '{source}' and would write to it"):
        sg.repartition(flights, topic=source, **valid)
    with pytest.raises(UnknownTopic):
        sg.repartition(flights, topic=f"by-{group}", **valid)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"columns": "airport"}, "'columns' is 'airport', which Spark cannot parse"),
        ({"columns": "carrier string"}, "Column 'airport' does not exist"),
        ({"options": {"subscribe": "flights"}}, "The options contain 'subscribe'"),
        ({"options": {"kafka.Isolation.Level": "read_uncommitted"}}, "reads records of aborted transactions"),
    ],
)
def test_S12_invalid_arguments_of_a_reader(spark: SparkSession, arguments: dict[str, Any], text: str) -> None:
    valid: dict[str, Any] = {"topic": "by-airport", "by": ["airport"], "columns": "airport string", "options": {}}
    with pytest.raises(InvalidOption, match=text):
        sg.read_repartitioned(spark, **valid | arguments)


def produce(bootstrap: str, topic: str, flights: list[tuple[int, str | None]]) -> None:
    """Writes flights: their time and airport. The record key is their number."""
    producer = ordered_producer(bootstrap)
    for number, (at_ms, airport) in enumerate(flights):
        producer.produce(topic, json.dumps({"at_ms": at_ms, "airport": airport}), str(number))
        producer.poll(0)
    assert producer.flush(30) == 0


@LONG
def test_S12_operators_accept_the_keys_and_other_keys_fail(
    spark: SparkSession, stream: DataFrame, bootstrap: str, group: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, topic = new_topic(2), f"by-{group}"
    options = {"kafka.bootstrap.servers": bootstrap, "group.id": f"{group}-reader"}
    with_two = spark.readStream.format("streamgroups").options(**shared_options(bootstrap, group, source)).load()
    flights = with_two.selectExpr("cast(key AS string) AS flight", "substr(cast(value AS string), 1, 2) AS airport")
    producer = ordered_producer(bootstrap)
    for i in range(20):
        producer.produce(source, f"A{i % 5}", str(i))
    producer.produce(source, None, "null")
    assert producer.flush(30) == 0
    writer = sg.repartition(
        flights,
        by=["airport"],
        topic=topic,
        partitions=PARTITIONS,
        checkpoint=str(tmp_path / "writing"),
        settings={"compression.type": "zstd"},
    )
    assert run(writer) == 1

    def read(by: list[str], **more: str) -> DataFrame:
        columns = "flight string, airport string"
        return sg.read_repartitioned(spark, topic=topic, by=by, columns=columns, options=options | more)

    found = read(["airport"])
    assert found.columns == ["flight", "airport", "key", "topic", "partition", "offset", "timestamp"]

    def counted(df: DataFrame, by: list[str]) -> DataFrame:
        windows: dict[str, Any] = {"window": sg.shapes.tumbling("5s"), "aggregate": {"n": "count(*)"}}
        return sg.windows(df, by=by, boundary="processingTime", **windows)

    counted(found.withColumnRenamed("airport", "origin"), ["origin", "flight"])
    for df, by in (
        (found, ["flight"]),
        (found.withColumn("airport", F.upper("airport")), ["airport"]),
        (found.union(read(["airport"])), ["airport"]),
    ):
        with pytest.raises(InvalidOption, match=r"sg\.repartition\(df, by="):
            counted(df, by)
    with pytest.raises(InvalidOption, match=r"moves records between tasks .*sg\.repartition"):
        counted(found.repartition(2), ["airport"])

    rows: list[Any] = []
    query = found.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    run(query.option("checkpointLocation", str(tmp_path / "reading")))
    # The same partitions as other producers, and one for records without a key.
    for row in rows:
        expected = None if row.airport is None else row.airport.encode()
        assert row.key == expected
        assert row.partition == (
            0 if expected is None else partitions_of_keys(pa.array([expected]), PARTITIONS)[0].as_py()
        )
    written = [(str(i), f"A{i % 5}") for i in range(20)] + [("null", None)]
    assert Counter((row.flight, row.airport) for row in rows) == Counter(written)

    wrong = read(["flight"], **{"group.id": f"{group}-wrong"})
    for name, df in {"counted": counted(wrong, ["flight"]), "airports": wrong.select("airport")}.items():
        query = df.writeStream.format("noop").option("checkpointLocation", str(tmp_path / name))
        with pytest.raises(StreamingQueryException, match="has another key than that of the columns flight"):
            run(query)


@pytest.mark.parametrize(
    ("change", "value", "text"),
    [
        (lambda df: df.select("flight"), '{"flight":"1","airport":"A2"}', "has another key than that of the columns"),
        (lambda df: df.select("offset"), '{"flight":"1","airport":null}', "has another key than that of the columns"),
        # Spark moves the filter of a query to the source if it can.
        (lambda df: df.where("key = X'00'"), '{"airport":"A2"}', "has another key than that of the columns"),
        (lambda df: df.where("offset < 0").select("offset"), None, "has no value"),
        (lambda df: df.select("offset"), "\n", "has no value"),
    ],
    ids=["another column", "the offset", "a filter", "no value", "an empty value"],
)
def test_S12_a_reader_fails_for_a_foreign_record_whatever_it_reads(
    spark: SparkSession,
    bootstrap: str,
    group: str,
    new_topic: Callable[..., str],
    tmp_path: Path,
    change: Callable[[DataFrame], DataFrame],
    value: str | None,
    text: str,
) -> None:
    topic = new_topic(1)
    producer = ordered_producer(bootstrap)

    def read() -> int:
        options = {"kafka.bootstrap.servers": bootstrap, "group.id": group}
        columns = "flight string, airport string"
        df = change(sg.read_repartitioned(spark, topic=topic, by=["airport"], columns=columns, options=options))
        return run(df.writeStream.format("noop").option("checkpointLocation", str(tmp_path)))

    producer.produce(topic, '{"flight":"0","airport":"A1"}', "A1")
    assert producer.flush(30) == 0
    assert read() == 1
    producer.produce(topic, value, None if text == "has no value" else "A1")
    assert producer.flush(30) == 0
    with pytest.raises(StreamingQueryException, match=text):
        read()


def test_P4_S12_records_that_a_value_cannot_contain_end_no_query(
    spark: SparkSession, bootstrap: str, group: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, dead, topic = new_topic(1), new_topic(1), f"by-{group}"
    producer = ordered_producer(bootstrap)
    for i, text in enumerate((b'{"1":1}', b'{"1":1,"01":2}', b'{"\xff":1}', b'{"9":9}')):
        producer.produce(source, b'{"counts":%s}' % text, f"k{i}")
    assert producer.flush(30) == 0
    records = spark.readStream.format("streamgroups").options(**shared_options(bootstrap, group, source)).load()
    decoded = sg.decode(records, sg.schemas.Json("counts map<string,int>"))
    columns = ["cast(key AS string) AS flight", "cast(value AS string) AS text"]
    columns += ["cast(record.counts AS map<int,int>) AS counts", "dead_letter"]
    writer = sg.repartition(
        decoded.selectExpr(*columns),
        by=["flight"],
        topic=topic,
        partitions=2,
        checkpoint=str(tmp_path / "writing"),
        dead_letters=sg.KafkaSink(bootstrap_servers=bootstrap, topic=dead),
    )
    assert run(writer) == 1
    found = {it.step: it for it in letters_in(bootstrap, dead)}
    assert {step: it.error_class for step, it in found.items()} == {
        "decode": "NotUtf8",
        "repartition": "RecordRejected",
    }
    assert json.loads(found["repartition"].details["record"])["flight"] == "k1"

    reader = sg.read_repartitioned(
        spark,
        topic=topic,
        by=["flight"],
        columns="flight string, counts map<int,int>",
        options={"kafka.bootstrap.servers": bootstrap, "group.id": f"{group}-reader"},
    )
    rows: list[Any] = []
    query = reader.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    run(query.option("checkpointLocation", str(tmp_path / "reading")))
    assert sorted((row.flight, row.counts) for row in rows) == [("k0", {1: 1}), ("k3", {9: 9})]


# ---- kills -----------------------------------------------------------------------------------------------------------


def current(rows: list[dict[str, Any]]) -> dict[tuple[int, str | None], int]:
    """The count with the highest revision of each window and airport. Fails if a row was written twice."""
    counts = Counter((row["start_ms"], row["airport"], row["revision"]) for row in rows)
    assert [it for it, times in counts.items() if times > 1] == []
    return {(row["start_ms"], row["airport"]): row["n"] for row in sorted(rows, key=lambda row: row["revision"])}


@LONG
def test_S12_X2_both_queries_are_killed_and_each_record_is_counted_once(
    spark: SparkSession, bootstrap: str, group: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    choose = random.Random(5)
    source, counts, topic = new_topic(4), new_topic(1), f"by-{group}"
    flights = [(START_MS + i * 40 + choose.randint(0, 5_000), choose.choice(AIRPORTS)) for i in range(2_400)]
    limit = {"maxOffsetsPerTrigger": "150"}
    config: dict[str, Any] = {
        "source": shared_options(bootstrap, group, source, "consumer") | limit,
        "options": {
            "kafka.bootstrap.servers": bootstrap,
            "group.id": f"{group}-counts",
            "kafka.group.protocol": "consumer",
        }
        | limit,
        "topic": topic,
        "counts": counts,
        "directory": str(tmp_path),
    }
    produce(bootstrap, source, flights)
    with running("repartition_query", config, tmp_path / "log") as program:

        def both_have_written() -> bool:
            program.check()
            return len(read_committed(bootstrap, counts)) > 0

        wait_until(both_have_written, "windows are written", timeout_s=120)
    assert 0 < len(read_committed(bootstrap, topic)) < len(flights), "the writer was killed in the middle"

    # A record in each partition that closes the windows.
    last_ms = max(at_ms for at_ms, _ in flights) + 3_600_000
    names = [f"end-{i}" for i in range(50)]
    by_partition = dict(zip(partitions_of_keys(pa.array(names), PARTITIONS).to_pylist(), names, strict=True))
    assert len(by_partition) == PARTITIONS
    produce(bootstrap, source, [(last_ms, name) for name in by_partition.values()])
    expected = Counter((at_ms - at_ms % SIZE_MS, airport) for at_ms, airport in flights)

    def reported() -> dict[tuple[int, str | None], int]:
        return current([json.loads(message.value) for message in read_committed(bootstrap, counts)])

    for options in (config["source"], config["options"]):
        del options["maxOffsetsPerTrigger"]
    queries = [write(spark, config), count(spark, config)]

    def all_is_counted() -> bool:
        assert all(query.isActive for query in queries), [query.exception() for query in queries]
        return reported() == expected

    try:
        wait_until(all_is_counted, "all flights are counted", timeout_s=120)
    finally:
        for query in queries:
            query.stop()
    assert len(read_committed(bootstrap, topic)) == len(flights) + PARTITIONS
    assert len({message.partition for message in read_committed(bootstrap, topic) if message.key is None}) == 1
