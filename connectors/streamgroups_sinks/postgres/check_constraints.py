"""Finds the CHECK constraints of a table that a row of the stage decides, and adds them to the stage.

Called by ``sink`` when a batch begins. A row that violates one is then rejected in its task, where single rows can
become dead letters. All constraints of the table are evaluated again in the commit. Source: PostgreSQL's documentation,
"pg_constraint", "pg_trigger", "CREATE TABLE" (CHECK).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import psycopg
from psycopg import sql

from streamgroups_sinks.postgres.table_names import TableName


@dataclass(frozen=True, slots=True)
class Check:
    """A CHECK constraint.

    Args:
        name: its name.
        expression: its expression as SQL, from the catalog.
    """

    name: str
    expression: str


def find_checks(connection: psycopg.Connection, table: TableName, columns: Sequence[str]) -> tuple[Check, ...]:
    """Returns the CHECK constraints that need only these columns of a row.

    A table whose rows are changed by triggers or rules before they are stored has none.
    """
    rows = connection.execute(_FIND, {"table": table.quoted, "columns": list(columns)}).fetchall()
    return tuple(Check(*row) for row in rows)


def add_checks(
    connection: psycopg.Connection, stage: TableName, checks: Sequence[Check], delete_marker: str | None
) -> int:
    """Adds constraints to a stage whose columns have the names of the table. Returns their number.

    Args:
        connection: a connection in a transaction.
        stage: the stage.
        checks: the constraints.
        delete_marker: the column of rows that only delete. They satisfy all constraints.
    """
    n_added = 0
    for check in checks:
        # PostgreSQL needs more privileges to parse an expression than to evaluate it. A constraint that cannot be added
        # remains one of the commit.
        with suppress(psycopg.ProgrammingError, psycopg.NotSupportedError), connection.transaction():
            connection.execute(add_check(stage, check, delete_marker))
            n_added += 1
    return n_added


def add_check(stage: TableName, check: Check, delete_marker: str | None) -> sql.Composed:
    """Returns the statement that adds a constraint to a stage.

    >>> print(add_check(TableName("public", "s"), Check("limits", "(id > 0)"), "gone").as_string())
    ALTER TABLE "public"."s" ADD CONSTRAINT "limits" CHECK (CASE WHEN "gone" IS TRUE THEN true ELSE (id > 0) END)
    """
    condition: sql.Composable = sql.SQL(check.expression)
    if delete_marker is not None:
        condition = sql.SQL("CASE WHEN {} IS TRUE THEN true ELSE {} END").format(
            sql.Identifier(delete_marker), condition
        )
    return sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} CHECK ({})").format(
        stage.identifier, sql.Identifier(check.name), condition
    )


#: Bits 1 and 2 of ``tgtype`` are those of a trigger for each row, and before it is stored.
_FIND = """
    SELECT k.conname::text, pg_get_expr(k.conbin, k.conrelid)
    FROM pg_constraint k
    WHERE k.conrelid = to_regclass(%(table)s) AND k.contype = 'c'
          AND k.conkey <@ (SELECT array_agg(a.attnum) FROM pg_attribute a
                           WHERE a.attrelid = k.conrelid AND a.attnum > 0 AND a.attname = ANY (%(columns)s))
          AND pg_get_constraintdef(k.oid) NOT LIKE '%% NOT ENFORCED'
          AND NOT EXISTS (SELECT FROM pg_trigger g
                          WHERE (g.tgrelid = k.conrelid
                                 OR g.tgrelid IN (SELECT relid FROM pg_partition_tree(k.conrelid)))
                                AND NOT g.tgisinternal AND g.tgtype & 3 = 3)
          AND NOT EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = k.conrelid)
    ORDER BY k.conname
"""
