"""The columns of a record as Arrow arrays: the same as those of Spark's ``kafka`` source.

Called by the plain reader for every batch of messages. Source: SEMANTICS S4; Spark's ``KafkaRecordToRowConverter``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from streamgroups_kafka.client.messages import headers_of, size_of, timestamp_ms_of
from streamgroups_kafka.read.fetcher import BATCH_BYTES

_MICROSECONDS_PER_MS = 1_000

#: Spark's types of an Arrow schema: timestamps in microseconds, UTC.
COLUMNS: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


def to_arrow(messages: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Returns one Arrow batch of the columns in ``schema``, in the order of the messages."""
    return pa.RecordBatch.from_arrays(
        [pa.array(_VALUES[field.name](messages), type=field.type) for field in schema], schema=schema
    )


def to_batches(messages: Sequence[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields Arrow batches of limited size: ``BATCH_BYTES``, or one larger record."""
    start = size = 0
    for i, message in enumerate(messages):
        more = size_of(message, headers_of(message) if "headers" in schema.names else None)
        if i > start and size + more > BATCH_BYTES:
            yield to_arrow(messages[start:i], schema)
            start, size = i, 0
        size += more
    if messages:
        yield to_arrow(messages[start:], schema)


def _times_us(messages: Sequence[Any]) -> list[int | None]:
    times_ms = map(timestamp_ms_of, messages)
    return [None if ms is None else ms * _MICROSECONDS_PER_MS for ms in times_ms]


def _time_types(messages: Sequence[Any]) -> list[int]:
    # In librdkafka 0 means "not available", in Kafka "create time".
    return [m.timestamp()[0] - 1 for m in messages]


def _headers(messages: Sequence[Any]) -> list[list[dict[str, Any]] | None]:
    return [
        [{"key": key, "value": value} for key, value in headers] if (headers := headers_of(m)) else None
        for m in messages
    ]


_VALUES: dict[str, Callable[[Sequence[Any]], list[Any]]] = {
    "key": lambda messages: [m.key() for m in messages],
    "value": lambda messages: [m.value() for m in messages],
    "topic": lambda messages: [m.topic() for m in messages],
    "partition": lambda messages: [m.partition() for m in messages],
    "offset": lambda messages: [m.offset() for m in messages],
    "timestamp": _times_us,
    "timestampType": _time_types,
    "headers": _headers,
}
