"""Writes staged rows to the table, in the transaction of the ledger.

Called by ``ledger`` and ``bad_row_search``. The result is that of the records one by one, in the order of the tasks and their
records. ``write_statements`` decides how many statements that needs, and ``statements`` contains them. A record with the delete marker
deletes the row of its key. Source: PostgreSQL's documentation, "INSERT" (ON CONFLICT), "SET CONSTRAINTS".
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import psycopg
from psycopg import errors, sql

from streamgroups_sinks.postgres.altered_types import check_types
from streamgroups_sinks.postgres.blocks import write_blocks
from streamgroups_sinks.postgres.connection import translated_errors
from streamgroups_sinks.postgres.staged_rows import Break, Piece, Run, count, cut, rows_of, runs
from streamgroups_sinks.postgres.stages import PostgresStage, PostgresStaged, Way, lost
from streamgroups_sinks.postgres.statements import append_all, breaks, delete, insert, upsert_last

logger = logging.getLogger(__name__)

#: With fewer statements than this, each one can read the whole stage.
_INDEXED_FROM = 10


@dataclass(frozen=True, slots=True)
class PostgresPieces:
    """The staged rows of a batch in pieces, without the rows that the table rejects. See ``bad_row_search``.

    Args:
        stage: the stage.
        pieces: the pieces, in order.
        attempts: all attempts.
        n_staged: the number of staged rows, with the rejected ones.
    """

    stage: PostgresStage
    pieces: tuple[Piece, ...]
    attempts: tuple[int, ...]
    n_staged: int


#: The output of a batch, or its dead letters.
Output: TypeAlias = PostgresStaged | PostgresPieces


def merge(connection: psycopg.Connection, output: Sequence[Output], conninfo: str) -> Counter[str]:
    """Writes the staged rows of these attempts.

    Args:
        connection: a connection in the transaction of the ledger.
        output: the output of the batch, and its dead letters.
        conninfo: the connection string, for a second connection.

    Returns:
        The number of statements of divided batches, by the name of their way. An output is a batch of its own.

    Raises:
        SinkRejected: if a type of the table has changed since the batch began.
        StageLost: if staged rows are missing.
        RecordRejected: if a constraint of the table rejects a row.
        LedgerConflict: if another transaction conflicts.
        StreamGroupsError: if the server rejects a statement for another reason.
    """
    by_stage: dict[PostgresStage, list[PostgresStaged]] = {}
    statements: Counter[str] = Counter()
    for one in output:
        if isinstance(one, PostgresPieces):
            with writing(one.stage):
                check_types(connection, one.stage)
                check_staged(connection, one.stage, one.attempts, one.n_staged)
                check_at_once(connection, one.stage)
                statements += _report(one.stage, sum(write_piece(connection, one.stage, it) for it in one.pieces))
        elif one.n_rows:
            by_stage.setdefault(one.stage, []).append(one)
    for stage, parts in by_stage.items():
        with writing(stage):
            statements += _merge(connection, stage, parts, conninfo)
    return statements


@contextmanager
def writing(stage: PostgresStage) -> Iterator[None]:
    """Translates the errors of statements that read the stage and write to the table."""
    with translated_errors(f"Writing to {stage.table}", has_records=True):
        try:
            yield
        except errors.UndefinedTable as e:
            if stage.name.name in (e.diag.message_primary or ""):
                raise lost(stage, "it no longer exists") from None
            raise


def _merge(
    connection: psycopg.Connection, stage: PostgresStage, parts: Sequence[PostgresStaged], conninfo: str
) -> Counter[str]:
    attempts, expected = [part.attempt for part in parts], sum(part.n_rows for part in parts)
    check_types(connection, stage)
    if stage.in_blocks:
        _check_count(stage, write_blocks(connection, stage, attempts, conninfo), expected)
    elif not stage.key and stage.way is Way.TOGETHER:
        _check_count(stage, connection.execute(append_all(stage), [attempts]).rowcount, expected)
    else:
        check_staged(connection, stage, attempts, expected)
        check_at_once(connection, stage)
        return _report(stage, write_piece(connection, stage, rows_of(parts)))
    return Counter()


def check_staged(connection: psycopg.Connection, stage: PostgresStage, attempts: Sequence[int], expected: int) -> None:
    """Checks that the stage contains all rows of these attempts.

    Raises:
        StageLost: if it does not.
    """
    query = sql.SQL("SELECT count(*) FROM {} WHERE attempt = ANY (%s)").format(stage.name.identifier)
    row = connection.execute(query, [list(attempts)]).fetchone()
    _check_count(stage, row[0] if row else 0, expected)


def _check_count(stage: PostgresStage, n_rows: int, expected: int) -> None:
    # A crash of the server empties an unlogged table.
    if n_rows != expected:
        raise lost(stage, f"it contains {n_rows} of {expected} rows")


def check_at_once(connection: psycopg.Connection, stage: PostgresStage) -> None:
    """Makes deferred constraints check each statement, as the transactions of single records would.

    Otherwise they check the rows of the whole batch.
    """
    if stage.way is not Way.TOGETHER:
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")


def index_rows(connection: psycopg.Connection, stage: PostgresStage) -> None:
    """Creates an index, so that a small piece does not read the whole stage. The server has no statistics of it."""
    connection.execute(
        sql.SQL("CREATE INDEX IF NOT EXISTS {} ON {} (attempt, row_number)").format(
            sql.Identifier(f"{stage.name.name}_rows"), stage.name.identifier
        )
    )
    connection.execute(sql.SQL("ANALYZE {}").format(stage.name.identifier))


def write_piece(connection: psycopg.Connection, stage: PostgresStage, piece: Piece) -> int:
    """Writes the rows of a piece, with the result of writing them one by one.

    Returns:
        The number of statements.
    """
    if stage.key and stage.way is Way.TOGETHER:
        if stage.delete_marker:
            connection.execute(delete(stage), _parameters(piece))
        connection.execute(upsert_last(stage), _parameters(piece))
        return 1
    steps = list(_steps(connection, stage, piece))
    if len(steps) >= _INDEXED_FROM:
        index_rows(connection, stage)
    statements = {deletes: (delete if deletes else insert)(stage) for deletes in {step.deletes for step in steps}}
    for step in steps:
        connection.execute(statements[step.deletes], _parameters(cut(piece, step.first, step.end)))
    return len(steps)


def _steps(connection: psycopg.Connection, stage: PostgresStage, piece: Piece) -> Iterator[Run]:
    """Returns the rows of each statement."""
    n_rows, found = count(piece), list[Break]()
    if stage.key:
        found = [Break(*row) for row in connection.execute(breaks(stage), _parameters(piece))]
    for run in runs(n_rows, found):
        if stage.way is Way.ROWS:
            yield from (Run(at, at + 1, run.deletes) for at in range(run.first, run.end))
        else:
            yield run


def _parameters(piece: Piece) -> list[list[int]]:
    return [[it.attempt for it in piece], [it.first for it in piece], [it.end for it in piece]]


def _report(stage: PostgresStage, n_statements: int) -> Counter[str]:
    if stage.way is Way.TOGETHER:
        return Counter()
    logger.info("The rows for %s were written in %d %s.", stage.table, n_statements, stage.way.value)
    return Counter({stage.way.name.lower(): n_statements})
