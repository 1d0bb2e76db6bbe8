"""``streamgroups savepoint create``: copies the committed offsets of a group and their states. Source: SEMANTICS C3."""

from __future__ import annotations

from typing import Annotated

import typer

from streamgroups_cli.connection import Connect
from streamgroups_cli.groups.scope import StateLocationOption
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption, emit, print_message
from streamgroups_cli.savepoints.record_tables import savepoint_document, savepoint_tables


@with_options
def create(
    connect: Connect,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group.", show_default=False)],
    to: Annotated[
        str,
        typer.Option("--to", metavar="LOCATION", help="The location of savepoints: a path or URI.", show_default=False),
    ],
    state_location: StateLocationOption = None,
    require_stopped: Annotated[
        bool, typer.Option("--require-stopped", help="Reject a group with members, for an upgrade.")
    ] = False,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            help="The checkpointLocation of an exclusive query with Spark's own state: copy it at the committed batch.",
        ),
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Create a savepoint of a group. Its queries can run meanwhile.

    The savepoint contains the committed offsets, and copies of the state files that they name. Nothing deletes it but
    'streamgroups savepoint delete'.
    """
    from streamgroups_admin.savepoints.store import create_savepoint
    from streamgroups_operators.savepoints.directory import SavepointDirectory

    with connect() as cluster:
        record = create_savepoint(
            cluster, group, to, state_location, require_stopped=require_stopped, checkpoint=checkpoint
        )
    emit(output, document=lambda: savepoint_document(record), tables=lambda: savepoint_tables(record))
    print_message(f"The savepoint is {SavepointDirectory(to, record.id)}")
