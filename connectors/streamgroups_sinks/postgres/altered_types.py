"""Rejects a batch whose table has got other column types since the batch began.

Called by ``merging`` and ``bad_row_search``, in the transaction that writes the rows. Staged blocks contain no types: 8 bytes
of a ``bigint`` are also a ``timestamptz``. ``INSERT ... SELECT`` converts by assignment, which rounds. Both would store other
values without an error. The lock of an INSERT, which lasts until the end of the transaction, excludes ``ALTER TABLE``. ``EXPLAIN``
acquires it and inserts nothing. ``LOCK TABLE`` would need a privilege for the whole table. Source: PostgreSQL's
documentation, "Explicit Locking", "EXPLAIN", "COPY" (binary format), "pg_attribute".
"""

from __future__ import annotations

import psycopg
from psycopg import sql

from streamgroups.errors import SinkRejected
from streamgroups_sinks.postgres.stages import PostgresStage


def check_types(connection: psycopg.Connection, stage: PostgresStage) -> None:
    """Locks the table against changes, and compares the types of its columns with those of the stage.

    A column that no longer exists makes the statement fail, as it does the statements that write.

    Args:
        connection: a connection in a transaction.
        stage: the stage.

    Raises:
        SinkRejected: if a type has changed since the batch began.
    """
    columns = [column for column in stage.columns if column.record.name != stage.delete_marker]
    statements = sql.SQL(_LOCK_AND_COMPARE).format(
        table=stage.table.identifier,
        quoted=stage.table.quoted,
        columns=sql.SQL(", ").join(sql.Identifier(column.record.name) for column in columns),
        values=sql.SQL(", ").join([sql.NULL] * len(columns)),
        names=[column.record.name for column in columns],
        types=[column.type_oid for column in columns],
        modifiers=[column.type_modifier for column in columns],
    )
    # One round trip. The second statement begins when the first one has the lock, so it reads current types.
    cursor = connection.execute(statements)
    cursor.nextset()
    before = {column.record.name: column.type for column in columns}
    changes = [f"column '{name}' was {before[name]} and is {after}" for name, after in cursor.fetchall()]
    if changes:
        raise SinkRejected(
            f"Table {stage.table} was altered during the batch: {'; '.join(changes)}. The batch was not written.",
            remedy="Restart the query: it runs the batch again with the types of the table.",
        )


_LOCK_AND_COMPARE = """
    EXPLAIN INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE VALUES ({values});
    SELECT a.attname::text, format_type(a.atttypid, a.atttypmod)
    FROM unnest({names}::text[], {types}::oid[], {modifiers}::int4[]) AS begun (name, type, modifier)
    JOIN pg_attribute a ON a.attname = begun.name
    WHERE a.attrelid = {quoted}::regclass AND NOT a.attisdropped
          AND (a.atttypid, a.atttypmod) IS DISTINCT FROM (begun.type, begun.modifier)
    ORDER BY a.attnum
"""
