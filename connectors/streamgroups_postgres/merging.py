"""Writes staged rows to the table, in the transaction of the ledger.

Called by ``ledger`` and ``isolating``. An append writes all rows. An upsert writes the last record of each key, in the order of the tasks
and their records. A record with the delete marker deletes the row. Rows are written in the order of their keys, so that
members with equal keys rarely conflict. Source: PostgreSQL's documentation, "INSERT" (ON CONFLICT), "WITH Queries".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import psycopg
from psycopg import errors, sql

from streamgroups_postgres.blocks import write_blocks
from streamgroups_postgres.connecting import telling
from streamgroups_postgres.stages import PostgresStage, PostgresStaged, lost


@dataclass(frozen=True, slots=True)
class TaskRows:
    """Adjacent staged rows of one attempt of a task.

    Args:
        attempt: the number of the attempt.
        first: the number of the first row.
        end: the number after that of the last row.
    """

    attempt: int
    first: int
    end: int


#: Rows that one statement writes, in order.
Piece: TypeAlias = tuple[TaskRows, ...]


@dataclass(frozen=True, slots=True)
class PostgresPieces:
    """The staged rows of a batch in pieces, without the rows that the table rejects. See ``isolating``.

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


def merge(connection: psycopg.Connection, output: Sequence[Output], conninfo: str) -> None:
    """Writes the staged rows of these attempts.

    Args:
        connection: a connection in the transaction of the ledger.
        output: the output of the batch, and its dead letters.
        conninfo: the connection string, for a second connection.

    Raises:
        StageLost: if staged rows are missing.
        RecordRejected: if a constraint of the table rejects a row.
        LedgerConflict: if another transaction conflicts.
        StreamGroupsError: if the server rejects a statement for another reason.
    """
    by_stage: dict[PostgresStage, list[PostgresStaged]] = {}
    for one in output:
        if isinstance(one, PostgresPieces):
            with writing(one.stage):
                check_staged(connection, one.stage, one.attempts, one.n_staged)
                for piece in one.pieces:
                    write_piece(connection, one.stage, piece)
        elif one.n_rows:
            by_stage.setdefault(one.stage, []).append(one)
    for stage, parts in by_stage.items():
        with writing(stage):
            _merge(connection, stage, parts, conninfo)


@contextmanager
def writing(stage: PostgresStage) -> Iterator[None]:
    """Translates the errors of statements that read the stage and write to the table."""
    with telling(f"Writing to {stage.table}"):
        try:
            yield
        except errors.UndefinedTable as e:
            if stage.name.name in (e.diag.message_primary or ""):
                raise lost(stage, "it no longer exists") from None
            raise


def _merge(
    connection: psycopg.Connection, stage: PostgresStage, parts: Sequence[PostgresStaged], conninfo: str
) -> None:
    attempts, expected = [part.attempt for part in parts], sum(part.n_rows for part in parts)
    if stage.in_blocks:
        _check_count(stage, write_blocks(connection, stage, attempts, conninfo), expected)
    elif stage.key:
        check_staged(connection, stage, attempts, expected)
        connection.execute(upsert(stage), [attempts])
    else:
        _check_count(stage, connection.execute(append(stage), [attempts]).rowcount, expected)


def check_staged(connection: psycopg.Connection, stage: PostgresStage, attempts: Sequence[int], expected: int) -> None:
    """Checks that the stage contains all rows of these attempts.

    Raises:
        StageLost: if it does not.
    """
    count = sql.SQL("SELECT count(*) FROM {} WHERE attempt = ANY (%s)").format(stage.name.identifier)
    row = connection.execute(count, [list(attempts)]).fetchone()
    _check_count(stage, row[0] if row else 0, expected)


def _check_count(stage: PostgresStage, n_rows: int, expected: int) -> None:
    # A crash of the server empties an unlogged table.
    if n_rows != expected:
        raise lost(stage, f"it contains {n_rows} of {expected} rows")


