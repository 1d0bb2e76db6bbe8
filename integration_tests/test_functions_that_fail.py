"""P4: ``sg.safely`` in Spark: a record that a function cannot process becomes a dead letter, and the stream continues."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from streamgroups.errors import InvalidOption
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.queries import shared_options

RECORDS, POISON = 200, {0, 7, 8, 9, 100, 199}


@pytest.fixture
def topic(bootstrap: str, new_topic: Callable[..., str]) -> str:
    """Two partitions, each with all numbers. Some values are no JSON."""
    topic, producer = (
        new_topic(2, retention_ms="-1"),
        ordered_producer(bootstrap),
    )
    for partition in range(2):
        for n in range(RECORDS):
            value = b"{poison" if n in POISON else json.dumps({"n": n}).encode()
            headers: list[tuple[str, str | bytes | None]] = [("trace", b"\x00")]
            producer.produce(topic, value, f"key-{n % 3}", partition, timestamp=1_000 * n + 1, headers=headers)
    assert producer.flush(30) == 0
    return topic


@pytest.fixture
def records(spark: SparkSession, bootstrap: str, group: str, topic: str) -> DataFrame:
    options = shared_options(bootstrap, group, topic, "consumer") | {"includeHeaders": "true"}
    return spark.readStream.format("streamgroups").options(**options).load()


def parsed(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(n=[json.loads(value)["n"] for value in frame["value"]])


def test_P4_W17_letters_of_bounded_data_contain_the_source_record(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    bounded = spark.read.format("streamgroups").options(**options).load()
    numbers = sg.safely(bounded, parsed, output="n bigint", columns=["value"])
    odd = sg.safely(numbers, lambda it: {"rest": 1 // (it["n"] % 50)}, output="rest int", takes="record", step="rest")
    rows = odd.collect()
    assert len(rows) == 2 * RECORDS
    by_zero = {50, 150}  # 0 and 100 are no JSON
    for row in rows:
        n, letter = row.offset, row.dead_letter
        assert row.n == (None if n in POISON else n)
        assert (letter is not None) == (n in POISON | by_zero)
        if letter is not None:
            expected = ("parsed", "JSONDecodeError") if n in POISON else ("rest", "ZeroDivisionError")
            assert (letter.step, letter.error_class) == expected
            source = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
            assert [letter[name] for name in source] == [row[name] for name in source]
            assert letter.details["at"].startswith("test_functions_that_fail.py:")


def test_P4_W17_windows_behind_it_have_the_records_in_order_and_the_watermark(records: DataFrame) -> None:
    timed = records.withWatermark("timestamp", "1 second")
    numbers = sg.safely(timed, parsed, output="n bigint", columns=["value"])
    counts = sg.windows(
        numbers.where("dead_letter IS NULL"),
        on="timestamp",
        by=["key"],
        window=sg.shapes.tumbling("50 seconds"),
        aggregate={"numbers": "count(*)", "total": "sum(n)"},
        flush=True,
    )
    seen: list[Any] = []
    writer = counts.writeStream.foreachBatch(lambda batch, _: seen.extend(batch.collect())).trigger(availableNow=True)
    assert writer.start().awaitTermination(60)
    good = [n for n in range(RECORDS) if n not in POISON]
    assert sum(row.numbers for row in seen) == 2 * len(good)
    assert sum(row.total for row in seen) == 2 * sum(good)


@pytest.fixture
def values(spark: SparkSession) -> DataFrame:
    """A DataFrame of another source, with a text in the place of the bytes."""
    return spark.range(1).selectExpr("'{poison' AS value")


def test_P4_an_unreachable_service_fails_the_query(values: DataFrame) -> None:
    def enriched(_frame: pd.DataFrame) -> pd.DataFrame:
        raise ConnectionError("connection to ann:hunter2@prices lost")

    with pytest.raises(PythonException, match="Step 'enriched': The function 'enriched' has raised ConnectionError"):
        sg.safely(values, enriched, output="price double").collect()


def test_P4_a_text_is_the_content_of_a_letter(values: DataFrame) -> None:
    [row] = sg.safely(values, parsed, output="n bigint").collect()
    assert (row.dead_letter.value, row.dead_letter.offset) == (b"{poison", None)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"function": 1}, "'function' is 1"),
        ({"takes": "polars"}, "'takes' is 'polars'"),
        ({"output": "n"}, "which Spark cannot parse"),
        ({"output": ""}, "names no columns"),
        ({"output": "n int, N int"}, "2 columns have the name 'n'"),
        ({"output": "dead_letter int"}, "which sg.safely adds itself"),
        ({"columns": ["values"]}, "contains values, which the DataFrame does not have"),
        ({"columns": "value"}, r"Pass a list: \['value'\]"),
        ({"columns": []}, "at least one column"),
        ({"function": lambda it: it}, "A lambda has no name"),
        ({"step": " "}, "'step' is ' '"),
        ({"fail_on": [Exception]}, "no record would become a dead letter"),
        ({"fail_on": ["OSError"]}, "contains 'OSError'"),
    ],
)
def test_P4_invalid_arguments_are_rejected(values: DataFrame, arguments: dict[str, Any], problem: str) -> None:
    given: dict[str, Any] = {"df": values, "function": parsed, "output": "n bigint"} | arguments
    with pytest.raises(InvalidOption, match=problem):
        sg.safely(**given)


def test_P4_a_column_with_the_name_of_dead_letters_is_rejected(values: DataFrame) -> None:
    with pytest.raises(InvalidOption, match="which is no dead letter"):
        sg.safely(values.withColumn("dead_letter", F.lit(1)), parsed, output="n bigint")
