"""The statements that write staged rows to the table.

Used by ``merging``. They select rows of the stage by the attempts, in the order of the tasks and their records. Source:
PostgreSQL's documentation, "INSERT" (ON CONFLICT, OVERRIDING), "SELECT" (DISTINCT ON), "DELETE" (USING).
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from streamgroups_sinks.postgres.stages import PostgresStage

#: The staged rows of a piece. The parameters contain the attempts, the first rows, and the ends.
_ROWS = (
    "unnest(%s::bigint[], %s::bigint[], %s::bigint[]) WITH ORDINALITY AS task (number, first_row, end_row, place)"
    " ON attempt = task.number AND row_number >= task.first_row AND row_number < task.end_row"
)


def append_all(stage: PostgresStage) -> sql.Composed:
    """Returns the statement that appends the rows of whole attempts, in any order. Its parameter contains the attempts."""
    return _insert(stage, sql.SQL("{} WHERE attempt = ANY (%s)").format(stage.name.identifier))


def insert(stage: PostgresStage) -> sql.Composed:
    """Returns the statement that writes the rows of a piece in order. For an upsert, their keys differ and none deletes."""
    rows = sql.SQL("{stage} JOIN {rows} ORDER BY task.place, row_number{conflict}").format(
        stage=stage.name.identifier, rows=sql.SQL(_ROWS), conflict=_on_conflict(stage)
    )
    return _insert(stage, rows)


def upsert_last(stage: PostgresStage) -> sql.Composed:
    """Returns the statement that writes the last row of each key of a piece, unless it deletes.

    Members with equal keys rarely conflict, because the rows are in the order of their keys.
    """
    rows = sql.SQL(
        "(SELECT DISTINCT ON ({key}) {all} FROM {stage} JOIN {rows} ORDER BY {key}, task.place DESC, row_number DESC"
        ") AS last{written}{conflict}"
    ).format(
        key=_staged(stage, stage.key),
        all=_staged(stage, [column.record.name for column in stage.columns]),
        stage=stage.name.identifier,
        rows=sql.SQL(_ROWS),
        written=sql.SQL(" WHERE {} IS NOT TRUE").format(_marker(stage)) if stage.delete_marker else sql.SQL(""),
        conflict=_on_conflict(stage),
    )
    return _insert(stage, rows)


def delete(stage: PostgresStage) -> sql.Composed:
    """Returns the statement that deletes the keys that a row of a piece deletes. A row that follows inserts a new one."""
    same_key = sql.SQL(" AND ").join(
        sql.SQL("old.{} = gone.{}").format(sql.Identifier(name), _staged(stage, [name])) for name in stage.key
    )
    return sql.SQL(
        "DELETE FROM {table} AS old USING (SELECT DISTINCT {key} FROM {stage} JOIN {rows} WHERE {marker}) AS gone"
        " WHERE {same_key}"
    ).format(
        table=stage.table.identifier,
        key=_staged(stage, stage.key),
        stage=stage.name.identifier,
        rows=sql.SQL(_ROWS),
        marker=_marker(stage),
        same_key=same_key,
    )


def breaks(stage: PostgresStage) -> sql.Composed:
    """Returns the query of the breaks of a piece. See :func:`streamgroups_sinks.postgres.staged_rows.runs`."""
    return sql.SQL(
        "SELECT position, previous, deletes FROM ("
        "SELECT position, deletes, lag(position) OVER (PARTITION BY {key} ORDER BY position) AS previous,"
        " lag(deletes) OVER (ORDER BY position) AS deleted FROM ("
        "SELECT row_number() OVER (ORDER BY task.place, row_number) - 1 AS position, {marker} IS TRUE AS deletes, {key}"
        " FROM {stage} JOIN {rows}) AS numbered) AS compared"
        " WHERE previous IS NOT NULL OR deletes IS DISTINCT FROM deleted ORDER BY position"
    ).format(key=_staged(stage, stage.key), marker=_marker(stage), stage=stage.name.identifier, rows=sql.SQL(_ROWS))


def _insert(stage: PostgresStage, rows: sql.Composable) -> sql.Composed:
    return sql.SQL("INSERT INTO {table} AS old ({names}) OVERRIDING SYSTEM VALUE SELECT {values} FROM {rows}").format(
        table=stage.table.identifier,
        names=_names(_written(stage)),
        values=_staged(stage, _written(stage)),
        rows=rows,
    )


def _on_conflict(stage: PostgresStage) -> sql.Composable:
    if not stage.key:
        return sql.SQL("")
    others = [name for name in _written(stage) if name not in stage.key]
    update: sql.Composable = sql.SQL("NOTHING")
    if others:
        update = sql.SQL("UPDATE SET {}").format(
            sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others)
        )
    return sql.SQL(" ON CONFLICT ({}) DO {}").format(_names(stage.key), update)


def _marker(stage: PostgresStage) -> sql.Composable:
    return sql.SQL("false") if stage.delete_marker is None else _staged(stage, [stage.delete_marker])


def _written(stage: PostgresStage) -> list[str]:
    return [column.record.name for column in stage.columns if column.record.name != stage.delete_marker]


def _names(names: Sequence[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _staged(stage: PostgresStage, names: Sequence[str]) -> sql.Composable:
    """Returns the columns by their names in the stage."""
    places = {column.record.name: i for i, column in enumerate(stage.columns)}
    return sql.SQL(", ").join(sql.Identifier(f"c{places[name]}") for name in names)
