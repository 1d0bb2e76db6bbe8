"""Writes the records of a task as data files that no version of the table contains yet.

Called by ``sink`` in the tasks. Rows are buffered in memory until files have a suitable size. A file contains the rows
of one partition and is written at once. Source: Delta's protocol, "Data Files" and "Add File"; the writer chooses the
names.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.errors import RecordRejected
from streamgroups_sinks.delta.constraints import checking
from streamgroups_sinks.delta.partition_values import Values, split
from streamgroups_sinks.delta.stages import Stage, Staged, StagedFile
from streamgroups_sinks.delta.statistics import statistics
from streamgroups_sinks.delta.store import Store

#: The limit of buffered rows, in Arrow's bytes. A Parquet file is a few times smaller.
_MAX_HELD_BYTES = 128 * 1024 * 1024


def write_files(
    store: Store,
    stage: Stage,
    records: Iterator[pa.RecordBatch],
    attempt: int,
    translating: Callable[[str], AbstractContextManager[None]],
) -> Staged:
    """Stages the records of one attempt of a task.

    Args:
        store: the files of the table.
        stage: the stage of the batch.
        records: records with the columns of the stage, of types that can be cast to it without loss.
        attempt: the number of the attempt, unique in this stage.
        translating: translates the errors of the store.

    Raises:
        RecordRejected: if a value is null in a required column or does not fit its column, or a row violates a constraint.
        StreamGroupsError: the translated errors of the store. Errors of ``records`` are raised unchanged.
    """
    held: defaultdict[Values, list[pa.RecordBatch]] = defaultdict(list)
    held_bytes = n_rows = 0
    files: list[StagedFile] = []

    def flush() -> None:
        with translating("writing to"):
            for values, batches in held.items():
                files.append(_write_file(store, stage, values, pa.Table.from_batches(batches), attempt, len(files)))
        held.clear()

    with checking(stage) as check:
        for batch in records:
            _check_nulls(batch, stage, n_rows)
            fitting = fitted(batch, stage.schema)
            check(fitting)
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
    # Token and attempt are already unique. The UUID separates the files of a caller with equal attempts.
    path = f"{stage.directory}/part-{attempt:05}-{number:05}-{uuid.uuid4().hex}.parquet"
    size_bytes = store.write_parquet(path, rows)
    return StagedFile(path, size_bytes, rows.num_rows, values, statistics(rows), time.time_ns() // 1_000_000)


def _check_nulls(batch: pa.RecordBatch, stage: Stage, first_row: int) -> None:
    marker = None if stage.delete_marker is None else pc.fill_null(batch.column(stage.delete_marker), False)
    for name in sorted(stage.required & set(batch.schema.names)):
        missing = batch.column(name).is_null()
        if marker is not None and name not in stage.key:
            missing = pc.and_(missing, pc.invert(marker))
        if pc.any(missing).as_py():
            row = first_row + pc.index(missing, True).as_py()
            raise RecordRejected(
                f"Row {row} of the task has null in column '{name}', which is not nullable.",
                remedy="Fill the column, or filter out such rows.",
            )


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Converts records to the schema of a stage.

    Args:
        batch: the records.
        schema: the schema of the stage.

    Raises:
        RecordRejected: if a value does not fit.

    >>> fitted(pa.record_batch({"n": [1]}), pa.schema([("n", pa.int32())])).schema
    n: int32
    """
    columns = [_column(batch, field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([field.with_nullable(True) for field in schema]))


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    try:
        return batch.column(field.name).cast(field.type)
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise RecordRejected(
            f"Column '{field.name}' of the records cannot be converted to {field.type}: {e}",
            remedy="Cast it in the query.",
        ) from None
