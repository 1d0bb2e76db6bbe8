"""Decoding, per record: values in memory into columns, without a broker.

A family of ``benchmarks.command``. The peer is Spark's ``from_json`` on the same flights as JSON, which detects less. The
limit is a function of ``mapInArrow`` that decodes nothing, and returns one record for each value. The result of each run is
counted: all values are decoded.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from benchmarks.bench import Bench
from benchmarks.figures import RECORDS_PER_S, Missing, Row, compare, median_of
from benchmarks.rounds import WrongCount
from benchmarks.sources import STREAMGROUPS
from benchmarks.workload import JSON_SCHEMA, TopicSpec, records
from streamgroups_testkit.schema_registry import FakeSchemaRegistry

FROM_JSON, EMPTY_STEP = "Spark, from_json", "empty mapInArrow"
#: The fields of :data:`~benchmarks.workload.JSON_SCHEMA`.
_FIELDS = (("id", "long"), ("carrier", "string"), ("origin", "string"), ("delay", "int"))


def decoding(bench: Bench) -> Iterator[Row]:
    """Each format on the same flights."""
    count = bench.scale.query
    source = records(bench.spark, TopicSpec(count)).select("value")
    parsed = source.select("value", F.from_json(F.col("value").cast("string"), JSON_SCHEMA).alias("record"))
    with FakeSchemaRegistry() as server:
        registry = sg.schemas.SchemaRegistry(server.url)
        server.add("flights-avro", _avro())
        server.add("flights-protobuf", _protobuf(), "PROTOBUF")
        formats: dict[str, sg.schemas.Json | sg.schemas.Avro | sg.schemas.Protobuf] = {
            "JSON": sg.schemas.Json(JSON_SCHEMA),
            "Avro, with a registry": sg.schemas.Avro(registry=registry, subject="flights-avro"),
            "Protobuf, with a registry": sg.schemas.Protobuf(registry=registry, subject="flights-protobuf"),
        }
        stored = {
            name: (parsed if name == "JSON" else sg.encode(parsed, format)).select("value").persist()
            for name, format in formats.items()
        }
        for values in stored.values():
            values.count()
        runs: dict[str, Callable[[], float]] = {FROM_JSON: partial(_speed, stored["JSON"], _from_json, count)}
        for name, format in formats.items():
            runs[name] = partial(_speed, stored[name], partial(sg.decode, format=format), count)
        runs[EMPTY_STEP] = partial(_speed, stored["JSON"], _without_decoding, count)
        try:
            found = bench.race("decode", runs, bench.scale.rounds)
        finally:
            for values in stored.values():
                values.unpersist()
    cells = {name: it if isinstance(it, Missing) else median_of(it) for name, it in found.items()}
    for name in formats:
        all_ = {STREAMGROUPS: cells[name], FROM_JSON: cells[FROM_JSON], EMPTY_STEP: cells[EMPTY_STEP]}
        what = f"decode {name}, {count:,} in memory"
        yield from compare(what, RECORDS_PER_S, all_, own=STREAMGROUPS, limits=(EMPTY_STEP,))


def _from_json(values: DataFrame) -> DataFrame:
    parsed = values.select("value", F.from_json(F.col("value").cast("string"), JSON_SCHEMA).alias("record"))
    return parsed.withColumn("dead_letter", F.lit(None))


def _without_decoding(values: DataFrame) -> DataFrame:
    types = [pa.int64(), pa.string(), pa.string(), pa.int32()]
    record = pa.struct([pa.field(name, of) for (name, _), of in zip(_FIELDS, types, strict=True)])
    one = pa.array([{"id": 1, "carrier": "AA", "origin": "JFK", "delay": 15}], record)

    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            decoded = one.take(pa.array(np.zeros(batch.num_rows, np.int64)))
            columns = [batch["value"], decoded, pa.nulls(batch.num_rows, pa.string())]
            yield pa.RecordBatch.from_arrays(columns, ["value", "record", "dead_letter"])

    return values.mapInArrow(step, f"value BINARY, record STRUCT<{JSON_SCHEMA}>, dead_letter STRING")


def _speed(values: DataFrame, decode: Callable[[DataFrame], DataFrame], count: int) -> float:
    began_s = time.perf_counter()
    # All fields are read: Spark would otherwise not decode them.
    checks = [F.count(f"record.{name}") for name, _ in _FIELDS]
    counts = decode(values).agg(*checks, F.count("dead_letter")).first()
    took_s = time.perf_counter() - began_s
    if counts is None or list(counts) != [count] * len(_FIELDS) + [0]:
        raise WrongCount(f"{counts} were decoded instead of {count}")
    return count / took_s


def _avro() -> str:
    return json.dumps({"type": "record", "name": "Flight", "fields": [{"name": n, "type": t} for n, t in _FIELDS]})


def _protobuf() -> str:
    kind = descriptor_pb2.FieldDescriptorProto
    types = {"long": kind.TYPE_INT64, "string": kind.TYPE_STRING, "int": kind.TYPE_INT32}
    file = descriptor_pb2.FileDescriptorProto(name="flights.proto", package="board", syntax="proto3")
    fields = file.message_type.add(name="Flight").field
    for number, (name, type_) in enumerate(_FIELDS, 1):
        fields.add(name=name, number=number, type=types[type_])
    return base64.b64encode(file.SerializeToString()).decode()
