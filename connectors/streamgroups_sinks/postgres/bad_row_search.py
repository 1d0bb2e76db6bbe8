"""Finds the staged rows that a constraint of the table rejects, and that only the transaction can judge.

Called by ``sink``, after the table has rejected a batch. UNIQUE, FOREIGN KEY and EXCLUDE constraints depend on other rows.
So the batch is written again in halves, each under a savepoint, until single rows remain. Everything is rolled back. The
result contains the accepted pieces in order. The transaction of the ledger writes the same pieces with the same
statements, so it accepts them, unless another transaction has changed the tables since. Source: SEMANTICS P4;
PostgreSQL's documentation, "SAVEPOINT", "SET CONSTRAINTS".
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pyarrow as pa
from psycopg import sql

from streamgroups.dlq.bad_record_search import Failed, isolate
from streamgroups.errors import RecordRejected
from streamgroups.ledgers.staging import Isolated, RejectedRow
from streamgroups_sinks.postgres.altered_types import check_types
from streamgroups_sinks.postgres.connection import set_up, translated_errors
from streamgroups_sinks.postgres.merging import PostgresPieces, check_staged, index_rows, write_piece, writing
from streamgroups_sinks.postgres.staged_rows import Piece, TaskRows, count, cut, rows_of
from streamgroups_sinks.postgres.stages import KEPT, PostgresStage, PostgresStaged, StageColumn

#: The types for whose values psycopg always has an object. It has no time after the year 9999, nor 24:00.
_PLAIN = frozenset({"bool", "int2", "int4", "int8", "float4", "float8", "bytea"})


def isolate_rows(connection: psycopg.Connection, staged: Sequence[PostgresStaged], most: int) -> Isolated:
    """Finds the rejected rows of a batch. See :meth:`streamgroups.ledgers.staging.IsolatingSink.isolate`.

    Args:
        connection: a connection without a transaction.
        staged: the output of the tasks, in one stage.
        most: the search ends when it has found more rows than this number.
    """
    tasks = [one for one in staged if one.n_rows]
    if not tasks:
        return Isolated([], 0, ())
    stage, pieces, found = tasks[0].stage, list[Piece](), list[tuple[TaskRows, RecordRejected]]()
    rows = rows_of(tasks)
    n_staged, doing = count(rows), f"Finding the rows that {stage.table} rejects"
    with translated_errors(doing), connection.transaction():
        set_up(connection)
        index_rows(connection, stage)

    def write(first: int, end: int) -> Piece:
        piece = cut(rows, first, end)
        with writing(stage), connection.transaction():
            write_piece(connection, stage, piece)
        return piece

    with translated_errors(doing), connection.transaction(force_rollback=True):
        set_up(connection)
        # A deferred constraint would reject the rows of all pieces at the end.
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        check_types(connection, stage)
        check_staged(connection, stage, [one.attempt for one in tasks], n_staged)
        for outcome in isolate(n_staged, write, isolate_on=(RecordRejected,)):
            if not isinstance(outcome, Failed):
                pieces.append(outcome.result)
                continue
            assert isinstance(outcome.error, RecordRejected)
            (row,) = cut(rows, outcome.at, outcome.at + 1)
            found.append((row, outcome.error))
            if len(found) > most:
                break
    rejected = tuple(_rejected(connection, stage, row, error) for row, error in found)
    attempts = tuple(one.attempt for one in tasks)
    return Isolated([PostgresPieces(stage, tuple(pieces), attempts, n_staged)], n_staged - len(rejected), rejected)


def _rejected(
    connection: psycopg.Connection, stage: PostgresStage, row: TaskRows, error: RecordRejected
) -> RejectedRow:
    shown = [_displayed(i, column) for i, column in enumerate(stage.columns)]
    columns = sql.SQL(", ").join([*shown, sql.SQL("NULL" if stage.kept is None else KEPT)])
    query = sql.SQL("SELECT {} FROM {} WHERE attempt = %s AND row_number = %s").format(columns, stage.name.identifier)
    with translated_errors(f"Reading the rows that {stage.table} rejects"):
        values = connection.execute(query, [row.attempt, row.first]).fetchone()
    assert values is not None, "the stage was complete"
    *shown_values, kept = values
    record = None
    if kept is not None:
        batch = pa.ipc.read_record_batch(pa.py_buffer(kept), stage.kept)
        record = pa.Table.from_batches([batch])
    by_name = {column.record.name: it for column, it in zip(stage.columns, shown_values, strict=True)}
    return RejectedRow(by_name, error, record)


def _displayed(number: int, column: StageColumn) -> sql.Composable:
    """A value for a dead letter. Python has no object for each time, and none for long numbers in JSON."""
    return sql.SQL("{}" if column.type_name in _PLAIN else "{}::text").format(sql.Identifier(f"c{number}"))
