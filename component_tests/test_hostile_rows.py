"""P4, S12: rows that end no query: the rules of writers for single rows, which are expressions of Spark."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from streamgroups.dlq.letter import COLUMN
from streamgroups.event_time.violations import Why
from streamgroups_spark.dlq.failure_column import failure, with_letter
from streamgroups_spark.dlq.late_letters import late_failure
from streamgroups_spark.frames.record_values import column_of, from_value
from streamgroups_spark.frames.value_rejections import rejection
from streamgroups_spark.repartition.repartition import _values
from streamgroups_spark.sinks import exactly_once
from streamgroups_spark.sinks.letters.kafka_rejections import with_rejections
from streamgroups_spark.sinks.sink_options import parse_sink

MIN_US, MAX_US = -(2**63), 2**63 - 1
ZONES = ["UTC", "America/New_York", "Europe/London", "Asia/Kolkata", "Pacific/Kiritimati", "Pacific/Pago_Pago"]


@pytest.fixture
def set_zone(local_spark: SparkSession) -> Iterator[Callable[[str], None]]:
    """Sets the time zone of the session for one test."""
    before = str(local_spark.conf.get("spark.sql.session.timeZone"))
    yield lambda zone: local_spark.conf.set("spark.sql.session.timeZone", zone)
    local_spark.conf.set("spark.sql.session.timeZone", before)


# ---- values of sg.repartition ----------------------------------------------------------------------------------------


def from_text(text: str, type_: str, cast: str | None = None) -> str:
    """An expression of SQL: a map of JSON. Spark's from_json and its casts keep equal keys."""
    parsed = f"from_json('{{\"a\":{text}}}', 'a {type_}').a"
    return parsed if cast is None else f"cast({parsed} AS {cast})"


NOT_UTF8 = "contains a string that is not UTF-8"
EQUAL_KEYS = "contains a map with equal keys"
LONG_KEY = "contains a map with a key of more than 50,000 characters"
EARLY = "contains a timestamp before -290308-12-21T19:59:06Z"
REJECTED = [
    ("cast(X'FF' AS string)", NOT_UTF8),
    ("array(named_struct('s', cast(X'61FF' AS string)))", NOT_UTF8),
    ("map(cast(X'FF' AS string), 1)", NOT_UTF8),
    ("map(1, map('k', cast(X'FF' AS string)))", NOT_UTF8),
    (from_text('{"1":1,"01":2}', "map<string,int>", "map<int,int>"), EQUAL_KEYS),
    ("array(null, " + from_text('{"1":1,"2":5,"01":2}', "map<string,int>", "map<int,int>") + ")", EQUAL_KEYS),
    (from_text('{"0":1,"-0.0":2}', "map<string,int>", "map<double,int>"), EQUAL_KEYS),
    (from_text('{"NaN":1,"1":3,"nan":2}', "map<string,int>", "map<float,int>"), EQUAL_KEYS),
    (from_text('{"k":1,"l":2,"k":3}', "map<string,int>", "map<binary,int>"), EQUAL_KEYS),
    ("map(repeat('k', 50001), 1)", LONG_KEY),
    ("map(repeat('\U0001f600', 25001), 1)", LONG_KEY),
    ("timestamp_micros(-9223372036854775807L - 1L)", EARLY),
    ("map(timestamp_micros(-9223372036854000001L), 1)", EARLY),
]
EXACT = [
    from_text('{"k":1,"k":2}', "map<string,int>"),
    from_text('{"k":{"1":2},"k":{"3":4}}', "map<string,map<string,int>>", "map<string,map<int,int>>"),
    from_text('{"k":1,"K":2}', "map<string,int>", "map<string COLLATE UTF8_LCASE,int>"),
    "map(repeat('k', 50000), 1)",
    "map(repeat('\U0001f600', 25000), repeat('é', 25001))",
    "map(named_struct('a', 1, 'b', null), 1, named_struct('a', null, 'b', null), 2)",
    "map(array(1, null), array(map(1, 2)), array(1), null)",
    "timestamp_micros(-9223372036854000000L)",
    "timestamp_micros(9223372036854775807L)",
    "date_from_unix_date(-2147483648)",
    "date_from_unix_date(2147483647)",
    "make_dt_interval(-106751991, -4, 0, -54.775808)",
    "make_ym_interval(-178956970, -8)",
    "cast(null AS map<int,int>)",
    "map()",
]


