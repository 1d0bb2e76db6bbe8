"""``streamgroups state list``: lists the operators with state files at a location."""

from __future__ import annotations

from streamgroups.tables import Cell, Column, Table
from streamgroups.times import utc
from streamgroups_cli.output import Output, OutputOption, emit_rows
from streamgroups_cli.state.selection import GroupsArgument, Location, selected
from streamgroups_operators.inspection import inspect

_COLUMNS = (
    Column("group"),
    Column("operator"),
    Column("partitions", right=True),
    Column("files", right=True),
    Column("bytes", right=True),
    Column("oldest"),
    Column("newest"),
)


def list_states(location: Location, groups: GroupsArgument = None, output: OutputOption = Output.table) -> None:
    """List the operators with state files, with the number of their files and bytes."""
    rows: list[list[Cell]] = []
    for group_id, operator, files in selected(location, groups):
        found = inspect(files)
        times = sorted(file.planned_ms for file in found.sizes)
        oldest, newest = (utc(times[0]), utc(times[-1])) if times else (None, None)
        sizes = found.sizes.values()
        rows.append([group_id, operator, len(found.partitions), len(sizes), sum(sizes), oldest, newest])
    emit_rows(output, "states", Table(_COLUMNS, rows))
