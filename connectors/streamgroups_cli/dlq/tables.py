"""The options for a queue of dead letters that is a table of PostgreSQL.

The commands under ``dlq`` use it. psycopg is imported only when an option names a database. Tests replace
:func:`find_table`, which needs a real server. Source: libpq's "Connection Strings".
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from streamgroups.dlq.table_letters import LetterTable
from streamgroups.errors import InvalidOption
from streamgroups.extras import explained


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options for a queue that is a table of PostgreSQL."""

    postgres: Annotated[
        str | None,
        typer.Option(
            "--postgres",
            metavar="CONNINFO",
            help="The database, if DLQ is a table: libpq's connection string, such as service=flights.",
            rich_help_panel="PostgreSQL",
        ),
    ] = None
    postgres_file: Annotated[
        Path | None,
        typer.Option(
            "--postgres-file",
            metavar="FILE",
            help="A file with the connection string.",
            rich_help_panel="PostgreSQL",
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.postgres is not None and self.postgres_file is not None:
            raise InvalidOption("--postgres and --postgres-file are the same option.", remedy="Use one of them.")

    def find(self, dlq: str) -> LetterTable | None:
        """Returns the table of a queue; ``None`` if the queue is a topic.

        Raises:
            InvalidOption: if the connection string cannot be read.
            StreamGroupsError: if the table is not accessible.
        """
        if self.postgres is not None:
            return find_table(self.postgres, dlq, "--postgres")
        if self.postgres_file is None:
            return None
        try:
            conninfo = self.postgres_file.read_text(encoding="utf-8").strip()
        except UnicodeDecodeError:
            conninfo = ""
        except OSError as e:
            raise InvalidOption(
                f"{self.postgres_file} cannot be read: {e.strerror}.", remedy="Name a file with a connection string."
            ) from None
        return find_table(conninfo, dlq, "--postgres-file")


def find_table(conninfo: str, table: str, option: str) -> LetterTable:
    """Finds a table of a real database. Tests replace this function."""
    try:
        from streamgroups_postgres.letters import find_letters
    except ImportError as e:
        raise explained(e, "--postgres") from e
    return find_letters(conninfo, table, option=option)
