"""The column ``eventTime``: the event time of a record, read from one of its headers.

Called by ``source.readers`` in tasks if the option ``eventTimeHeader`` names the header. The column ``headers``,
which costs Spark more than all other columns, can then stay in the task. All functions process whole Arrow columns.
Source: SEMANTICS W11; Kafka's ``Headers.lastHeader``: of several headers with one name the last counts.

Only tasks with this option compute. The start of every query imports this module, so the import of Arrow's functions is
local.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from streamgroups_kafka.read.columns import COLUMNS

Numbers: TypeAlias = np.ndarray[Any, Any]
COLUMN = "eventTime"
#: Decimal milliseconds in the range of Spark's timestamps.
_MILLISECONDS = "-?[0-9]{1,15}"
_HEADERS = pa.field("headers", COLUMNS["headers"])


def read_schema(schema: pa.Schema) -> pa.Schema:
    """Returns the columns to read: the headers instead of the event time.

    >>> read_schema(pa.schema([("offset", pa.int64()), ("eventTime", pa.timestamp("us", "UTC"))])).names
    ['offset', 'headers']
    """
    if COLUMN not in schema.names:
        return schema
    kept = [field for field in schema if field.name != COLUMN]
    return pa.schema(kept if "headers" in schema.names else [*kept, _HEADERS])


def with_times(batches: Iterator[pa.RecordBatch], schema: pa.Schema, header: str) -> Iterator[pa.RecordBatch]:
    """Adds the event time to record batches.

    Args:
        batches: record batches with the columns of :func:`read_schema`.
        schema: the required columns.
        header: the name of the header.
    """
    for batch in batches:
        found = {name: batch.column(name) for name in batch.schema.names}
        found[COLUMN] = header_times(batch.column("headers"), header)
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
