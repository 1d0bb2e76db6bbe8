"""From the stage into the table, inside the ledger's transaction.

Called by ``ledger``. Appending keeps the rows as they are. An upsert takes the last record of each key, in the order of the tasks given and of
their records; one that marks a deletion deletes. Rows are written in the order of their keys, so that two members that write the
same keys seldom get in each other's way. Source: PostgreSQL's documentation, "INSERT" (ON CONFLICT), "WITH Queries".
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import errors, sql

from streamgroups_postgres.connecting import telling
from streamgroups_postgres.stages import PostgresStage, PostgresStaged, lost


def merge(connection: psycopg.Connection, staged: Sequence[PostgresStaged]) -> None:
    """Writes what these attempts have staged, and nothing else.

    Raises:
        StageLost: if not all of it is there.
        RecordRejected: if a constraint of the table refuses a row.
        LedgerConflict: if another transaction is in the way.
        StreamGroupsError: what else the server refuses.
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
    # An unlogged table is emptied when the server crashes.
    if n_rows != expected:
        raise lost(stage, f"it contains {n_rows} of {expected} rows")
    if stage.key:
        connection.execute(upsert(stage), [attempts])


def append(stage: PostgresStage) -> sql.Composed:
    """The text that appends; its parameter is the attempts."""
    return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} WHERE attempt = ANY (%s)").format(
        stage.table.identifier, _names(_written(stage)), _staged(stage, _written(stage)), stage.name.identifier
    )


def upsert(stage: PostgresStage) -> sql.Composed:
    """The text that updates or inserts, and deletes; its parameter is the attempts in their order."""
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
    """These columns as the stage calls them."""
    places = {column.record.name: i for i, column in enumerate(stage.columns)}
    return sql.SQL(", ").join(sql.Identifier(f"c{places[name]}") for name in names)
