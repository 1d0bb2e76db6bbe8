"""Splits the rows of a task: good rows are written to the sink, and the others are returned to the driver.

``sinks.base`` calls it in Spark's workers. The driver writes the dead letters of all tasks. So it can count them before
anything is committed, and the partitions of their topic have one writer. Source: SEMANTICS P4;
:mod:`streamgroups.dlq.letter`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.dlq.letter import COLUMN, FAILURE, TIMESTAMP
from streamgroups.errors import TooManyDeadLetters
from streamgroups_operators.plain_values import numbers_of

#: The maximum size of the dead letters of a task. The driver has those of all tasks in memory.
MAX_TASK_BYTES = 64 << 20


_TYPES = {
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    TIMESTAMP: pa.timestamp("us", "UTC"),
    "MAP<STRING, STRING>": pa.map_(pa.string(), pa.string()),
    "ARRAY<STRUCT<key: STRING, value: BINARY>>": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


def arrow_fields(columns: Mapping[str, str]) -> list[pa.Field]:
    """Returns columns of letters as Arrow fields.

    Args:
        columns: their types in SQL.
    """
    return [pa.field(name, _TYPES[of]) for name, of in columns.items()]


#: The type of the column ``dead_letter``.
FAILURE_TYPE = pa.struct(arrow_fields(FAILURE))


@dataclass(frozen=True, slots=True)
class TaskLetters:
    """The dead letters of a task. Pickled to the driver.

    Args:
        task: the number of the task in the batch.
        query: the name of the query, or its id.
        failures: the values of the column ``dead_letter``, as an Arrow stream.
    """

    task: int
    query: str
    failures: bytes


class GoodRows(Iterator[pa.RecordBatch]):
    """The good rows of a task, without the column ``dead_letter``.

    Args:
        records: the rows of the task.

    Raises:
        TooManyDeadLetters: if the dead letters do not fit into memory.
    """

    def __init__(self, records: Iterator[pa.RecordBatch]) -> None:
        self._of = records
        self._failures: list[pa.Array] = []
        self._n_bytes = 0

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._of)
        if COLUMN not in batch.schema.names:
            return batch
        letters = batch.column(COLUMN)
        rows = batch.select([name for name in batch.schema.names if name != COLUMN])
        if letters.null_count == len(letters):
            return rows
        is_good = pc.is_null(letters)
        self.add(letters.filter(pc.invert(is_good)))
        return rows.filter(is_good)

    def add(self, failures: pa.Array) -> None:
        """Adds values of the column ``dead_letter``."""
        self._failures.append(failures)
        self._n_bytes += failures.nbytes
        if self._n_bytes > MAX_TASK_BYTES:
            raise TooManyDeadLetters(
                f"The dead letters of one task are larger than {MAX_TASK_BYTES >> 20} MiB.",
                remedy="Correct the cause. If the records are wrong, reduce maxOffsetsPerTrigger.",
            )

    def letters(self, task: int, query: str) -> TaskLetters | None:
        """Returns the dead letters of the task; ``None`` if it has none."""
        if not self._failures:
            return None
        # Spark and the sink can name the parts of maps and lists differently.
        column = pa.concat_arrays([it.cast(FAILURE_TYPE) for it in self._failures])
        return TaskLetters(task, query, to_stream(pa.record_batch([column], names=[COLUMN])))


def to_stream(batch: pa.RecordBatch) -> bytes:
    """Serializes a batch as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def failures_in(letters: Sequence[TaskLetters]) -> Iterator[dict[str, Any]]:
    """Returns the failures of all tasks, in the order of the tasks. Timestamps are in milliseconds."""
    for task in sorted(letters, key=lambda it: it.task):
        column = pa.ipc.open_stream(task.failures).read_all()[COLUMN]
        for failure in numbers_of(column):
            if (at_us := failure["timestamp"]) is not None:
                failure["timestamp"] = at_us // 1_000
            yield failure


def query_of(job_description: str | None, query_id: str | None) -> str:
    """Returns the name of the query of a task; its id if it has no name.

    Args:
        job_description: the description of the job. Spark writes the name of a query into it, if the query has one.
        query_id: the id of the query.

    >>> query_of("departures<br/>\\nid = 5f2c<br/>\\nrunId = 7<br/>\\nbatch = 3", "5f2c")
    'departures'
    >>> query_of("\\nid = 5f2c<br/>\\nrunId = 7<br/>\\nbatch = 3", "5f2c")
    '5f2c'
    """
    name, found, _ = (job_description or "").partition(f"id = {query_id}")
    name = name.strip().removesuffix("<br/>").strip()
    return name if found and name else query_id or ""