def write_piece(connection: psycopg.Connection, stage: PostgresStage, piece: Piece) -> None:
    """Writes the rows of a piece, in order."""
    statement = upsert(stage, rows=_OF_PIECE) if stage.key else _append_piece(stage)
    connection.execute(statement, [[it.attempt for it in piece], [it.first for it in piece], [it.end for it in piece]])


#: Which staged rows a statement writes, and in which order: those of whole attempts, or those of a piece.
_OF_ATTEMPTS = sql.SQL("unnest(%s::bigint[]) WITH ORDINALITY AS task (number, place) ON attempt = task.number")
_OF_PIECE = sql.SQL(
    "unnest(%s::bigint[], %s::bigint[], %s::bigint[]) WITH ORDINALITY AS task (number, first_row, end_row, place)"
    " ON attempt = task.number AND row_number >= task.first_row AND row_number < task.end_row"
)


def _append_piece(stage: PostgresStage) -> sql.Composed:
    return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} JOIN {} ORDER BY task.place, row_number").format(
        stage.table.identifier,
        _names(_written(stage)),
        _staged(stage, _written(stage)),
        stage.name.identifier,
        _OF_PIECE,
    )


def append(stage: PostgresStage) -> sql.Composed:
    """Returns the statement of an append. Its parameter contains the attempts."""
    return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} WHERE attempt = ANY (%s)").format(
        stage.table.identifier, _names(_written(stage)), _staged(stage, _written(stage)), stage.name.identifier
    )


def upsert(stage: PostgresStage, *, rows: sql.SQL = _OF_ATTEMPTS) -> sql.Composed:
    """Returns the statement that updates, inserts and deletes.

    Args:
        stage: the stage.
        rows: which rows it writes. Its parameters contain the attempts in order, or a piece.
    """
    written = _written(stage)
    key = _staged(stage, stage.key)
    marker = _staged(stage, [stage.delete_marker]) if stage.delete_marker else sql.SQL("false")
    others = [name for name in written if name not in stage.key]
    update: sql.Composable = sql.SQL("DO NOTHING")
    if others:
        update = sql.SQL("DO UPDATE SET {}").format(
            sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others)
        )
    return sql.SQL(
        "WITH last AS {materialized} ("
        "SELECT DISTINCT ON ({key}) {all} FROM {stage}"
        " JOIN {rows}"
        " ORDER BY {key}, task.place DESC, row_number DESC)"
        "{delete} INSERT INTO {table} ({names}) SELECT {values} FROM last WHERE {marker} IS NOT TRUE"
        " ON CONFLICT ({key_names}) {update}"
    ).format(
        materialized=sql.SQL("MATERIALIZED" if stage.delete_marker else "NOT MATERIALIZED"),
        key=key,
        all=_staged(stage, [column.record.name for column in stage.columns]),
        stage=stage.name.identifier,
        rows=rows,
        delete=_delete(stage, marker),
        table=stage.table.identifier,
        names=_names(written),
        values=_staged(stage, written),
        marker=marker,
        key_names=_names(stage.key),
        update=update,
    )


def _delete(stage: PostgresStage, marker: sql.Composable) -> sql.Composable:
    if stage.delete_marker is None:
        return sql.SQL("")
    same_key = sql.SQL(" AND ").join(
        sql.SQL("old.{} = last.{}").format(sql.Identifier(name), _staged(stage, [name])) for name in stage.key
    )
    return sql.SQL(", gone AS (DELETE FROM {} AS old USING last WHERE last.{} AND {})").format(
        stage.table.identifier, marker, same_key
    )


def _written(stage: PostgresStage) -> list[str]:
    return [column.record.name for column in stage.columns if column.record.name != stage.delete_marker]


def _names(names: Sequence[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _staged(stage: PostgresStage, names: Sequence[str]) -> sql.Composable:
    """Returns the columns by their names in the stage."""
    places = {column.record.name: i for i, column in enumerate(stage.columns)}
    return sql.SQL(", ").join(sql.Identifier(f"c{places[name]}") for name in names)
