"""The option for a queue of dead letters that is a table of PostgreSQL.

The commands under ``dlq`` use it. psycopg is imported only when an option names a database. Tests replace
:func:`find_table`, which needs a real server. Source: libpq's "Connection Strings".
"""

from __future__ import annotations

import re
from typing import Annotated

import typer

from streamgroups.connections.config_file import connection_named
from streamgroups.connections.variants import PostgresConnection
from streamgroups.dlq.table_letters import LetterTable
from streamgroups.extras import explained

_NAME = re.compile(r"[\w.-]+", re.ASCII)


PostgresOption = Annotated[
    str | None,
    typer.Option(
        "--postgres",
        metavar="NAME|CONNINFO",
        help="The database, if DLQ is a table: a connection, or libpq's connection string, such as service=flights.",
        rich_help_panel="PostgreSQL",
    ),
]


def table_of(given: str, dlq: str) -> LetterTable:
    """Returns the table of a queue.

    Args:
        given: the value of :data:`PostgresOption`.
        dlq: the table.

    Raises:
        StreamGroupsError: if the table is not accessible.
    """
    # A connection string contains an assignment or is a URL, and the name of a connection never is.
    if not _NAME.fullmatch(given):
        return find_table(given, dlq)
    try:
        from streamgroups_sinks.postgres.connected import conninfo_of
    except ImportError as e:
        raise explained(e, "--postgres") from e
    return find_table(conninfo_of(connection_named(given, PostgresConnection), ""), dlq)


def find_table(conninfo: str, table: str) -> LetterTable:
    """Finds a table of a real database. Tests replace this function."""
    try:
        from streamgroups_sinks.postgres.letters import find_letters
    except ImportError as e:
        raise explained(e, "--postgres") from e
    return find_letters(conninfo, table, option="--postgres")
