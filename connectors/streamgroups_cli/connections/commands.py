"""``streamgroups connections list``, ``show``, ``use`` and ``delete``.

``streamgroups_cli.connections`` imports it. No command prints a secret. Source: ``kubectl config``.
"""

from __future__ import annotations

from typing import Annotated

import typer

from streamgroups.connections.config_file import load_connections
from streamgroups.connections.parsing import CONNECTIONS, CURRENT
from streamgroups.connections.variants import KafkaConnection
from streamgroups.errors import InvalidOption
from streamgroups_cli.connections.shown import DryRunOption, emit_connections
from streamgroups_cli.connections_file import changed_connections, connections_in
from streamgroups_cli.output import Output, OutputOption, print_message

_NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Connection.", show_default=False)]


def list_connections(output: OutputOption = Output.table) -> None:
    """List the connections. Secrets are not printed."""
    found = load_connections()
    emit_connections([found.named[name] for name in sorted(found.named)], found.current, output)


def show(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Connection. Default: that of the current context.")
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Show a connection. Secrets are not printed."""
    found = load_connections()
    chosen = name if name is not None else found.current
    if chosen is None:
        raise InvalidOption("There is no current context.", remedy="Name one, or: streamgroups connections use NAME.")
    emit_connections([found.get(chosen)], found.current, output)


def use(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Connection of type kafka.", show_default=False)
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no context from now on.")] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Choose the current context: the Kafka cluster of commands if no option and no variable names one."""
    if (name is None) != none:
        raise InvalidOption("Either a connection or --none is required.", remedy="See: streamgroups connections list.")
    with changed_connections(dry_run=dry_run) as document:
        if name is None:
            document.pop(CURRENT, None)
        else:
            connections_in(document).typed(name, KafkaConnection)
            document[CURRENT] = name
    current = "There is no current context." if name is None else f"The current context is '{name}'."
    print_message(f"Dry run, nothing was changed: {current}" if dry_run else current)


def delete(name: _NameArgument, dry_run: DryRunOption = False) -> None:
    """Delete a connection. Its files and its system are not changed."""
    with changed_connections(dry_run=dry_run) as document:
        found = connections_in(document)
        found.get(name)
        is_current = found.current == name
        del document[CONNECTIONS][name]
        if not document[CONNECTIONS]:
            # A text of TOML has no [connections] without a connection.
            del document[CONNECTIONS]
        if is_current:
            del document[CURRENT]
    if dry_run:
        print_message(f"Dry run, nothing was changed: connection '{name}' exists and would be deleted.")
        return
    print_message(f"Connection '{name}' was deleted." + (" There is no current context now." if is_current else ""))
