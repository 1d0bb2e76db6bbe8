"""A query over a hostile topic as a program: ``python -m integration_tests.hostile_query '{...}'``.

It decodes Avro, calls a function, and writes rows or windows with dead letters to Kafka, PostgreSQL or Delta Lake.
``hostile_topic`` starts and kills it, and a shorter test runs it in its own session.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter

import streamgroups as sg
from integration_tests.hostile_avro import SUBJECT
from streamgroups_testkit.spark_sessions import session_builder

#: How the function of each sink receives its records.
TAKES: Mapping[str, str] = {"kafka": "record", "postgres": "pandas", "delta": "arrow"}
#: The function rejects later event times. Otherwise such a record would close all windows of its partition.
LATEST_US = 4_102_444_800_000_000
WINDOW_MS = 10_000
#: The header of the output rows in Kafka, with the place of their source record.
ORIGIN = "origin"
_COLUMNS = ("n", "place", "delay", "at", "price")


class FromTheFuture(Exception):
    """Raised for an event time that cannot be right."""


class Silent(Exception):
    """An error whose message raises an error."""

    def __str__(self) -> str:
        raise ValueError("no message")


def _stop(_: str) -> Any:
    raise StopIteration


def _secret(_: str) -> Any:
    raise ValueError("password=hunter2 of \x00 \x1b \ud800")


def _silent(_: str) -> Any:
    raise Silent


def _deep(place: str) -> Any:
    return _deep(place)


#: The results of the function for some texts, by their first word.
_CASES: Mapping[str, Callable[[str], Any]] = {
    "!zero": lambda _: 1 // 0,
    "!missing": lambda place: dict[str, int]()[place],
    "!secret": _secret,
    "!silent": _silent,
    "!stop": _stop,
    "!deep": _deep,
    "!large": lambda _: 2**70,
    "!text": lambda _: "a text",
}


def fee_of(place: str | None, delay: int | None, at_us: int | None, cents: int | None) -> Any:
    """The fee of a flight; null for a tombstone."""
    if at_us is not None and at_us > LATEST_US:
        raise FromTheFuture(f"the event time is {at_us}")
    if place is not None and (case := _CASES.get(place.split(" ")[0])):
        return case(place)
    return None if delay is None or cents is None else delay * 3 + cents


def _cents(price: Any) -> int | None:
    return None if price is None else int(price.scaleb(2))


def _of_record(record: dict[str, Any]) -> dict[str, Any]:
    at = record["at"]
    # A datetime of the years 1 to 9999. Only its order matters.
    at_us = None if at is None else int(at.timestamp() * 1_000_000)
    return {"fee": fee_of(record["place"], record["delay"], at_us, _cents(record["price"]))}


def _of_frame(frame: Any) -> Any:
    import pandas as pd

    times = zip(frame["at"].notna(), frame["at"].astype("int64"), strict=True)
    fees = [
        # A column of integers with a null is one of floats.
        fee_of(
            place, None if delay is None or delay != delay else int(delay), at_us if is_time else None, _cents(price)
        )
        for place, delay, (is_time, at_us), price in zip(
            frame["place"], frame["delay"], times, frame["price"], strict=True
        )
    ]
    return frame.assign(fee=pd.Series(fees, index=frame.index, dtype=object))


def _of_table(table: pa.Table) -> pa.Table:
    times = table["at"].cast(pa.int64()).to_pylist()
    columns = [table[name].to_pylist() for name in ("place", "delay")]
    prices = map(_cents, table["price"].to_pylist())
    fees = [fee_of(*fields) for fields in zip(*columns, times, prices, strict=True)]
    return pa.table({"fee": pa.array(fees, pa.int64())})


_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {"record": _of_record, "pandas": _of_frame, "arrow": _of_table}


def checked(spark: SparkSession, config: Mapping[str, Any]) -> DataFrame:
    """The decoded records with their fee, and the dead letters of both steps."""
    records = spark.readStream.format("streamgroups").options(**config["options"]).load()
    registry = sg.schemas.SchemaRegistry(config["registry"])
    decoded = sg.decode(records, sg.schemas.Avro(registry=registry, subject=SUBJECT))
    fields = decoded.select("*", *(f"record.{name}" for name in _COLUMNS)).drop("record")
    takes = TAKES[config["sink"]]
    return sg.safely(
        fields, _FUNCTIONS[takes], output="fee bigint", columns=list(_COLUMNS), takes=takes, step="checked"
    )


def _rows(records: DataFrame, sink: str) -> DataFrame:
    if sink != "kafka":
        return records.select("topic", "partition", "offset", "n", "fee", "at", "place", "timestamp", "dead_letter")
    place = F.concat_ws("/", "partition", "offset").cast("binary")
    own = F.array(F.struct(F.lit(ORIGIN).alias("key"), place.alias("value")))
    headers = F.concat(F.coalesce("headers", F.array().cast(records.schema["headers"].dataType)), own)
    value = F.struct("partition", "offset", "n", "fee", F.unix_micros("at").alias("at"), "place")
    return records.select("key", F.to_json(value).alias("value"), headers.alias("headers"), "timestamp", "dead_letter")


def _windows(records: DataFrame, sink: str) -> DataFrame:
    counted = sg.windows(
        records.withWatermark("at", "0 seconds"),
        on="at",
        by=["key"],
        window=sg.shapes.tumbling(f"{WINDOW_MS} milliseconds"),
        aggregate={"records": "count(*)", "total": "sum(n)", "fees": "sum(fee)", "last": "max(place)"},
        dead_letters=True,
        time="partition",
    )
    if sink != "kafka":
        return counted.select("key", "window_start", "records", "total", "fees", "last", "dead_letter")
    value = F.struct(F.unix_micros("window_start").alias("start"), "records", "total", "fees", "last")
    return counted.select("key", F.to_json(value).alias("value"), "dead_letter")


def writer(spark: SparkSession, config: Mapping[str, Any]) -> DataStreamWriter:
    """The query, with its sink and the sink of its dead letters."""
    sink, bootstrap = config["sink"], config["bootstrap"]
    made: Callable[[str], Any] = {
        "kafka": lambda to: sg.KafkaSink(bootstrap_servers=bootstrap, topic=to, transaction_timeout="20s"),
        "postgres": lambda to: sg.PostgresSink(conninfo=config["postgres"], table=to),
        "delta": lambda to: sg.DeltaSink(uri=to),
    }[sink]
    shape = {"rows": _rows, "windows": _windows}[config["shape"]]
    output = shape(checked(spark, config), sink)
    found = sg.exactly_once(
        output, sink=made(config["board"]), dead_letters=made(config["dead"]), checkpoint=config["checkpoint"]
    )
    return found.queryName("hostile")


def main(config: dict[str, Any]) -> int:
    spark = session_builder("hostile").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    sg.register(spark)
    writer(spark, config).trigger(processingTime="200 milliseconds").start().awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
