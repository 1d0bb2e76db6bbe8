"""P4: a value that cannot be decoded becomes a dead letter with its bytes and the reason, and all others are decoded."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from integration_tests.tiers import LONG
from streamgroups.decoding.wire_format import header
from streamgroups.errors import InvalidOption
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.schema_registry import FakeSchemaRegistry

FIELDS = "airport: string, delay: int"
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
    producer = ordered_producer(bootstrap)
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

    decoded = sg.decode(read(spark, bootstrap, topic), sg.schemas.Json(SCHEMA))
    # The second step has another schema, and does not change earlier letters.
    rows = by_offset(sg.decode(decoded, sg.schemas.Json("delay string"), into="again", step="second"))

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
        spark.createDataFrame([(v,) for v in values], "value binary"), sg.schemas.Json("a int, b string")
    ).collect()
    assert len(rows) == len(values)
    for row in rows:
        assert (row.record is None) != (row.dead_letter is None), row.value
        try:
            is_object = isinstance(json.loads(row.value), dict)
        except ValueError:
            is_object = False
        if row.record is not None:
            assert is_object, row.value
        elif is_object:
            assert row.dead_letter.error_class == "FieldType", (row.value, row.dead_letter)


def avro(**fields: str) -> str:
    return json.dumps(
        {"type": "record", "name": "Flight", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
    )


def test_P4_avro_values_of_a_registry(spark: SparkSession, bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1)
    settings = {"basic.auth.user.info": "carol:hunter2", "max.retries": "0"}
    with FakeSchemaRegistry("carol:hunter2") as server:
        registry = sg.schemas.SchemaRegistry(server.url, settings)
        subject = f"{topic}-value"
        rows = spark.createDataFrame(
            [(1, ("JFK", 4)), (2, None), (3, ("LAX", None))], f"n int, record struct<{FIELDS}>"
        )
        format = sg.schemas.Avro(avro(airport="string", delay="int"), registry=registry, subject=subject, register=True)
        encoded = sg.encode(rows, format).orderBy("n").collect()
        # The schema has no null, so the third row is not encodable.
        assert [row.dead_letter and row.dead_letter.error_class for row in encoded] == [None, None, "NotEncodable"]
        good = bytes(encoded[0].value)
        newer = server.add(subject, avro(delay="long"))
        other = server.add(subject, avro(airport="string", delay="string"))
        values = [
            (good, None),
            (None, None),
            (header(newer) + b"\x0a", "SchemaMismatch"),
            (header(other) + b"\x02J\x02x", "SchemaMismatch"),
            (header(other + 1) + good[5:], "UnknownSchemaId"),
            (b"", "EmptyValue"),
            (b'{"delay": 1}', "NoMagicByte"),
            (good[:-1], "Malformed"),
            (good + b"\x00", "TrailingBytes"),
            (header(1) + b"\x02\xff\x00", "NotUtf8"),
        ]
        send(bootstrap, topic, [value for value, _ in values])
        reader = sg.schemas.Avro(avro(airport="string", delay="long"), registry=registry)
        decoded = sg.decode(read(spark, bootstrap, topic), reader)
        assert "hunter2" not in decoded._jdf.queryExecution().toString()
        found = by_offset(decoded)
        for (value, error_class), row in zip(values, found, strict=True):
            assert (row.dead_letter and row.dead_letter.error_class) == error_class, value
            assert row.dead_letter is None or (row.dead_letter.value, row.dead_letter.offset) == (value, row.offset)
        assert found[0].record.asDict() == {"airport": "JFK", "delay": 4}
        assert found[4].dead_letter.details == {"schema_id": str(other + 1)}

        server.fails_with = 503
        # Workers have cached the schemas of the first URL.
        down = sg.schemas.Avro(reader.schema, registry=replace(registry, url=server.url + "/"))
        with pytest.raises(PythonException, match="failed with HTTP status 503") as error:
            sg.decode(read(spark, bootstrap, topic), down).collect()
        assert "RegistryUnreachable" in str(error.value)
        assert "hunter2" not in str(error.value)


@LONG
def test_P4_other_formats_without_a_broker(spark: SparkSession) -> None:
    """Values of Protobuf, times of all formats, and JSON Schema."""
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        rows = spark.sql(
            "SELECT 1 n, struct('JFK' airport, timestamp'2026-03-01 12:00:00.5' at, interval '1 00:00:01' day to second lasts) record "
            "UNION ALL SELECT 2, NULL"
        )
        with FakeSchemaRegistry() as server:
            server.add("flights-value", flight_descriptor(), "PROTOBUF")
            format = sg.schemas.Protobuf(registry=sg.schemas.SchemaRegistry(server.url), subject="flights-value")
            written = sg.encode(rows, format).drop("record")
            first, second = sg.decode(written, format).orderBy("n").collect()
            assert (second.value, second.record, second.dead_letter) == (None, None, None)
            assert first.value[:6] == header(1) + b"\x00"
            assert first.record == rows.orderBy("n").collect()[0].record
            bad = written.withColumn("value", F.expr("substring(value, 1, 9)"))
            assert sg.decode(bad, format).orderBy("n").collect()[0].dead_letter.error_class == "Malformed"

        times = spark.sql(
            "SELECT struct(timestamp'2026-03-01 12:00:00' at, timestamp_ntz'2026-03-01 12:00:00' wall) record"
        )
        logical = [("at", "timestamp-millis"), ("wall", "local-timestamp-micros")]
        schema = [{"name": n, "type": {"type": "long", "logicalType": it}} for n, it in logical]
        for times_format in (
            sg.schemas.Avro(json.dumps({"type": "record", "name": "Times", "fields": schema})),
            sg.schemas.Json("at timestamp, wall timestamp_ntz"),
        ):
            again = sg.decode(sg.encode(times, times_format).drop("record"), times_format)
            assert again.collect()[0].record == times.collect()[0].record

        source = "CAST('k' AS binary) key, 't' topic, 0 partition, 7L offset"
        no_airport = spark.sql(f"SELECT {source}, struct(CAST(NULL AS string) airport) record")
        [row] = sg.encode(no_airport, sg.schemas.Avro(avro(airport="string"))).collect()
        assert (row.dead_letter.error_class, row.dead_letter.value) == ("NotEncodable", None)
        assert row.dead_letter.details == {"record": "{}", "missing": "value"}

        texts = spark.createDataFrame([(b'{"delay": 1}',), (b'{"delay": -1}',), (b"{",)], "value binary")
        checked = sg.schemas.validate(texts, '{"properties": {"delay": {"minimum": 0}}}')
        decoded = sg.decode(checked, sg.schemas.Json("delay int")).collect()
        assert [row.record and row.record.delay for row in decoded] == [1, None, None]
        letters = [row.dead_letter and (row.dead_letter.step, row.dead_letter.error_class) for row in decoded]
        assert letters == [None, ("validate", "InvalidDocument"), ("validate", "Malformed")]
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


def flight_descriptor() -> str:
    """A message with the fields ``airport``, ``at`` and ``lasts``, as a registry returns it."""
    kind = descriptor_pb2.FieldDescriptorProto
    made = descriptor_pb2.FileDescriptorProto(name="flights.proto", package="board", syntax="proto3")
    made.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/duration.proto"])
    fields = made.message_type.add(name="Flight").field
    fields.add(name="airport", number=1, type=kind.TYPE_STRING)
    for number, (name, type_) in enumerate([("at", "Timestamp"), ("lasts", "Duration")], 2):
        fields.add(name=name, number=number, type=kind.TYPE_MESSAGE, type_name=f".google.protobuf.{type_}")
    return base64.b64encode(made.SerializeToString()).decode()


def test_invalid_arguments_are_rejected_before_a_query_starts(spark: SparkSession) -> None:
    df = spark.createDataFrame([(b"", 1, ("x",))], "value binary, n int, record struct<a: string>")
    in_avro = sg.schemas.Avro(avro(a="int"))
    no_subject = sg.schemas.Avro(avro(a="string"), registry=sg.schemas.SchemaRegistry("http://localhost:1"))
    attempts: list[tuple[str, Callable[[], object]]] = [
        ("no column 'vale'", lambda: sg.decode(df, sg.schemas.Json("a int"), column="vale", into="x")),
        ("has the type int", lambda: sg.decode(df, sg.schemas.Json("a int"), column="n", into="x")),
        ("already has a column 'Record'", lambda: sg.decode(df, sg.schemas.Json("a int"), into="Record")),
        ("already has a column 'dead_letter'", lambda: sg.decode(df, sg.schemas.Json("a int"), into="dead_letter")),
        ("which Spark cannot parse", lambda: sg.decode(df, sg.schemas.Json("a nonsense"), into="x")),
        ("names no fields", lambda: sg.decode(df, sg.schemas.Json(), into="x")),
        ("Option 'format'", lambda: sg.decode(df, "json", into="x")),  # type: ignore[arg-type]
        ("cannot be parsed", lambda: sg.decode(df, sg.schemas.Avro("flight.avsc"), into="x")),
        (
            "no dead letter",
            lambda: sg.decode(df.withColumn("dead_letter", F.lit(1)), sg.schemas.Json("a int"), into="x"),
        ),
        ("no column 'flight' that is a struct", lambda: sg.encode(df, in_avro, column="flight")),
        ("the schema requires int", lambda: sg.encode(df, in_avro)),
        ("no field 'b'", lambda: sg.encode(df, sg.schemas.Avro(avro(a="string", b="int")))),
        ("needs a subject", lambda: sg.encode(df, no_subject)),
        ("The JSON Schema is invalid", lambda: sg.schemas.validate(df, "{")),
    ]
    for names, attempt in attempts:
        with pytest.raises(InvalidOption) as error:
            attempt()
        assert names in str(error.value)
