"""``streamgroups savepoint create``: copies the committed offsets of a group and their states. Source: SEMANTICS C3."""

from __future__ import annotations

from typing import Annotated

import typer

from streamgroups.coordination.reset_protocol import is_metadata_group
from streamgroups.errors import InvalidOption
from streamgroups.groups.description import is_active, require_inactive
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
    output: OutputOption = Output.table,
) -> None:
    """Create a savepoint of a group. Its queries can run meanwhile.

    The savepoint contains the committed offsets, and copies of the state files that they name. Nothing deletes it but
    'streamgroups savepoint delete'.
    """
    from streamgroups_operators.savepoints.creating import SavepointCreator
    from streamgroups_operators.savepoints.directory import SavepointDirectory

    if is_metadata_group(group):
        raise InvalidOption(
            f"'{group}' is a metadata group, which describes the members of its group.", remedy="Name the group itself."
        )
    with connect() as cluster:
        if require_stopped:
            described = cluster.groups.describe_groups([group])[group]
            require_inactive([described] if is_active(described) else [], doing="saved")
        record = SavepointCreator(cluster.groups, cluster.topics).create(group, state_location, to, cluster.now_ms())
    emit(output, document=lambda: savepoint_document(record), tables=lambda: savepoint_tables(record))
    print_message(f"The savepoint is {SavepointDirectory(to, record.id)}")
