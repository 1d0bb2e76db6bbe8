"""Writes staged rows to the table, in the transaction of the ledger.

Called by ``ledger``. An append writes all rows. An upsert writes the last record of each key, in the order of the tasks
and their records. A record with the delete marker deletes the row. Rows are written in the order of their keys, so that
members with equal keys rarely conflict. Source: PostgreSQL's documentation, "INSERT" (ON CONFLICT), "WITH Queries".
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import errors, sql

from streamgroups_postgres.connecting import telling
from streamgroups_postgres.stages import PostgresStage, PostgresStaged, lost


def merge(connection: psycopg.Connection, staged: Sequence[PostgresStaged]) -> None:
    """Writes the staged rows of these attempts.

    Raises:
        StageLost: if staged rows are missing.
        RecordRejected: if a constraint of the table rejects a row.
        LedgerConflict: if another transaction conflicts.
        StreamGroupsError: if the server rejects a statement for another reason.
    """
    by_stage: dict[PostgresStage, list[PostgresStaged]] = {}
    for one in staged:
        if one.n_rows:
            by_stage.setdefault(one.stage, []).append(one)
    for stage, parts in by_stage.items():
        with telling(f"Writing to {stage.table}"):
            try:
                _merge(connection, stage, parts)
            except errors.UndefinedTable as e:
                if stage.name.name in (e.diag.message_primary or ""):
                    raise lost(stage, "it no longer exists") from None
                raise


def _merge(connection: psycopg.Connection, stage: PostgresStage, parts: Sequence[PostgresStaged]) -> None:
    attempts, expected = [part.attempt for part in parts], sum(part.n_rows for part in parts)
    if stage.key:
        count = sql.SQL("SELECT count(*) FROM {} WHERE attempt = ANY (%s)").format(stage.name.identifier)
        row = connection.execute(count, [attempts]).fetchone()
        n_rows = row[0] if row else 0
    else:
        n_rows = connection.execute(append(stage), [attempts]).rowcount
    # A crash of the server empties an unlogged table.
    if n_rows != expected:
        raise lost(stage, f"it contains {n_rows} of {expected} rows")
    if stage.key:
        connection.execute(upsert(stage), [attempts])


def append(stage: PostgresStage) -> sql.Composed:
    """Returns the statement of an append. Its parameter contains the attempts."""
    return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} WHERE attempt = ANY (%s)").format(
        stage.table.identifier, _names(_written(stage)), _staged(stage, _written(stage)), stage.name.identifier
    )


def upsert(stage: PostgresStage) -> sql.Composed:
    """Returns the statement that updates, inserts and deletes. Its parameter contains the attempts in order."""
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
        " JOIN unnest(%s::bigint[]) WITH ORDINALITY AS task (number, place) ON attempt = task.number"
        " ORDER BY {key}, task.place DESC, row_number DESC)"
        "{delete} INSERT INTO {table} ({names}) SELECT {values} FROM last WHERE {marker} IS NOT TRUE"
        " ON CONFLICT ({key_names}) {update}"
    ).format(
        materialized=sql.SQL("MATERIALIZED" if stage.delete_marker else "NOT MATERIALIZED"),
        key=key,
        all=_staged(stage, [column.record.name for column in stage.columns]),
        stage=stage.name.identifier,
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
