"""The column ``watermark``: the watermark by which Spark's operators drop late rows of the batch.

Called by ``source.readers`` in tasks if the option ``includeWatermark`` is set. All rows of a batch have the same
watermark, which the driver reads from the checkpoint (``bridge.checkpoint_log``). As a column it survives every
operation between the read and ``sg.event_time.split_late``, on any executor, and needs no Python function there. Source: SEMANTICS
W7, X8.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from streamgroups_kafka.read.columns import COLUMNS

COLUMN = "watermark"
_OFFSET = pa.field("offset", COLUMNS["offset"])


def read_schema(schema: pa.Schema) -> pa.Schema:
    """Returns the columns to read. At least one, because an Arrow batch without columns has no rows.

    >>> read_schema(pa.schema([("value", pa.binary()), ("watermark", pa.timestamp("us", "UTC"))])).names
    ['value']
    >>> read_schema(pa.schema([("watermark", pa.timestamp("us", "UTC"))])).names
    ['offset']
    """
    if COLUMN not in schema.names:
        return schema
    kept = [field for field in schema if field.name != COLUMN]
    return pa.schema(kept or [_OFFSET])


def with_watermark(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, watermark_ms: int | None
) -> Iterator[pa.RecordBatch]:
    """Adds the watermark to record batches.

    Args:
        batches: record batches with the columns of :func:`read_schema`.
        schema: the required columns.
        watermark_ms: the watermark, in milliseconds since the epoch. ``None`` for bounded data.
    """
    watermark = pa.scalar(None if watermark_ms is None else watermark_ms * 1_000, pa.int64())
    for batch in batches:
        found = {name: batch.column(name) for name in batch.schema.names}
        found[COLUMN] = pa.repeat(watermark, batch.num_rows).cast(COLUMNS["timestamp"])
        yield pa.record_batch([found[name] for name in schema.names], schema=schema)