def written(df: DataFrame, *, with_letters: bool) -> DataFrame:
    return df.select(*_values(df, df.schema, with_letters=with_letters))


def test_S12_each_value_that_json_cannot_contain_has_a_reason(local_spark: SparkSession) -> None:
    df = local_spark.range(1).selectExpr(*(f"{expression} AS c{i}" for i, (expression, _) in enumerate(REJECTED)))
    reasons = (rejection(StructType([field])) for field in df.schema)
    [found] = df.select(*(it for it in reasons if it is not None)).collect()
    for i, ((expression, why), reason) in enumerate(zip(REJECTED, found, strict=True)):
        assert str(reason).startswith(f"Column 'c{i}' {why}"), expression


def test_P4_S12_a_row_with_such_a_value_is_a_letter_or_a_named_error(local_spark: SparkSession) -> None:
    df = local_spark.range(2).selectExpr("id", f"IF(id = 0, null, {REJECTED[4][0]}) AS c")
    good, bad = written(df, with_letters=True).collect()
    assert (good.value, good.dead_letter) == ('{"id":0,"c":null}', None)
    assert bad.value is None
    assert bad.dead_letter.error.startswith(f"Column 'c' {EQUAL_KEYS}")
    assert (bad.dead_letter.step, bad.dead_letter.error_class) == ("repartition", "RecordRejected")
    record = '{"id":1,"c":[{"key":1,"value":1},{"key":1,"value":2}]}'
    assert bad.dead_letter.details == {"record": record, "missing": "key, value"}
    with pytest.raises(PySparkException, match=f"Column 'c' {EQUAL_KEYS}"):
        written(df, with_letters=False).collect()
    numbers = local_spark.range(1)
    assert rejection(numbers.schema) is None
    assert written(numbers, with_letters=True).collect() == [('{"id":0}', None)]


@pytest.mark.parametrize("with_letters", [False, True])
def test_S12_a_row_that_a_value_can_contain_is_read_back(local_spark: SparkSession, with_letters: bool) -> None:
    df = local_spark.range(1).selectExpr(*(f"{expression} AS c{i}" for i, expression in enumerate(EXACT)))
    parsed = written(df, with_letters=with_letters).select(from_value(F.col("value"), df.schema).alias("row"))
    read = parsed.select(*(column_of(F.col("row"), field).alias(field.name) for field in df.schema))
    as_texts = [f"cast({name} AS string) AS {name}" for name in df.columns]
    [before], [after] = (it.selectExpr(*as_texts).collect() for it in (df, read))
    assert dict(zip(EXACT, after, strict=True)) == dict(zip(EXACT, before, strict=True))
    assert (after.c0, after.c1) == ("{k -> 1, k -> 2}", "{k -> {1 -> 2}, k -> {3 -> 4}}")


def test_S12_a_column_of_corrupt_records_and_a_long_string_are_read_back(local_spark: SparkSession) -> None:
    df = local_spark.range(1).selectExpr("'{' AS _corrupt_record", "repeat('x', 20000001) AS long")
    parsed = written(df, with_letters=False).select(from_value(F.col("value"), df.schema).alias("row"))
    assert parsed.selectExpr("row._corrupt_record", "length(row.long)").collect() == [("{", 20_000_001)]


def test_P4_S12_a_row_with_an_earlier_letter_is_not_evaluated(local_spark: SparkSession) -> None:
    df = local_spark.range(1).selectExpr("X'FF' AS value", "cast(X'FF' AS string) AS text")
    earlier = failure(df, step="decode", error_class=F.lit("NotUtf8"), error=F.lit("It is not UTF-8."))
    df = df.select("*", with_letter(df, earlier))
    schema = df.drop(COLUMN).schema
    [row] = df.select(*_values(df, schema, with_letters=True)).collect()
    assert (row.value, row.dead_letter.step, row.dead_letter.value) == (None, "decode", b"\xff")


# ---- times of late records -------------------------------------------------------------------------------------------


def facts(df: DataFrame) -> list[dict[str, str]]:
    """The details of letters of late records, whose event time is the column ``us``."""
    time = F.timestamp_micros("us")
    why = F.lit(Why.LATE.value)
    letter = late_failure(df.schema, F.col, step="windows", why=why, event_time=time, watermark=time)
    return [row[0]["details"] for row in df.select(letter).collect()]


