"""``streamgroups savepoint list``: lists the savepoints at a location, with those that were not completed."""

from __future__ import annotations

from streamgroups.errors import SavepointDamaged, UnknownSavepoint
from streamgroups.tables import Cell, Column, Table
from streamgroups_cli.output import Output, OutputOption, emit
from streamgroups_cli.savepoints.arguments import Location
from streamgroups_cli.savepoints.record_tables import record_cells, record_columns
from streamgroups_operators.savepoints.directory import SavepointDirectory, savepoints_at


def list_savepoints(location: Location, output: OutputOption = Output.table) -> None:
    """List the savepoints at a location. STATUS is 'incomplete' without a commit record: it cannot be restored."""
    columns = (*record_columns(), Column("status", style=lambda text: "" if text == "complete" else "red"))
    rows = [_cells(SavepointDirectory(location, it)) for it in savepoints_at(location)]
    names = [column.name for column in columns]
    emit(
        output,
        document=lambda: {"savepoints": [dict(zip(names, row, strict=True)) for row in rows]},
        tables=lambda: [Table(columns, rows)],
    )


def _cells(directory: SavepointDirectory) -> list[Cell]:
    nothing: list[Cell] = [None] * (len(record_columns()) - 1)
    try:
        return [*record_cells(directory.read()), "complete"]
    except UnknownSavepoint:
        return [directory.id, *nothing, "incomplete"]
    except SavepointDamaged:
        return [directory.id, *nothing, "damaged"]
