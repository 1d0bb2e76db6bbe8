"""Checks the columns of records to write: their names, their types, and values that no record can have.

:mod:`streamgroups_kafka.write.record_batches` calls it before encoding, so that both encoders accept and reject the
same records. Source: the columns of Spark's Kafka sink (``KafkaWriter``); Kafka's ``RecordHeader`` (a name is never
null) and ``ProducerRecord`` (a timestamp is never negative).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.errors import InvalidOption, RecordRejected
from streamgroups.message import MAX_HEADERS
from streamgroups.partitions import TopicPartition

_NAMES = (pa.string(), pa.large_string())
_BYTES = (*_NAMES, pa.binary(), pa.large_binary())

_REMEDY_OF_HEADERS = (
    f"A record has at most {MAX_HEADERS} headers. Each header needs a name in UTF-8; its value may be null."
)


def record_columns(records: pa.RecordBatch, topic: str, now_ms: int) -> pa.RecordBatch:
    """Returns the columns of a batch to encode.

    Args:
        records: rows to write. ``partition`` (an integer) is required. ``key`` and ``value`` (binary or string),
            ``headers`` (a list of structs of a string and binary or string) and ``timestamp`` are optional. Other
            columns are ignored.
        topic: the topic, for errors.
        now_ms: the timestamp of records without one, in milliseconds since the epoch.

    Returns:
        A batch of the existing columns, with ``partition`` as int32 and ``timestamp`` as int64 milliseconds. A column
        of type null is omitted.

    Raises:
        InvalidOption: if a column has another type, or ``partition`` is missing.
        RecordRejected: if a partition is null or negative, a timestamp is negative, a header name is missing or not
            UTF-8, or a record has more than 100,000 headers.
        ValueError: if the batch is malformed.

    >>> batch = pa.record_batch({"partition": [0, 1], "value": ["a", "b"], "entry": [1, 2]})
    >>> record_columns(batch, "flights", 0).schema.names
    ['partition', 'value']
    """
    records.validate()
    found: dict[str, pa.Array] = {"partition": _partitions(records, topic)}
    for name, column in _columns(records, "key", "value"):
        _check_type(name, column, column.type in _BYTES, "binary or string")
        found[name] = column
    for name, column in _columns(records, "headers"):
        _check_type(name, column, _is_headers(column.type), "a list of structs of a string and binary or string")
        _check_headers(column, found["partition"], topic)
        found[name] = column
    for name, column in _columns(records, "timestamp"):
        _check_type(name, column, pa.types.is_timestamp(column.type), "timestamp")
        found[name] = _times_ms(column, found["partition"], topic, now_ms)
    return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))


def _columns(records: pa.RecordBatch, *names: str) -> list[tuple[str, pa.Array]]:
    there = [(name, records.column(name)) for name in names if name in records.schema.names]
    return [(name, column) for name, column in there if not pa.types.is_null(column.type)]


def _check_type(name: str, column: pa.Array, good: bool, required: str) -> None:
    if not good:
        raise InvalidOption(
            f"Column '{name}' is of type {column.type}, which cannot be written to Kafka.",
            remedy=f"Change its type to {required}.",
        )


def _is_headers(of: pa.DataType) -> bool:
    if not (pa.types.is_list(of) or pa.types.is_large_list(of)) or not pa.types.is_struct(of.value_type):
        return False
    types = [field.type for field in of.value_type]
    return len(types) == 2 and types[0] in _NAMES and types[1] in _BYTES


def _partitions(records: pa.RecordBatch, topic: str) -> pa.Array:
    if "partition" not in records.schema.names:
        raise InvalidOption("The column 'partition' is missing.", remedy="Set the partition of each record.")
    partitions = records.column("partition")
    _check_type("partition", partitions, pa.types.is_integer(partitions.type), "integer")
    if partitions.null_count:
        row = partitions.is_null().index(True).as_py()
        raise RecordRejected(
            f"Row {row} for topic '{topic}' has no partition.", remedy="Set a partition for every record."
        )
    if len(partitions):
        most = pc.min_max(partitions).as_py()
        for wrong in (most["min"], most["max"]):
            if not 0 <= wrong < 1 << 31:
                row = partitions.index(wrong).as_py()
                raise RecordRejected(
                    f"Row {row} for topic '{topic}' has partition {wrong}, which is invalid.",
                    remedy="Partition numbers start at 0.",
                )
    return partitions.cast(pa.int32())


def _times_ms(times: pa.Array, partitions: pa.Array, topic: str, now_ms: int) -> pa.Array:
    first = pc.min(times)
    if first.is_valid and first.value < 0:
        row = times.index(first).as_py()
        raise _rejected(
            row, partitions, topic, "has a timestamp before 1970", "Kafka records cannot have a timestamp before 1970."
        )
    # Kafka stores milliseconds, so finer units are truncated.
    times_ms = times.cast(pa.timestamp("ms", times.type.tz), safe=False).cast(pa.int64())
    return times_ms.fill_null(now_ms) if times_ms.null_count else times_ms


def _check_headers(headers: pa.Array, partitions: pa.Array, topic: str) -> None:
    if _fault_of_headers(headers) is None:
        return
    for row in range(len(headers)):
        fault = _fault_of_headers(headers.slice(row, 1))
        if fault is not None:
            raise _rejected(row, partitions, topic, fault, _REMEDY_OF_HEADERS)


def _fault_of_headers(headers: pa.Array) -> str | None:
    if (pc.max(pc.list_value_length(headers)).as_py() or 0) > MAX_HEADERS:
        return f"has more than {MAX_HEADERS} headers"
    # In flatten(), a null header has a null name.
    names = headers.flatten().flatten()[0]
    if names.null_count:
        return "has a header without a name"
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        return "has a header whose name is not UTF-8"
    return None


def _rejected(row: int, partitions: Any, topic: str, why: str, remedy: str) -> RecordRejected:
    place = TopicPartition(topic, partitions[row].as_py())
    return RecordRejected(f"Row {row}, for {place}, {why}.", remedy=remedy)
