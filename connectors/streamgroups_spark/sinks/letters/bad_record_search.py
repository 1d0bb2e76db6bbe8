"""Isolates the rows that a sink with a ledger rejects, so that they become dead letters of the step ``sink``.

Called by ``sinks.ledger_writer``, for queries with dead letters: in tasks, and on the driver for rows that only the transaction can
judge. A sink rejects all rows of a call because of one. The
rows of a rejected call are written again in two halves, until single rows remain. Each call stages under a number of its
own, so nothing of a rejected call becomes output. Source: SEMANTICS P4; :mod:`streamgroups.ledgers.staging`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from streamgroups.connections.redaction import redacted
from streamgroups.dlq.bad_record_search import Failed, isolate
from streamgroups.dlq.letter import missing_columns
from streamgroups.errors import RecordRejected
from streamgroups_operators.plain_values import json_of_row, texts_of
from streamgroups_spark.sinks.letters.good_rows import FAILURE_TYPE

#: Rows are written in pieces of this size. A piece stays in memory until the sink has accepted it.
PIECE_BYTES = 32 << 20
#: The maximum number of calls of one attempt of a task.
MAX_CALLS = 1 << 20
_MAX_RECORD = 10_000
_PLACE = {"topic": pa.types.is_string, "partition": pa.types.is_int32, "offset": pa.types.is_int64}


def write_isolated(
    write: Callable[[Iterator[pa.RecordBatch], int], Any],
    records: Iterator[pa.RecordBatch],
    attempt: int,
    reject: Callable[[pa.Array], None],
) -> list[Any]:
    """Writes the rows of a task, without those that the sink rejects.

    Args:
        write: stages records under a number.
        records: the rows.
        attempt: the number of the attempt of the task.
        reject: receives the failures of rejected rows.

    Returns:
        The results of the calls, in the order of the rows.

    Raises:
        StreamGroupsError: if the sink fails for another reason than a row.
    """
    # The number of a task attempt has 33 bits at most in practice, and the sink stores 63.
    numbers = iter(range(attempt * MAX_CALLS, (attempt + 1) * MAX_CALLS))

    written: list[Any] = []
    for piece in _pieces(records):

        def write_rows(first: int, end: int, piece: pa.Table = piece) -> Any:
            return write(iter(piece.slice(first, end - first).to_batches()), next(numbers))

        for outcome in isolate(piece.num_rows, write_rows, isolate_on=(RecordRejected,)):
            if isinstance(outcome, Failed):
                assert isinstance(outcome.error, RecordRejected)
                reject(_failure(piece.slice(outcome.at, 1), outcome.error))
            else:
                written.append(outcome.result)
    return written


def _pieces(records: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    n_bytes = 0
    for batch in records:
        if batch.num_rows:
            waiting.append(batch)
            n_bytes += batch.nbytes
        if n_bytes >= PIECE_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, n_bytes = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _failure(row: pa.Table, error: RecordRejected) -> pa.Array:
    (values,) = texts_of(row)
    return pa.array([failure_of(values, error, row.schema)], FAILURE_TYPE)


def failure_of(values: Mapping[str, Any], error: RecordRejected, schema: pa.Schema) -> dict[str, Any]:
    """Returns a value of the column ``dead_letter`` for a rejected row.

    Args:
        values: the values of the row, as of :func:`streamgroups_operators.plain_values.texts_of`.
        error: the error of the sink.
        schema: the columns of the rows.
    """
    failure: dict[str, Any] = {
        "step": "sink",
        "error_class": type(error).__name__,
        "error": redacted(error.what.replace(" in row 1 of a task", ""), ()),
        "details": [("record", json_of_row(dict(values), _MAX_RECORD)), *missing_columns(()).items()],
    }
    if all(name in schema.names and is_type(schema.field(name).type) for name, is_type in _PLACE.items()):
        failure |= {name: values[name] for name in _PLACE}
    return failure
