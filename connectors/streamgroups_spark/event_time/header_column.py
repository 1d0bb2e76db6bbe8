"""The column ``eventTime``: a record's event time out of one of its headers, while the source reads it.

Called by ``source`` in tasks if the option ``eventTimeHeader`` names the header. The headers themselves need not leave the task then, which costs Spark more
than all other columns. Whole Arrow columns at once. Source: SEMANTICS W11; Kafka's ``Headers.lastHeader``: of several of one name the last counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups_kafka.read.columns import COLUMNS

COLUMN = "eventTime"
_HEADERS = pa.field("headers", COLUMNS["headers"])
#: Decimal milliseconds, as far as Spark's timestamps go.
_MILLISECONDS = r"^-?[0-9]{1,15}$"


def read_schema(schema: pa.Schema) -> pa.Schema:
    """What is to be read for these columns: the headers instead of the event time.

    >>> read_schema(pa.schema([("offset", pa.int64()), ("eventTime", pa.timestamp("us", "UTC"))])).names
    ['offset', 'headers']
    """
    if COLUMN not in schema.names:
        return schema
    kept = [field for field in schema if field.name != COLUMN]
    return pa.schema(kept if "headers" in schema.names else [*kept, _HEADERS])


def with_times(batches: Iterator[pa.RecordBatch], schema: pa.Schema, header: str) -> Iterator[pa.RecordBatch]:
    """Batches with the event time.

    Args:
        batches: with the columns of :func:`read_schema`.
        schema: what is asked for.
        header: the name of the header.
    """
    for batch in batches:
        found = {name: batch.column(name) for name in batch.schema.names}
        found[COLUMN] = header_times(batch.column("headers"), header)
        yield pa.record_batch([found[name] for name in schema.names], schema=schema)


def header_times(headers: pa.ListArray, name: str) -> pa.TimestampArray:
    """The times in a header: milliseconds since 1970, in decimal digits. Null where there is no such header, or something else in it.

    Args:
        headers: of each record, name and value of each header; or null.
        name: of the header.

    >>> headers = [[("ts", b"1000"), ("ts", b"2000")], None, [("ts", b"soon")]]
    >>> header_times(pa.array(headers, _HEADERS.type), "ts").cast("int64").to_pylist()
    [2000000, None, None]
    """
    each = headers.flatten()
    is_it = pc.equal(each.field("key"), name)
    records = pc.list_parent_indices(headers).filter(is_it).to_numpy(zero_copy_only=False)
    values = each.field("value").filter(is_it)
    is_number = pc.match_substring_regex(values, _MILLISECONDS)
    times_ms = pc.if_else(is_number, values, None).cast(pa.string()).cast(pa.int64())
    times = pc.multiply(times_ms, 1_000).cast(COLUMNS["timestamp"])
    if len(records) == len(headers) and (len(records) == 0 or bool(np.all(np.diff(records) == 1))):
        # One for each record, as usual.
        return times
    last = np.full(len(headers), -1, np.int64)
    last[records] = np.arange(len(records))
    return times.take(pa.array(last, mask=last < 0))
