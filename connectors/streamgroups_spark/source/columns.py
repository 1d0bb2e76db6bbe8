"""The columns of the source: those of Spark's ``kafka`` source, ``eventTime``, and ``watermark``.

Called by ``formats.data_source`` on the driver, and by ``source.task_reader`` in tasks. All functions process whole Arrow
columns. Source: SEMANTICS W7, W11, X8.

========================  ==============================================================================================
column                    content
========================  ==============================================================================================
``eventTime``             the event time of a record, read from the header that ``eventTimeHeader`` names. The column
                          ``headers``, which costs Spark more than all other columns, can then stay in the task. Of
                          several headers with one name the last counts, as with Kafka's ``Headers.lastHeader``.
``watermark``             with ``includeWatermark``: the watermark by which Spark's operators drop late rows of the batch.
                          The driver reads it from the checkpoint (``bridge.checkpoint_log``). As a column it survives
                          every operation between the read and ``sg.event_time.split_late``, on any executor.
========================  ==============================================================================================

The start of every query imports this module, so the import of Arrow's functions is local.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streamgroups.errors import InvalidOption
from streamgroups.similar_names import nearest
from streamgroups_kafka.read.arrow_columns import COLUMNS
from streamgroups_spark.source.source_options import SourceOptions

Numbers: TypeAlias = np.ndarray[Any, Any]
EVENT_TIME = "eventTime"
WATERMARK = "watermark"
_SPARK_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}
#: The options that add columns.
_ADDED_BY = {"headers": "includeHeaders", WATERMARK: "includeWatermark", EVENT_TIME: "eventTimeHeader"}
_HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
#: The name of a timestamp in DDL. ``spark.sql.timestampType`` decides about the type of ``timestamp``.
_TIMESTAMP_DDL = "timestamp_ltz"
#: Decimal milliseconds in the range of Spark's timestamps.
_MILLISECONDS = "-?[0-9]{1,15}"
_HEADERS = pa.field("headers", COLUMNS["headers"])
_OFFSET = pa.field("offset", COLUMNS["offset"])


def spark_schema(options: SourceOptions) -> StructType:
    """Returns the columns of a read without a schema of the user.

    They are no DDL: Spark would parse it with the settings of the session.

    Raises:
        InvalidOption: if the option ``columns`` names a column that the source does not provide, or not one that another
            option adds.
    """
    usual = _types(options, with_headers=options.include_headers)
    if options.columns is None:
        return _struct(usual)
    types = _types(options, with_headers=True)
    for name in options.columns:
        if name not in types:
            raise InvalidOption(
                f"Option 'columns' names '{name}', which the source does not provide.", remedy=_remedy(name, types)
            )
    for column, option in _ADDED_BY.items():
        if column in usual and column not in options.columns:
            raise InvalidOption(
                f"Option '{option}' adds the column '{column}', which option 'columns' does not name.",
                remedy=f"Add {column} to 'columns', or leave '{option}' out.",
            )
    return _struct({name: types[name] for name in options.columns})


def _remedy(name: str, types: dict[str, DataType]) -> str:
    adding = {
        EVENT_TIME: "Set 'eventTimeHeader' to the header with its value.",
        WATERMARK: "Set includeWatermark=true.",
    }
    return adding.get(name) or nearest(name, types)


def checked_schema(schema: StructType, options: SourceOptions) -> StructType:
    """Checks a schema of the user against the columns of the source.

    Raises:
        InvalidOption: if the source does not provide a column, or provides it with another type; or if the option
            ``columns`` names other columns.
    """
    types = _types(options, with_headers=True)
    for column in schema.fields:
        expected = types.get(column.name)
        if expected is None or expected.simpleString() != column.dataType.simpleString():
            raise InvalidOption(
                f"The schema contains column '{column.name}' of type {column.dataType.simpleString()}, which "
                "the source does not provide.",
                remedy=f"The columns are {_listed(types)}.",
            )
    if options.columns is not None and tuple(schema.names) != options.columns:
        raise InvalidOption(
            f"The columns of the schema are {', '.join(schema.names)}, and those of option 'columns' "
            f"{', '.join(options.columns)}.",
            remedy="Leave one of them out.",
        )
    return schema


def _types(options: SourceOptions, *, with_headers: bool) -> dict[str, DataType]:
    types = dict(_SPARK_TYPES)
    if with_headers:
        types["headers"] = _HEADERS_TYPE
    if options.event_time_header is not None:
        types[EVENT_TIME] = TimestampType()
    if options.include_watermark:
        types[WATERMARK] = TimestampType()
    return types


def _struct(types: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, of) for name, of in types.items()])


def _listed(types: dict[str, DataType]) -> str:
    """Returns columns as DDL that declares these types with any setting of the session."""
    ddl = {name: _TIMESTAMP_DDL if isinstance(of, TimestampType) else of.simpleString() for name, of in types.items()}
    return ", ".join(f"{name} {of}" for name, of in ddl.items())


def read_schema(schema: pa.Schema) -> pa.Schema:
    """Returns the columns to read: the headers instead of the event time, and no watermark.

    At least one, because an Arrow batch without columns has no rows.

    >>> read_schema(pa.schema([("offset", pa.int64()), ("eventTime", pa.timestamp("us", "UTC"))])).names
    ['offset', 'headers']
    >>> read_schema(pa.schema([("watermark", pa.timestamp("us", "UTC"))])).names
    ['offset']
    """
    kept = [field for field in schema if field.name not in (EVENT_TIME, WATERMARK)]
    if EVENT_TIME in schema.names and "headers" not in schema.names:
        kept.append(_HEADERS)
    return pa.schema(kept or [_OFFSET])


def with_columns(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, header: str | None, watermark_ms: int | None
) -> Iterator[pa.RecordBatch]:
    """Adds the event time and the watermark to record batches.

    Args:
        batches: record batches with the columns of :func:`read_schema`.
        schema: the required columns.
        header: the name of the header with the event time; ``None`` without this column.
        watermark_ms: the watermark, in milliseconds since the epoch. ``None`` for bounded data.
    """
    watermark = pa.scalar(None if watermark_ms is None else watermark_ms * 1_000, pa.int64())
    for batch in batches:
        found = {name: batch.column(name) for name in batch.schema.names}
        if header is not None and EVENT_TIME in schema.names:
            found[EVENT_TIME] = header_times(batch.column("headers"), header)
        if WATERMARK in schema.names:
            found[WATERMARK] = pa.repeat(watermark, batch.num_rows).cast(COLUMNS["timestamp"])
        yield pa.record_batch([found[name] for name in schema.names], schema=schema)


def records_with(headers: pa.ListArray, name: str) -> Numbers:
    """Returns the index of the record of each header of a name, ascending. A record can have several.

    >>> records_with(pa.array([[("ts", b"1000")], None, [("ts", b"soon"), ("a", b"")]], _HEADERS.type), "ts").tolist()
    [0, 2]
    """
    return _headers_of(headers, name)[0]


def _headers_of(headers: pa.ListArray, name: str) -> tuple[Numbers, pa.Array]:
    """The index of the record of each header of a name, and its value."""
    import pyarrow.compute as pc

    each = headers.flatten()
    is_it = pc.equal(each.field("key"), name)
    records: Numbers = pc.list_parent_indices(headers).filter(is_it).to_numpy(zero_copy_only=False)
    return records, each.field("value").filter(is_it)


def header_times(headers: pa.ListArray, name: str) -> pa.TimestampArray:
    """Returns the times in a header: decimal milliseconds since 1970.

    Null if the header is missing or has another format.

    Args:
        headers: the name and value of each header of each record, or null.
        name: the name of the header.

    >>> headers = [[("ts", b"1000"), ("ts", b"2000")], None, [("ts", b"soon")]]
    >>> header_times(pa.array(headers, _HEADERS.type), "ts").cast("int64").to_pylist()
    [2000000, None, None]
    """
    import pyarrow.compute as pc

    records, values = _headers_of(headers, name)
    is_number = pc.match_substring_regex(values, f"^{_MILLISECONDS}$")
    times_ms = pc.if_else(is_number, values, None).cast(pa.string()).cast(pa.int64())
    times = pc.multiply(times_ms, 1_000).cast(COLUMNS["timestamp"])
    if len(records) == len(headers) and (len(records) == 0 or bool(np.all(np.diff(records) == 1))):
        # Usually each record has exactly one such header.
        return times
    last = np.full(len(headers), -1, np.int64)
    last[records] = np.arange(len(records))
    return times.take(pa.array(last, mask=last < 0))