@pytest.mark.parametrize("zone", ZONES)
def test_P4_times_of_letters_are_those_of_python(
    local_spark: SparkSession, set_zone: Callable[[str], None], zone: str
) -> None:
    choose = random.Random(zone)
    epoch, day_us = datetime(1970, 1, 1, tzinfo=timezone.utc), 86_400_000_000
    change = datetime(2026, 3, 8, 2, 30, tzinfo=timezone.utc)
    micros = [(change - epoch) // timedelta(microseconds=1) + hour * 3_600_000_000 for hour in range(-24, 25)]
    micros += [choose.randint(-719_162 * day_us, 2_932_896 * day_us) for _ in range(2_000)]
    micros += [choose.randint(0, 22_000 * day_us) for _ in range(2_000)]
    set_zone(zone)
    found = facts(local_spark.createDataFrame([(it,) for it in micros], "us long").coalesce(1))
    expected = [
        (epoch + timedelta(microseconds=it)).replace(tzinfo=None).isoformat("T", "microseconds") for it in micros
    ]
    assert [(it["event_time"], it["watermark"]) for it in found] == [(f"{it}Z", f"{it}Z") for it in expected]


@pytest.mark.parametrize("zone", ZONES)
def test_P4_the_first_and_last_time_are_letters(
    local_spark: SparkSession, set_zone: Callable[[str], None], zone: str
) -> None:
    set_zone(zone)
    first, last, none = facts(local_spark.createDataFrame([(MIN_US,), (MAX_US,), (None,)], "us long").coalesce(1))
    assert first["event_time"] == "-9223372036854776ms"
    assert last["watermark"] == "9223372036854775ms"
    assert "event_time" not in none


# ---- rows of the Kafka sink ------------------------------------------------------------------------------------------


OPTIONS = parse_sink({"kafka.bootstrap.servers": "nowhere:9092", "checkpointLocation": "/c"})
UNKNOWN = "The topic did not exist when the query started."
TOPICS = {
    "'board'": None,
    "'unknown'": UNKNOWN,
    "cast(null AS string)": "The row has no topic.",
    "''": UNKNOWN,
    "'dead'": "The topic is that of the dead letters.",
    "'__consumer_offsets'": UNKNOWN,
    "cast(X'FF' AS string)": UNKNOWN,
}


def errors(found: DataFrame) -> list[str | None]:
    """The errors of the dead letters of rows, in their order."""
    letters = [row.dead_letter for row in found.orderBy("value").collect()]
    return [None if it is None else it.error for it in letters]


@pytest.mark.parametrize("key", [[], ["cast(X'FF' AS string) AS key"]], ids=["without key", "with key"])
def test_P4_a_topic_that_the_query_cannot_write_to_is_a_letter(
    local_spark: SparkSession, monkeypatch: pytest.MonkeyPatch, key: list[str]
) -> None:
    monkeypatch.setattr(exactly_once, "parallelism_of", lambda _: 2)
    topic = f"elt(cast(id + 1 AS int), {', '.join(TOPICS)}) AS topic"
    rows = local_spark.range(len(TOPICS)).selectExpr("cast(id AS string) AS value", topic, *key)
    found = exactly_once.disjoint(rows, OPTIONS, {"board": 3, "dead": 1}, with_letters=True, letters_topic="dead")
    assert errors(found) == list(TOPICS.values())


def test_P4_a_header_whose_name_is_not_utf_8_is_a_letter(local_spark: SparkSession) -> None:
    names = ["'name'", "cast(X'FF' AS string)", "cast(null AS string)"]
    headers = f"array(named_struct('key', elt(cast(id + 1 AS int), {', '.join(names)}), 'value', X'FF')) AS headers"
    rows = local_spark.range(3).selectExpr("cast(id AS string) AS value", "'board' AS topic", headers)
    found = with_rejections(rows, OPTIONS, {"board": 3})
    assert errors(found) == [None, "The name of a header is not UTF-8.", "A header has no name."]


def test_P4_too_many_headers_are_a_letter(local_spark: SparkSession) -> None:
    headers = "array_repeat(named_struct('key', 'h', 'value', X''), cast(99999 + id AS int)) AS headers"
    rows = local_spark.range(3).selectExpr("cast(id AS string) AS value", "'board' AS topic", headers)
    assert errors(with_rejections(rows, OPTIONS, {"board": 3})) == [None, None, "The row has more than 100000 headers."]
