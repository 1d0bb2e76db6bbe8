"""Probes a database for ``streamgroups connections test``: the login, and the privileges that the sink needs.

The checks are those of the sink (``output_table``). Only a test with a write creates a table, and rolls it back.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import psycopg
from psycopg import sql

from streamgroups.connections.variants import PostgresConnection
from streamgroups.doctor.check_results import CheckResult, ok, problem
from streamgroups.errors import StreamGroupsError
from streamgroups_sinks.postgres.connected import conninfo_of
from streamgroups_sinks.postgres.connection import connected, set_up, translated_errors
from streamgroups_sinks.postgres.output_table import RequiredTable, find, where_to_make
from streamgroups_sinks.postgres.table_names import TableName

_ABOUT_SERVER = (
    "SELECT current_user, current_database(), current_setting('server_version'), "
    "pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on'"
)
_ALL = ("INSERT", "SELECT", "UPDATE", "DELETE")


def probe_database(connection: PostgresConnection, tables: Sequence[str], *, writes: bool) -> list[CheckResult]:
    """Returns what the user of a connection may do.

    Args:
        connection: the connection.
        tables: tables whose privileges are required.
        writes: whether to create a table, and roll it back.

    Raises:
        InvalidOption: if a secret cannot be resolved, or a name is not that of a table.
        StreamGroupsError: if the server does not respond, or rejects the login.
    """
    names = [TableName.parse(table, "--table") for table in tables]
    doing = f"Testing connection '{connection.name}'"
    with connected(conninfo_of(connection, ""), doing) as server, translated_errors(doing), server.transaction():
        set_up(server)
        row = server.execute(_ABOUT_SERVER).fetchone()
        assert row is not None, "the statement has one row"
        user, database, version, is_read_only = row
        found = [ok("login", f"User '{user}' is connected to database '{database}'.", f"PostgreSQL {version}")]
        if is_read_only:
            what = "The server is a standby, or transactions of this user are read-only."
            remedy = "Add target_session_attrs=read-write and all hosts to the connection."
            return [*found, problem("write", what, remedy)]
        found += [_table(server, name) for name in names]
        return [*found, _creation(server, writes=writes)]


def _table(server: psycopg.Connection, name: TableName) -> CheckResult:
    table = find(server, RequiredTable(name, (), ("key",), deletes=True))
    shown = f"Table {name.quoted}"
    if table is None:
        return problem(
            "table", f"{shown} does not exist, or its schema is not usable.", "Create it, or set create_table=True."
        )
    if not table.is_table:
        return problem("table", f"{shown} is not a table.", "Write to a table, not to a view.")
    granted = [it for it in _ALL if it not in table.lacks]
    if not table.lacks:
        return ok("table", f"{shown}: {', '.join(granted)} are granted: the sink can append and upsert.")
    lacks = ", ".join(table.lacks)
    what = f"{shown}: {lacks} not granted" + (f", and {', '.join(granted)} granted." if granted else ".")
    return problem("table", what, f"GRANT {lacks} ON {table.table.quoted} TO the user. An append needs INSERT only.")


def _creation(server: psycopg.Connection, *, writes: bool) -> CheckResult:
    """Stages, the ledger and missing tables need the right to create tables."""
    try:
        schema = where_to_make(server, None, "stages, the ledger and missing tables")
    except StreamGroupsError as e:
        return problem("create", e.what, e.remedy)
    if not writes:
        return ok("create", f"This user may create tables in schema '{schema}', for stages and the ledger.")
    name = sql.Identifier(schema, f"streamgroups_test_{uuid.uuid4().hex}")
    server.execute(sql.SQL("CREATE TABLE {} (n bigint)").format(name))
    server.execute(sql.SQL("INSERT INTO {} VALUES (1)").format(name))
    server.execute(sql.SQL("DROP TABLE {}").format(name))
    return ok("write", f"A table in schema '{schema}' was created, written and dropped in one transaction.")
