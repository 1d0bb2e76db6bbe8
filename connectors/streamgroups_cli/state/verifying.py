"""``streamgroups state verify``: reads all state files and reports those that are damaged or missing."""

from __future__ import annotations

import typer

from streamgroups.tables import Cell, Column, Table
from streamgroups_cli.exits import ExitCode
from streamgroups_cli.output import Output, OutputOption, emit_rows
from streamgroups_cli.state.selection import GroupsArgument, Location, selected
from streamgroups_operators.inspection import Inspection, inspect

_COLUMNS = (Column("group"), Column("operator"), Column("file"), Column("problem"))


def verify(location: Location, groups: GroupsArgument = None, output: OutputOption = Output.table) -> None:
    """Check the checksum of each state file, and that all files exist that the newest states need. Exit code 1: a problem."""
    problems: list[list[Cell]] = []
    checked = 0
    for group_id, operator, files in selected(location, groups):
        found = inspect(files)
        checked += len(found.sizes)
        problems += [[group_id, operator, *problem] for problem in _problems(found)]
    table = Table(_COLUMNS, problems, heading=f"{checked} files, {len(problems)} problems")
    emit_rows(output, "problems", table, files=checked)
    if problems:
        raise typer.Exit(ExitCode.ERROR)


def _problems(found: Inspection) -> list[tuple[str, str]]:
    damaged = [(str(file), f"is damaged: {reason}") for file, reason in found.damaged.items()]
    missing = [
        (str(gone), f"does not exist, and {file} needs it")
        for file, needed in found.missing.items()
        for gone in sorted(needed)
    ]
    return sorted(damaged) + sorted(missing)
