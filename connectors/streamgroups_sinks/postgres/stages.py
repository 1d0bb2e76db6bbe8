"""The stage of a batch: an unlogged table with its uncommitted output.

Called by ``sink``. The driver creates it (``make_stage``), and tasks copy into it (``copy_to_stage``). The transaction of the
ledger reads the rows of the successful attempts (``merging``), and then the stage is dropped. It is not in the
write-ahead log. A crash or failover of the server empties it, which ``merging`` detects. A later batch drops the stages
of killed runs. Source: PostgreSQL's documentation, "CREATE TABLE" (UNLOGGED), "TOAST".
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

import psycopg
import pyarrow as pa
from psycopg import sql

from streamgroups.errors import StageLost
from streamgroups_sinks.postgres.check_constraints import Check, add_checks
from streamgroups_sinks.postgres.column_types import Kind, RecordColumn
from streamgroups_sinks.postgres.connection import set_up
from streamgroups_sinks.postgres.output_table import ExistingColumn, type_sql
from streamgroups_sinks.postgres.table_names import TableName

PREFIX = "streamgroups_stage_"
#: The maximum size of a row that the server stores in one piece, with the default size of pages.
_MAX_ROW_BYTES = 8_160
#: The column of the stage with the whole rows that only delete, as messages of Arrow's IPC format.
KEPT = "kept"
#: The timeout is short: a task may still write to the stage, and a later batch drops it.
_DROP_TIMEOUT_MS = 2_000


@dataclass(frozen=True, slots=True)
class StageColumn:
    """A column of the stage, with the name ``c0``, ``c1`` and so on.

    Args:
        record: the column of the records.
        type: its SQL type, which is that of the table's column.
        not_null: whether NULL is rejected.
        type_name: its type in ``pg_type``. For a domain, the base type.
        base: its SQL type, with length and precision. For a domain, the base type.
        is_domain: whether its type is a domain.
        type_oid: the number of its type in the catalog.
        type_modifier: its ``atttypmod``: length, precision and fields of the type.
    """

    record: RecordColumn
    type: str
    not_null: bool
    type_name: str
    base: str = ""
    is_domain: bool = False
    type_oid: int = 0
    type_modifier: int = -1


class Way(Enum):
    """How the rows of a batch are written. See ``write_statements``."""

    #: All rows in one statement, and of an upsert the last row of each key.
    TOGETHER = "statements for all rows"
    #: In order. A statement ends before a row whose key it has already, and where deletions begin or end.
    RUNS = "statements without repeated keys"
    #: One by one.
    ROWS = "statements of one row"


@dataclass(frozen=True, slots=True)
class PostgresStage:
    """The stage of one batch. Pickled to the tasks.

    Args:
        name: the name of the stage.
        table: the table for its rows.
        columns: the columns of the records, in order.
        key: the key of an upsert. Empty for an append.
        delete_marker: the column that marks rows to delete.
        is_numbered: whether the rows have numbers: if their order matters.
        in_blocks: whether it stores encoded rows in blocks. See ``blocks``. Otherwise it has the columns.
        way: how its rows are written.
        kept: the schema of the records, if the stage keeps each row that only deletes as a whole, for dead letters.
    """

    name: TableName
    table: TableName
    columns: tuple[StageColumn, ...]
    key: tuple[str, ...] = ()
    delete_marker: str | None = None
    is_numbered: bool = False
    in_blocks: bool = False
    way: Way = Way.TOGETHER
    kept: pa.Schema | None = None


@dataclass(frozen=True, slots=True)
class PostgresStaged:
    """The result of one attempt of a task. Pickled to the driver.

    Args:
        stage: the stage.
        attempt: the number of the attempt.
        n_rows: the number of rows.
    """

    stage: PostgresStage
    attempt: int
    n_rows: int


def stage_columns(
    columns: Sequence[RecordColumn], there: Sequence[ExistingColumn], key: Sequence[str], delete_marker: str | None
) -> tuple[StageColumn, ...]:
    """Returns the columns of the stage, with the types of the table: an invalid value is rejected in its task."""
    targets = {target.name: target for target in there}
    return tuple(
        StageColumn(column, "boolean", False, "bool")
        if column.name == delete_marker
        else StageColumn(
            column,
            targets[column.name].type,
            targets[column.name].not_null or column.name in key,
            targets[column.name].type_name,
            targets[column.name].base,
            targets[column.name].is_domain,
            targets[column.name].type_oid,
            targets[column.name].type_modifier,
        )
        for column in columns
    )


def create_stage(stage: PostgresStage, names: Sequence[str] = ()) -> sql.Composed:
    """Returns the statement that creates the stage. A row with the delete marker needs only its key.

    Args:
        stage: the stage.
        names: other names for all its columns.
    """
    if stage.in_blocks:
        # A block that fits a page is neither compressed nor moved to another table.
        return sql.SQL(
            "CREATE UNLOGGED TABLE {0} (attempt bigint, rows bytea)"
            " WITH (autovacuum_enabled = false, toast_tuple_target = {1});"
            " ALTER TABLE {0} ALTER COLUMN rows SET STORAGE EXTERNAL"
        ).format(stage.name.identifier, _MAX_ROW_BYTES)
    identifiers = [sql.Identifier(name) for name in names or _names(stage)]
    marker = next((i for i, c in enumerate(stage.columns) if c.record.name == stage.delete_marker), None)
    parts: list[sql.Composable] = [sql.SQL("{} bigint").format(name) for name in identifiers[:2]]
    for i, column in enumerate(stage.columns):
        name, type_ = identifiers[2 + i], column.type
        not_null: sql.Composable = sql.SQL("")
        if column.not_null and marker is not None and column.record.name not in stage.key:
            value: sql.Composable = name
            if column.is_domain:
                # A domain can reject NULL itself, so only the other rows have values of it.
                type_, value = column.base, sql.SQL("{}::{}").format(name, type_sql(type_))
            not_null = sql.SQL(" CONSTRAINT {} CHECK ({} IS TRUE OR {} IS NOT NULL)").format(
                sql.Identifier(f"c{i}"), identifiers[2 + marker], value
            )
        elif column.not_null:
            not_null = sql.SQL(" NOT NULL")
        parts.append(sql.SQL("{} {}{}").format(name, type_sql(type_), not_null))
    if stage.kept is not None:
        parts.append(sql.SQL("{} bytea").format(identifiers[-1]))
    # No rows are deleted from a stage, and a vacuum would only delay its drop.
    return sql.SQL("CREATE UNLOGGED TABLE {} ({}) WITH (autovacuum_enabled = false)").format(
        stage.name.identifier, sql.SQL(", ").join(parts)
    )


def _names(stage: PostgresStage) -> list[str]:
    kept = [] if stage.kept is None else [KEPT]
    return ["attempt", "row_number", *(f"c{i}" for i in range(len(stage.columns))), *kept]


def kept_column(stage: PostgresStage) -> RecordColumn:
    """Returns the column of records for :data:`KEPT`. Its name is that of no other column."""
    return RecordColumn(stage.name.name, Kind.BINARY, "bytea")


def make_stage(connection: psycopg.Connection, stage: PostgresStage, checks: Sequence[Check] = ()) -> int:
    """Creates the stage. Its comment contains the time of the server's clock.

    Args:
        connection: a connection in a transaction.
        stage: the stage.
        checks: constraints of the table that the rows must satisfy.

    Returns:
        The number of constraints that the stage has.
    """
    n_checked = 0
    if checks:
        n_checked = _create_checked(connection, stage, checks)
    else:
        connection.execute(create_stage(stage))
    row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::bigint").fetchone()
    assert row
    what = f"streamgroups: output for {stage.table} that is not committed, begun at {row[0]} s"
    connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(stage.name.identifier, what))
    return n_checked


def _create_checked(connection: psycopg.Connection, stage: PostgresStage, checks: Sequence[Check]) -> int:
    """Creates the stage with constraints, whose expressions contain the names of the table's columns."""
    final = _names(stage)
    # Columns of the table can have the names of other columns of the stage.
    unused = [f"{stage.name.name[-48:]} {i}" for i in range(len(final))]
    named = [*unused[:2], *(column.record.name for column in stage.columns), *unused[2 + len(stage.columns) :]]
    connection.execute(create_stage(stage, named))
    n_checked = add_checks(connection, stage.name, checks, stage.delete_marker)
    own = slice(2, 2 + len(stage.columns))
    renamed = [*zip(named[own], unused[own], strict=True), *zip(unused, final, strict=True)]
    connection.execute(
        sql.SQL("; ").join(
            sql.SQL("ALTER TABLE {} RENAME COLUMN {} TO {}").format(
                stage.name.identifier, sql.Identifier(old), sql.Identifier(new)
            )
            for old, new in renamed
        )
    )
    return n_checked


