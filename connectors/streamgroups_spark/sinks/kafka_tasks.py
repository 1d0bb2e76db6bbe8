"""The output of a task in a Kafka transaction, for the writers of a stream and of a batch DataFrame.

Called by ``sinks.kafka`` and ``sinks.kafka_batch``. Their remedies differ: a query is restarted, and a DataFrame is written
again. Source: KIP-98; SEMANTICS X1, X2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from streamgroups.connections.redaction import redacted
from streamgroups.errors import InvalidOption, TransactionFailed
from streamgroups.printable import listed
from streamgroups_kafka.transactions.task_output import OutputSettings, RejectedRecord, write_records, written_twice
from streamgroups_kafka.transactions.transaction_requests import OpenTransaction
from streamgroups_spark.sinks.base import TaskOutput
from streamgroups_spark.sinks.letters.good_rows import FAILURE_TYPE, GoodRows
from streamgroups_spark.sinks.sink_options import SinkOptions


def write_in_task(
    records: Iterator[pa.RecordBatch],
    options: SinkOptions,
    settings: OutputSettings,
    begun: OpenTransaction | None,
    context: TaskContext,
    *,
    remedy: str,
) -> TaskOutput:
    """Writes the records of a task, in the worker.

    Args:
        records: the records.
        options: the options of the sink.
        settings: the settings of the output.
        begun: the transaction; ``None`` with ``delivery=at-least-once``.
        context: the task.
        remedy: the remedy if Spark has retried the task.

    Raises:
        TransactionFailed: if Spark has retried the task in a transaction.
        StreamGroupsError: see :func:`write_records`.
    """
    task = context.partitionId()
    if begun is not None and context.attemptNumber() > 0:
        raise TransactionFailed(
            f"Spark retried task {task}, but the transaction contains the output of its first attempt.", remedy=remedy
        )
    reject: Callable[[RejectedRecord], None] | None = None
    if isinstance(records, GoodRows):
        add = records.add
        reject = lambda record: add(pa.array([_failure(record)], FAILURE_TYPE))  # noqa: E731
    written = write_records(records, options.client, settings, begun, task=task, reject=reject)
    return TaskOutput(begun, written, written.records)


#: The types of a rejected record. A string of Spark is not always UTF-8, so it has no text in Python.
_AS_BYTES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])),
}


def _failure(record: RejectedRecord) -> dict[str, Any]:
    """Returns the value of the column ``dead_letter`` of a record that a broker rejects."""
    content: dict[str, Any] = {
        name: record.row.column(name).cast(type_)[0].as_py()
        for name, type_ in _AS_BYTES.items()
        if name in record.row.schema.names
    }
    for header in content.get("headers") or ():
        header["key"] = header["key"] and header["key"].decode(errors="replace")
    size = len(content.get("value") or b"")
    if record.is_too_large:
        # A letter has the limit of its topic, which is usually the same.
        content.pop("value", None)
    return content | {
        "step": "sink",
        "error_class": type(record.error).__name__,
        "error": redacted(record.error.what, ()),
        "details": [("value_bytes", str(size)), ("output_topic", record.topic), *_place(record.row)],
    }


def _place(row: pa.RecordBatch) -> Iterator[tuple[str, str]]:
    """The partition and the time that the user has set. They are in letters, whose ids must not depend on other ones."""
    for name, detail, type_ in (
        ("partition", "output_partition", pa.int32()),
        ("timestamp", "output_timestamp_ms", pa.timestamp("ms", "UTC")),
    ):
        if name in row.schema.names and row.column(name)[0].is_valid:
            yield detail, str(row.column(name).cast(type_, safe=False).cast(pa.int64())[0].as_py())


def reject_shared_partitions(parts: Sequence[TaskOutput], *, remedy: str) -> None:
    """Rejects the output of tasks that have written to the same partition.

    Args:
        parts: the results of all tasks.
        remedy: the remedy.

    Raises:
        InvalidOption: if several tasks have written to one partition.
    """
    if shared := written_twice(part.written for part in parts):
        raise InvalidOption(
            f"Several tasks have written to {listed(sorted(shared))}, but in a transaction only one task may write to a "
            "partition.",
            remedy=remedy,
        )
