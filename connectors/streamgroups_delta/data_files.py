"""What a task does: turns records into data files of the table that nobody sees yet.

Called by ``sink`` in the tasks. Rows are held in memory until there are enough for files of a good size; each file is written at once and has
rows of one partition. Source: Delta's protocol, "Data Files" and "Add File"; names are the writer's to choose.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pyarrow as pa

from streamgroups.errors import RecordRejected
from streamgroups_delta.partition_values import Values, split
from streamgroups_delta.stages import Stage, Staged, StagedFile
from streamgroups_delta.statistics import statistics
from streamgroups_delta.store import Store

#: As much is held in memory, as Arrow counts it. As Parquet it is a few times smaller.
_MAX_HELD_BYTES = 128 * 1024 * 1024


def write_files(
    store: Store,
    stage: Stage,
    records: Iterator[pa.RecordBatch],
    attempt: int,
    telling: Callable[[str], AbstractContextManager[None]],
) -> Staged:
    """Stages the records of one attempt of a task.

    Args:
        store: the table's files.
        stage: where.
        records: with the columns of the stage's schema, of any types that can be cast to it without loss.
        attempt: no other attempt in this stage has it.
        telling: raises what a failure of the store means.

    Raises:
        RecordRejected: if a value is null that may not be, or does not fit its column.
        StreamGroupsError: what ``telling`` makes of the store's failures. What ``records`` raises is left as it is.
    """
    held: defaultdict[Values, list[pa.RecordBatch]] = defaultdict(list)
    held_bytes = n_rows = 0
    files: list[StagedFile] = []

    def flush() -> None:
        with telling("writing to"):
            for values, batches in held.items():
                files.append(_write_file(store, stage, values, pa.Table.from_batches(batches), attempt, len(files)))
        held.clear()

    for batch in records:
        fitting = fitted(batch, stage.schema, stage.required, first_row=n_rows)
        n_rows += batch.num_rows
        for values, rows in split(fitting, stage.partition_by):
            if rows.num_rows:
                held[values].append(rows)
                held_bytes += rows.nbytes
        if held_bytes >= _MAX_HELD_BYTES:
            flush()
            held_bytes = 0
    flush()
    return Staged(stage, attempt, tuple(files))


def _write_file(store: Store, stage: Stage, values: Values, rows: pa.Table, attempt: int, number: int) -> StagedFile:
    # The token and the attempt are unique already; the rest keeps files apart even if a caller is wrong about that.
    path = f"{stage.directory}/part-{attempt:05}-{number:05}-{uuid.uuid4().hex}.parquet"
    size_bytes = store.write_parquet(path, rows)
    return StagedFile(path, size_bytes, rows.num_rows, values, statistics(rows), time.time_ns() // 1_000_000)


def fitted(batch: pa.RecordBatch, schema: pa.Schema, required: frozenset[str], *, first_row: int) -> pa.RecordBatch:
    """Records in a stage's schema.

    Args:
        batch: the records.
        schema: the stage's.
        required: columns that may not be null.
        first_row: the number of the batch's first row in its task, for errors.

    Raises:
        RecordRejected: if a value is null that may not be, or does not fit.

    >>> fitted(pa.record_batch({"n": [1]}), pa.schema([("n", pa.int64())]), frozenset("n"), first_row=0).to_pylist()
    [{'n': 1}]
    """
    columns = []
    for field in schema:
        column = _column(batch, field)
        if field.name in required and column.null_count:
            row = first_row + column.is_null().to_pylist().index(True)
            raise RecordRejected(
                f"Row {row} of the task has null in column '{field.name}', which is not nullable.",
                remedy="Fill the column, or filter out such rows.",
            )
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([field.with_nullable(True) for field in schema]))


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    try:
        return batch.column(field.name).cast(field.type)
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise RecordRejected(
            f"Column '{field.name}' of the records cannot be converted to {field.type}: {e}",
            remedy="Cast it in the query.",
        ) from None