def drop_stage(connection: psycopg.Connection, name: TableName) -> None:
    """Drops a stage, if it exists.

    Raises:
        psycopg.Error: if another session uses it.
    """
    with connection.transaction():
        set_up(connection, lock_ms=_DROP_TIMEOUT_MS)
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(name.identifier))


def drop_dead_stages(connection: psycopg.Connection, schema: str, *, older_than_s: float) -> None:
    """Drops unused stages of killed runs in a schema that exceed an age.

    A stage that is in use or no longer exists is skipped until the next batch.
    """
    for (name,) in connection.execute(_FIND_DEAD, [schema, older_than_s]).fetchall():
        table = TableName(schema, name).identifier
        with suppress(psycopg.Error), connection.transaction():
            # Each task holds a lock on its stage while it writes.
            connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE NOWAIT").format(table))
            connection.execute(sql.SQL("DROP TABLE {}").format(table))


_FIND_DEAD = r"""
    SELECT c.relname::text FROM pg_class c
    WHERE c.relname LIKE 'streamgroups\_stage\_%%' AND c.relpersistence = 'u' AND c.relkind = 'r'
          AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = %s)
          AND pg_has_role(c.relowner, 'USAGE')
          AND substring(obj_description(c.oid, 'pg_class') FROM 'begun at ([0-9]+) s$')::bigint
              < extract(epoch FROM clock_timestamp()) - %s
"""


def lost(stage: PostgresStage, why: str) -> StageLost:
    """Creates the error for missing staged rows."""
    return StageLost(
        f"The staged output of a batch for {stage.table} is lost: {why}. The batch was not written.",
        remedy="Restart the query: it runs the batch again. A server that crashed or failed over empties its unlogged tables.",
    )
