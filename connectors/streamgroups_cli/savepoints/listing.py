"""``streamgroups savepoint list``: lists the savepoints at a location, with those that were not completed."""

from __future__ import annotations

from streamgroups.tables import Cell, Column, Table
from streamgroups_admin.savepoints.store import ListedSavepoint, listed_savepoints
from streamgroups_cli.output import Output, OutputOption, emit_rows
from streamgroups_cli.savepoints.arguments import Location
from streamgroups_cli.savepoints.record_tables import record_cells, record_columns


def list_savepoints(location: Location, output: OutputOption = Output.table) -> None:
    """List the savepoints at a location. STATUS is 'incomplete' without a commit record: it cannot be restored."""
    columns = (*record_columns(), Column("status", style=lambda text: "" if text == "complete" else "red"))
    rows = [_cells(it) for it in listed_savepoints(location)]
    emit_rows(output, "savepoints", Table(columns, rows))


def _cells(listed: ListedSavepoint) -> list[Cell]:
    nothing: list[Cell] = [None] * (len(record_columns()) - 1)
    of_record = [listed.id, *nothing] if listed.record is None else record_cells(listed.record)
    return [*of_record, listed.status]
