"""``streamgroups processors describe``: the definition of a processor, its state, and its last error. Source: SEMANTICS P2."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from streamgroups.instances.entries import group_of
from streamgroups.instances.overview import overview
from streamgroups.tables import Column, Table
from streamgroups_cli.instance_log import InstanceOptions, open_instance, require_defined
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption, emit, json_text
from streamgroups_cli.replica_tables import replica_document, replica_table


@with_options
def describe(
    options: InstanceOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The processor.", show_default=False)],
    output: OutputOption = Output.table,
) -> None:
    """Show a processor of an instance. A definition contains the names of connections, and no secrets."""
    with open_instance(options, options.name) as instance:
        state = instance.state()
        require_defined(state, [name], instance.name)
        found = overview(instance.name, state, instance.cluster.now_ms())
    definition, desired = state.definitions[name], state.desired.get(name)
    views = [it for it in found.replicas if it.replica.processor == name]
    facts: dict[str, Any] = {
        "processor": name,
        "group": group_of(instance.name, name),
        "desired": "running" if desired is not None and desired.is_running else "stopped",
        "request": None if desired is None else desired.request,
        "revision": definition.revision,
    }
    emit(
        output,
        document=lambda: {
            **facts,
            "replicas": [replica_document(it) for it in views],
            "definition": definition.content,
        },
        tables=lambda: [Table([Column(it) for it in facts], [list(facts.values())]), replica_table(views)],
    )
    if output is Output.table:
        print(f"\n{json_text(definition.content, indent=2)}")
