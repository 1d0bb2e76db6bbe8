"""``streamgroups savepoint show``: shows the commit record, the operator records and the positions. Source: SEMANTICS C1."""

from __future__ import annotations

from streamgroups_cli.output import Output, OutputOption, emit
from streamgroups_cli.savepoints.arguments import Location, SavepointId
from streamgroups_cli.savepoints.record_tables import savepoint_document, savepoint_tables
from streamgroups_operators.savepoints.directory import SavepointDirectory


def show(location: Location, savepoint: SavepointId, output: OutputOption = Output.table) -> None:
    """Show a savepoint: its group, its operators, and the offset and the state of each partition."""
    record = SavepointDirectory(location, savepoint).read()
    emit(output, document=lambda: savepoint_document(record), tables=lambda: savepoint_tables(record))
