"""``streamgroups savepoint verify``: reads all files of a savepoint, and reports those that are missing or changed."""

from __future__ import annotations

import typer

from streamgroups.tables import Cell, Column, Table
from streamgroups_admin.savepoints.store import verify_savepoint
from streamgroups_cli.exits import ExitCode
from streamgroups_cli.output import Output, OutputOption, emit_rows
from streamgroups_cli.savepoints.arguments import Location, SavepointId
from streamgroups_operators.savepoints.directory import SavepointDirectory

_COLUMNS = (Column("operator"), Column("file"), Column("problem"))


def verify(location: Location, savepoint: SavepointId, output: OutputOption = Output.table) -> None:
    """Check the size and the checksum of each file of a savepoint. Exit code 1: a problem."""
    checked, problems = verify_savepoint(SavepointDirectory(location, savepoint))
    rows: list[list[Cell]] = [[it.operator, it.file, it.problem] for it in problems]
    table = Table(_COLUMNS, rows, heading=f"{checked} files, {len(rows)} problems")
    emit_rows(output, "problems", table, files=checked)
    if rows:
        raise typer.Exit(ExitCode.ERROR)
