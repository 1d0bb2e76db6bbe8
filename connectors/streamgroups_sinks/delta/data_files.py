"""Writes the records of a task as data files that no version of the table contains yet, and removes them if none will.

Called by ``sink``: tasks write, and the driver removes files at the end of a batch. Rows are buffered in memory until files
have a suitable size. A file contains the rows of one partition and is written at once.

Before that, deltalake checks the rows against the constraints of the table: it writes them to a temporary table with the same
constraints. So single rows can become dead letters, and rows that a later row replaces are checked too. A constraint with
columns that the records do not have is checked only by the commit.

Files that may be needed are left to VACUUM. Source: SEMANTICS P4; Delta's protocol, "Data Files", "Add File" (the writer
chooses the names), "CHECK Constraints", "Delta Log Entries".
"""

from __future__ import annotations

import json
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.exceptions import DeltaError

from streamgroups.errors import RecordRejected
from streamgroups_sinks.delta.check_directory import check_directory
from streamgroups_sinks.delta.partition_values import Values, split
from streamgroups_sinks.delta.schema_conversion import nullable
from streamgroups_sinks.delta.stages import Stage, Staged, StagedFile
from streamgroups_sinks.delta.statistics import statistics
from streamgroups_sinks.delta.store import Store
from streamgroups_sinks.delta.store_errors import is_violation
from streamgroups_sinks.delta.tables import Mode, Target, table_id
from streamgroups_sinks.delta.value_checks import check_texts, check_times

#: The limit of buffered rows, in Arrow's bytes. A Parquet file is a few times smaller.
_MAX_HELD_BYTES = 128 * 1024 * 1024
#: A batch ends long before the table has this number of newer versions.
_MAX_VERSIONS = 1_000


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
        RecordRejected: if a value is null in a required column or does not fit its column, a string is not UTF-8, a merge
            cannot write a time, or a row violates a constraint.
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
            fitting = fitted(batch, stage.schema, n_rows)
            check_times(fitting, stage, n_rows)
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


def fitted(batch: pa.RecordBatch, schema: pa.Schema, first_row: int = 0) -> pa.RecordBatch:
    """Converts records to the schema of a stage.

    Args:
        batch: the records.
        schema: the schema of the stage.
        first_row: the number of the first record in its task, for errors.

    Raises:
        RecordRejected: if a value does not fit, or a string is not UTF-8.

    >>> fitted(pa.record_batch({"n": [1]}), pa.schema([("n", pa.int32())])).schema
    n: int32
    """
    columns = [_column(batch, field) for field in schema]
    for field, column in zip(schema, columns, strict=True):
        check_texts(column, field.name, first_row)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([field.with_nullable(True) for field in schema]))


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    try:
        return batch.column(field.name).cast(field.type)
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise RecordRejected(
            f"Column '{field.name}' of the records cannot be converted to {field.type}: {e}",
            remedy="Cast it in the query.",
        ) from None


@contextmanager
def checking(stage: Stage) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Returns a function that checks rows with the schema of the stage, except those that only delete.

    It raises ``RecordRejected`` if a row violates a constraint.
    """
    if not stage.conditions:
        yield lambda rows: None
        return
    stored = nullable(pa.schema([field for field in stage.schema if field.name != stage.delete_marker]))
    with check_directory() as directory:
        table = DeltaTable.create(directory, Schema.from_arrow(stored))
        for name, condition in stage.conditions:
            with suppress(DeltaError):
                table.alter.add_constraint({name: condition})

        def check(rows: pa.RecordBatch) -> None:
            if stage.delete_marker is not None:
                rows = rows.filter(pc.invert(pc.fill_null(rows.column(stage.delete_marker), False)))
            if rows.num_rows:
                _check(table, rows.select(stored.names), stage)
                for file in Path(directory).glob("*.parquet"):
                    file.unlink()

        yield check


def _check(table: DeltaTable, rows: pa.RecordBatch, stage: Stage) -> None:
    try:
        write_deltalake(table, pa.Table.from_batches([rows]), mode="overwrite")
    except DeltaError as e:
        if not is_violation(str(e)):
            raise
        # The text of the error contains whole rows.
        rules = ", ".join(f"{name} ({condition})" for name, condition in stage.conditions)
        raise RecordRejected(
            f"A row violates a constraint of the table: {rules}.",
            remedy="Filter out such rows, or change the constraint.",
        ) from None


def remove_leftovers(target: Target, stage: Stage) -> None:
    """Removes the files of a stage that were certainly not committed.

    Args:
        target: the table.
        stage: the stage of the batch, which will not be committed any more.

    Raises:
        Exception: if the store fails. No file of the table is removed.
    """
    store = target.store()
    there = store.sizes(stage.directory)
    # Files of a merge are read, and the log never contains them.
    committed = frozenset[str]() if target.mode is Mode.UPSERT else _committed(target, store, stage)
    if committed is None:
        return
    # A commit without a reply may still reach a remote store later.
    if committed or store.is_local or target.mode is Mode.UPSERT:
        for path in there:
            if path not in committed:
                store.delete(path)
    store.forget_directory(stage.directory)


def _committed(target: Target, store: Store, stage: Stage) -> frozenset[str] | None:
    """Returns the files of a stage that any version of the table contains. ``None`` if that is unknown."""
    table = target.open()
    newest = table.version()
    if table_id(table) != stage.table_id or not 0 <= newest - stage.version <= _MAX_VERSIONS:
        return None
    found = set()
    for version in range(stage.version + 1, newest + 1):
        try:
            entry = store.read_text(f"_delta_log/{version:020}.json")
        except FileNotFoundError:
            return None
        # A text in JSON can contain other separators of lines, such as U+2028.
        actions = (json.loads(line) for line in entry.split("\n") if line.strip())
        paths = (action["add"]["path"] for action in actions if "add" in action)
        found |= {path for path in paths if path.startswith(f"{stage.directory}/")}
    return frozenset(found)
