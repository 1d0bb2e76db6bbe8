"""W7, W11: the event time in a header is the last of its name, or none. The watermark is the same in all rows of a batch."""

from __future__ import annotations

import re

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from streamgroups.errors import InvalidOption
from streamgroups_kafka.read.arrow_columns import COLUMNS
from streamgroups_spark.formats.data_source import StreamGroupsDataSource
from streamgroups_spark.source.columns import checked_schema, header_times, read_schema, with_columns
from streamgroups_spark.source.source_options import parse

_VALUES = st.none() | st.binary(max_size=6) | st.integers(-(10**14), 10**14).map(lambda ms: str(ms).encode())
_HEADERS = st.none() | st.lists(st.tuples(st.sampled_from(["ts", "other", ""]), _VALUES), max_size=4)

OPTIONS = {"kafka.bootstrap.servers": "broker:9092", "group.id": "airline", "subscribe": "flights"}


def expected_us(headers: list[tuple[str, bytes | None]] | None) -> int | None:
    """One record at a time."""
    values = [value for name, value in headers or [] if name == "ts"]
    if not values or values[-1] is None:
        return None
    digits = values[-1].removeprefix(b"-")
    return int(values[-1]) * 1_000 if digits.isdigit() and len(digits) <= 15 else None


@given(records=st.lists(_HEADERS, max_size=20), first=st.integers(0, 5))
def test_each_record_has_that_of_its_last_header(
    records: list[list[tuple[str, bytes | None]] | None], first: int
) -> None:
    headers = pa.array(records, COLUMNS["headers"]).slice(first)
    times = header_times(headers, "ts")
    times.validate(full=True)
    assert times.type == COLUMNS["timestamp"]
    assert times.cast(pa.int64()).to_pylist() == [expected_us(it) for it in records[first:]]


def test_headers_are_read_for_it_and_returned_only_on_request() -> None:
    requested = pa.schema([("eventTime", COLUMNS["timestamp"]), ("offset", pa.int64())])
    both = pa.schema([*requested, ("headers", COLUMNS["headers"])])
    assert read_schema(requested).names == ["offset", "headers"]
    assert read_schema(both).names == ["offset", "headers"]
    read = pa.record_batch(
        [pa.array([7], pa.int64()), pa.array([[("ts", b"5")]], COLUMNS["headers"])], schema=read_schema(requested)
    )
    for schema in (requested, both):
        (batch,) = with_columns(iter([read]), schema, "ts", None)
        assert batch.schema == schema
        assert batch.column("eventTime").cast(pa.int64()).to_pylist() == [5_000]


@pytest.mark.parametrize("watermark_ms", [None, 0, -1_500, 1_357_016_400_001])
@pytest.mark.parametrize("others", [["offset"], ["value", "offset"], []])
def test_the_watermark_is_added_to_the_columns_that_are_read(watermark_ms: int | None, others: list[str]) -> None:
    types = {"offset": pa.int64(), "value": pa.binary(), "watermark": COLUMNS["timestamp"]}
    schema = pa.schema([(name, types[name]) for name in ("watermark", *others)])
    read = read_schema(schema)
    rows = [pa.array([None] * count, field.type) for field in read for count in [3]]
    (batch,) = with_columns(iter([pa.record_batch(rows, schema=read)]), schema, None, watermark_ms)
    assert batch.schema == schema
    expected_us = None if watermark_ms is None else watermark_ms * 1_000
    assert batch.column("watermark").cast(pa.int64()).to_pylist() == [expected_us] * 3


def columns(**options: str) -> dict[str, str]:
    schema = StreamGroupsDataSource({**OPTIONS, **options}).schema()
    assert all(it.nullable for it in schema)
    return {it.name: it.dataType.simpleString() for it in schema}


def test_an_option_adds_the_watermark() -> None:
    assert "watermark" not in columns()
    assert columns(includeWatermark="TRUE") == {**columns(), "watermark": "timestamp"}
    with pytest.raises(InvalidOption, match="'includeWatermark' is 'yes'"):
        columns(includeWatermark="yes")


def test_an_option_names_the_columns_to_read() -> None:
    assert columns(columns=" value,timestamp , value") == {"value": "binary", "timestamp": "timestamp"}
    headers = "array<struct<key:string,value:binary>>"
    assert columns(columns="headers,offset") == {"headers": headers, "offset": "bigint"}
    assert columns(columns="eventTime", eventTimeHeader="ts") == {"eventTime": "timestamp"}


def test_no_column_depends_on_the_timestamp_type_of_the_session() -> None:
    """Spark parses DDL with spark.sql.timestampType, and a StructType without it."""
    schema = StreamGroupsDataSource({**OPTIONS, "includeWatermark": "true", "eventTimeHeader": "ts"}).schema()
    assert {it.name for it in schema if isinstance(it.dataType, TimestampType)} == {
        "timestamp",
        "watermark",
        "eventTime",
    }
    options = parse(OPTIONS, streaming=True)
    assert checked_schema(StructType().add("timestamp", TimestampType()), options)
    with pytest.raises(InvalidOption, match=r"of type timestamp_ntz.* timestamp timestamp_ltz, "):
        checked_schema(StructType().add("timestamp", TimestampNTZType()), options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ","}, "'columns' is ',', which names no columns. Set it to columns"),
        ({"columns": "value,ofset"}, "names 'ofset', which the source does not provide. Did you mean 'offset'?"),
        ({"columns": "Value"}, "names 'Value', which the source does not provide. Did you mean 'value'?"),
        ({"columns": "eventTime"}, "Set 'eventTimeHeader' to the header with its value."),
        ({"columns": "watermark"}, "Set includeWatermark=true."),
        ({"columns": "value", "includeHeaders": "true"}, "'includeHeaders' adds the column 'headers'"),
        ({"columns": "value", "includeWatermark": "true"}, "Add watermark to 'columns'"),
        ({"columns": "value", "eventTimeHeader": "ts"}, "leave 'eventTimeHeader' out"),
    ],
)
def test_columns_that_the_read_does_not_have_are_rejected(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(message)):
        StreamGroupsDataSource({**OPTIONS, **options}).schema()


def test_a_schema_with_other_columns_than_the_option_is_rejected() -> None:
    schema = StructType().add("value", "binary")
    options = parse({**OPTIONS, "columns": "value,offset"}, streaming=True)
    with pytest.raises(InvalidOption, match=r"those of option 'columns' value, offset. Leave one of them out."):
        checked_schema(schema, options)
    assert checked_schema(schema, parse({**OPTIONS, "columns": "value"}, streaming=True)) is schema
