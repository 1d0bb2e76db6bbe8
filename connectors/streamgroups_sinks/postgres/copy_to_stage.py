"""Copies the records of a task to the stage.

Called by ``sink`` in tasks. Numbered rows and rows that the server must check are copied to columns of the stage. Other
rows are copied in ``blocks``. Source: PostgreSQL's documentation, "COPY".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import errors, sql

from streamgroups.errors import RecordRejected, SinkRejected, StreamGroupsError
from streamgroups_sinks.postgres.blocks import encode_blocks
from streamgroups_sinks.postgres.column_types import Kind, record_columns, unwrapped
from streamgroups_sinks.postgres.connection import describe, set_up, translated
from streamgroups_sinks.postgres.copy_binary import HEADER, TRAILER, copy_binary, is_binary
from streamgroups_sinks.postgres.copy_text import copy_text
from streamgroups_sinks.postgres.precision import check, checks
from streamgroups_sinks.postgres.stages import KEPT, PostgresStage, PostgresStaged, kept_column, lost

#: A record batch is encoded in pieces of this size.
_ROWS_AT_ONCE = 20_000


def copy_into(
    connection: psycopg.Connection, stage: PostgresStage, batches: Iterator[pa.RecordBatch], attempt: int
) -> PostgresStaged:
    """Writes all records of a task to the stage in one transaction.

    Raises:
        RecordRejected: if a value is rejected. The error contains column and row.
        SinkRejected: if the records have other columns than the stage.
        StageLost: if the stage no longer exists.
    """
    n_rows = 0
    encode, names, in_binary = _format(stage)
    rounding = checks(stage.columns)
    copy = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT {})").format(
        stage.name.identifier,
        sql.SQL(", ").join(map(sql.Identifier, names)),
        sql.SQL("binary" if in_binary else "text"),
    )
    try:
        with connection.transaction(), connection.cursor() as cursor:
            # Records can arrive slowly. No other session waits for this transaction.
            set_up(connection, idle_ms=0)
            with cursor.copy(copy) as copying:
                if in_binary:
                    copying.write(HEADER)
                for batch in batches:
                    _check(batch, stage)
                    batch = _with_kept(_widened(_without_unused(batch, stage), stage), batch, stage)
                    for start in range(0, len(batch), _ROWS_AT_ONCE):
                        some = batch.slice(start, _ROWS_AT_ONCE)
                        check(some, rounding, n_rows)
                        numbers = [pa.array(range(n_rows, n_rows + len(some)))] if stage.is_numbered else []
                        copying.write(memoryview(encode(some, before=[attempt, *numbers], first_row=n_rows)))
                        n_rows += len(some)
                if in_binary:
                    copying.write(TRAILER)
    except psycopg.Error as e:
        # The original error is not chained: it contains the rejected row.
        raise _copy_error(e, stage) from None
    return PostgresStaged(stage, attempt, n_rows)


def _format(stage: PostgresStage) -> tuple[Callable[..., pa.Buffer], Sequence[str], bool]:
    """Returns the encoder, the columns of the stage, and whether the format is binary."""
    if stage.in_blocks:
        return partial(encode_blocks, columns=stage.columns), ("attempt", "rows"), True
    typed = [(column.record, column.type_name) for column in stage.columns]
    numbers = ["row_number"] if stage.is_numbered else []
    names = ["attempt", *numbers, *(f"c{i}" for i in range(len(stage.columns)))]
    if stage.kept is not None:
        typed.append((kept_column(stage), "bytea"))
        names.append(KEPT)
    if all(is_binary(*column) for column in typed):
        return partial(copy_binary, columns=typed), names, True
    return partial(copy_text, columns=[column for column, _ in typed]), names, False


def _check(batch: pa.RecordBatch, stage: PostgresStage) -> None:
    required = [(column.record.name, column.record.kind) for column in stage.columns]
    if [(column.name, column.kind) for column in record_columns(batch.schema)] != required:
        raise SinkRejected(
            f"A task's records have the columns {', '.join(batch.schema.names)}, those of the batch are others:"
            f" {', '.join(f'{name} ({kind.value})' for name, kind in required)}.",
            remedy="Begin the batch with the schema of its records.",
        )


def _without_unused(batch: pa.RecordBatch, stage: PostgresStage) -> pa.RecordBatch:
    """Removes the values of rows that only delete, except those of the key. The table need not accept them."""
    if stage.delete_marker is None:
        return batch
    deletes = _deletes(batch, stage.delete_marker)
    if not pc.any(deletes).as_py():
        return batch
    used = {*stage.key, stage.delete_marker}
    rows = pc.if_else(deletes, pa.nulls(len(batch), pa.int64()), pa.array(range(len(batch))))
    columns = [
        it if name in used else it.take(rows) for name, it in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _deletes(batch: pa.RecordBatch, marker: str) -> pa.Array:
    return pc.fill_null(unwrapped(batch.column(marker)), False)


def _with_kept(batch: pa.RecordBatch, whole: pa.RecordBatch, stage: PostgresStage) -> pa.RecordBatch:
    """Appends the whole rows that only delete. A dead letter of such a row has all its values."""
    if stage.kept is None:
        return batch
    assert stage.delete_marker is not None, "a stage without it keeps none"
    rows = whole.cast(stage.kept)
    kept = [
        rows.slice(i, 1).serialize().to_pybytes() if deletes else None
        for i, deletes in enumerate(_deletes(whole, stage.delete_marker).to_pylist())
    ]
    return batch.append_column(kept_column(stage).name, pa.array(kept, pa.large_binary()))


def _widened(batch: pa.RecordBatch, stage: PostgresStage) -> pa.RecordBatch:
    """Converts floats to the type of their column. The same text is another number in it."""
    columns = [
        pc.cast(unwrapped(values), pa.float64())
        if column.record.kind is Kind.FLOAT and column.type_name == "float8" and column.record.type == "real"
        else values
        for column, values in zip(stage.columns, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _copy_error(error: psycopg.Error, stage: PostgresStage) -> StreamGroupsError:
    doing = f"Staging rows for {stage.table}"
    if isinstance(error, errors.UndefinedTable):
        return lost(stage, "it no longer exists")
    found = translated(error, doing)
    if not isinstance(found, RecordRejected):
        return found
    row, column = _where(error, stage)
    what = f"The value of column '{column}'" if column else "A value"
    return RecordRejected(
        f"{what} in row {row or '?'} of a task was rejected by PostgreSQL: {_in_our_names(describe(error), stage)}.",
        remedy=found.remedy,
    )


def _where(error: psycopg.Error, stage: PostgresStage) -> tuple[int | None, str | None]:
    """Returns row and column of an error of COPY. The words around them depend on the language of the server."""
    context = (error.diag.context or "").partition(stage.name.name)[2]
    row = re.search(r"\d+", context)
    inside = re.search(r"\bc(\d+)", context.partition('"')[0])
    by_constraint = re.fullmatch(r"c(\d+)", error.diag.column_name or error.diag.constraint_name or "")
    number = inside or by_constraint
    name = stage.columns[int(number[1])].record.name if number else None
    return (int(row[0]) if row else None), name


def _in_our_names(text: str, stage: PostgresStage) -> str:
    text = text.replace(stage.name.name, str(stage.table))
    for i, column in enumerate(stage.columns):
        text = text.replace(f'"c{i}"', f'"{column.record.name}"')
    return text
