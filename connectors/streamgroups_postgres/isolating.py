"""Finds the staged rows that a constraint of the table rejects, and that only the transaction can judge.

Called by ``sink``, after the table has rejected a batch. UNIQUE, FOREIGN KEY and EXCLUDE constraints depend on other rows.
So the batch is written again in halves, each under a savepoint, until single rows remain. Everything is rolled back. The
result contains the accepted pieces in order. The transaction of the ledger writes the same pieces with the same
statements, so it accepts them, unless another transaction has changed the tables since. Source: SEMANTICS P4;
PostgreSQL's documentation, "SAVEPOINT", "SET CONSTRAINTS".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import psycopg
from psycopg import sql

from streamgroups.dlq.isolation import Failed, isolate
from streamgroups.errors import RecordRejected
from streamgroups.ledgers.staging import Isolated, RejectedRow
from streamgroups_postgres.connecting import set_up, telling
from streamgroups_postgres.merging import Piece, PostgresPieces, TaskRows, check_staged, write_piece, writing
from streamgroups_postgres.stages import PostgresStage, PostgresStaged, StageColumn

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
    ends = list(accumulate(one.n_rows for one in tasks))
    _index(connection, stage)

    def write(first: int, end: int) -> Piece:
        piece = rows_of(tasks, first, end)
        with writing(stage), connection.transaction():
            write_piece(connection, stage, piece)
        return piece

    with telling(f"Finding the rows that {stage.table} rejects"), connection.transaction(force_rollback=True):
        set_up(connection)
        # A deferred constraint would reject the rows of all pieces at the end.
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        check_staged(connection, stage, [one.attempt for one in tasks], ends[-1])
        for outcome in isolate(ends[-1], write, isolate_on=(RecordRejected,)):
            if not isinstance(outcome, Failed):
                pieces.append(outcome.result)
                continue
            assert isinstance(outcome.error, RecordRejected)
            (row,) = rows_of(tasks, outcome.at, outcome.at + 1)
            found.append((row, outcome.error))
            if len(found) > most:
                break
    rejected = tuple(RejectedRow(_values(connection, stage, row), error) for row, error in found)
    attempts = tuple(one.attempt for one in tasks)
    return Isolated([PostgresPieces(stage, tuple(pieces), attempts, ends[-1])], ends[-1] - len(rejected), rejected)


def rows_of(tasks: Sequence[PostgresStaged], first: int, end: int) -> Piece:
    """Returns the staged rows with these numbers among all rows of the tasks.

    Args:
        tasks: the output of the tasks, in order.
        first: the number of the first row.
        end: the number after that of the last row.
    """
    found, before = [], 0
    for task in tasks:
        here = TaskRows(task.attempt, max(first - before, 0), min(end - before, task.n_rows))
        if here.first < here.end:
            found.append(here)
        before += task.n_rows
    return tuple(found)


def _index(connection: psycopg.Connection, stage: PostgresStage) -> None:
    """A small piece must not read the whole stage. The server has no statistics of it."""
    with telling(f"Finding the rows that {stage.table} rejects"), connection.transaction():
        set_up(connection)
        connection.execute(
            sql.SQL("CREATE INDEX IF NOT EXISTS {} ON {} (attempt, row_number)").format(
                sql.Identifier(f"{stage.name.name}_rows"), stage.name.identifier
            )
        )
        connection.execute(sql.SQL("ANALYZE {}").format(stage.name.identifier))


def _values(connection: psycopg.Connection, stage: PostgresStage, row: TaskRows) -> dict[str, Any]:
    columns = sql.SQL(", ").join(_displayed(i, column) for i, column in enumerate(stage.columns))
    query = sql.SQL("SELECT {} FROM {} WHERE attempt = %s AND row_number = %s").format(columns, stage.name.identifier)
    with telling(f"Reading the rows that {stage.table} rejects"):
        values = connection.execute(query, [row.attempt, row.first]).fetchone()
    assert values is not None, "the stage was complete"
    return {column.record.name: value for column, value in zip(stage.columns, values, strict=True)}


def _displayed(number: int, column: StageColumn) -> sql.Composable:
    """A value for a dead letter. Python has no object for each time, and none for long numbers in JSON."""
    return sql.SQL("{}" if column.type_name in _PLAIN else "{}::text").format(sql.Identifier(f"c{number}"))
