"""P4: a value that cannot be decoded becomes a dead letter with its bytes and the reason, and all others are decoded."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

import streamgroups as sg

SCHEMA = "airport string, delay int, gate struct<number: int>"
#: The values and the class of the error; ``None`` for a value that is decoded.
JSON_VALUES: list[tuple[bytes | None, str | None]] = [
    (b'{"airport": "JFK", "delay": 4, "gate": {"number": 7}}', None),
    (b"{}", None),
    (None, None),
    (b"", "EmptyValue"),
    (b'{"airport": "JF\xff"}', "NotUtf8"),
    (b'{"airport": "JFK', "Malformed"),
    (b'[{"airport": "JFK"}]', "NotAnObject"),
    (b"null", "NotAnObject"),
    (b'{"delay": 1}{"delay": 2}', "TrailingBytes"),
    (b'{"delay": 1}]} {', "TrailingBytes"),
    (b'{"delay": "late"}', "FieldType"),
    (b'{"gate": {"number": "A"}}', "FieldType"),
    (b'{"delay": 3000000000}', "FieldType"),
    (b'{"delay": ' + b"[" * 2000, "Malformed"),
]


def send(bootstrap: str, topic: str, values: list[bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, key=b"k", value=value, partition=0, headers={"trace": b"1"})
    assert producer.flush(30) == 0


def read(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    return spark.read.format("streamgroups").options(**options).load()


def by_offset(df: DataFrame) -> list[Any]:
    return sorted(df.collect(), key=lambda row: row.offset)


def test_P4_json_values_of_a_topic(spark: SparkSession, bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1)
    send(bootstrap, topic, [value for value, _ in JSON_VALUES])

    decoded = sg.decode(read(spark, bootstrap, topic), sg.Json(SCHEMA))
    # The second step has another schema, and does not change earlier letters.
    rows = by_offset(sg.decode(decoded, sg.Json("delay string"), into="again", step="second"))

    assert rows[0].record.asDict(True) == {"airport": "JFK", "delay": 4, "gate": {"number": 7}}
    assert rows[0].again.delay == "4"
    for (value, error_class), row in zip(JSON_VALUES, rows, strict=True):
        letter = row.dead_letter
        assert (letter and letter.error_class) == error_class, value
        if letter is None:
            assert (row.record is None) == (value is None)
            continue
        assert row.record is None
        assert row.again is None
        assert letter.error.endswith(".")
        assert (letter.step, letter.topic, letter.partition, letter.offset) == ("decode", topic, 0, row.offset)
        assert (letter.timestamp, letter.key, letter.value) == (row.timestamp, b"k", value)
        assert [(it.key, it.value) for it in letter.headers] == [("trace", b"1")]
    assert [row.dead_letter.details for row in rows[10:13]] == [
        {"fields": "delay int"},
        {"fields": "gate struct<number:int>"},
        {"fields": "delay int"},
    ]


def test_P4_each_json_value_is_decoded_or_a_letter(spark: SparkSession) -> None:
    """Random edits of a value. Python's parser is the oracle for what is one JSON object."""
    chance = random.Random(7)
    pieces = [b"{", b"}", b"]", b"[", b",", b'"', b":", b"1", b'"a":1', b" ", b"\xff", b"\\", b"null", b"x"]
    values = []
    for _ in range(800):
        value = b'{"a": 1, "b": "x"}'
        for _ in range(chance.randrange(3)):
            at = chance.randrange(len(value) + 1)
            value = value[:at] + chance.choice(pieces) + value[at + chance.randrange(2) :]
        values.append(value)
    rows = sg.decode(
        spark.createDataFrame([(v,) for v in values], "value binary"), sg.Json("a int, b string")
    ).collect()
    assert len(rows) == len(values)
    for row in rows:
        assert (row.record is None) != (row.dead_letter is None), row.value
        try:
            is_object = isinstance(json.loads(row.value), dict)
        except ValueError:
            is_object = False
        if row.record is not None:
            # Spark also accepts a control character or another quote in a string. It never accepts two values.
            assert is_object or b"\\" in row.value, row.value
        elif is_object:
            assert row.dead_letter.error_class == "FieldType", (row.value, row.dead_letter)
