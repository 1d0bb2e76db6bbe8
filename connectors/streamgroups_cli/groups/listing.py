"""``streamgroups groups list``: all groups of a cluster, in one request to each broker and one for a warning.

``streamgroups_cli.groups`` imports it. Source: SEMANTICS O1; ``kafka-consumer-groups.sh --list``.
"""

from __future__ import annotations

from typing import Annotated

import typer

from streamgroups.monitoring.snapshots import list_all
from streamgroups.tables import Cell, Column, Table
from streamgroups_cli.connection import Connect
from streamgroups_cli.groups.styles import state_style
from streamgroups_cli.groups.unlisted_groups import warn_of_unlisted
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption, emit

_COLUMNS = (
    Column("group"),
    Column("state", style=state_style),
    Column("type", rank=2),
    Column("protocol_type", rank=3),
    Column("coordinator", right=True, rank=1),
)


@with_options
def list_groups(
    connect: Connect,
    state: Annotated[
        list[str] | None, typer.Option(help="Only groups in this state, such as Stable or Empty; repeatable.")
    ] = None,
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="Only groups of this type: classic, consumer; repeatable.")
    ] = None,
    internal: Annotated[
        bool,
        typer.Option("--internal", help="Include metadata groups, in which the members of other groups coordinate."),
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """List the groups of the cluster."""
    states = {text.lower() for text in state or []}
    types = {text.lower() for text in type_ or []}
    with connect() as cluster:
        listed = [
            g
            for g in list_all(cluster.groups, every_type=True, internal=internal)
            if (not states or g.state.lower() in states) and (not types or g.type.lower() in types)
        ]
        warn_of_unlisted(cluster)
    rows: list[list[Cell]] = [[g.group_id, g.state, g.type, g.protocol_type, g.coordinator] for g in listed]
    emit(
        output,
        document=lambda: {"groups": Table(_COLUMNS, rows).documents},
        tables=lambda: [Table(_COLUMNS, [[cell if cell != "" else None for cell in row] for row in rows])],
        flat=lambda: Table(_COLUMNS, rows),
    )
