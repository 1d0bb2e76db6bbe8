"""``streamgroups contexts list``, ``show``, ``use``, ``set`` and ``delete``.

``streamgroups_cli.contexts`` imports it. No command prints a secret. Source: ``kubectl config``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from streamgroups.contexts import CONTEXTS, CURRENT, FILE, SERVERS, SETTINGS, Context, check_name
from streamgroups.errors import InvalidOption
from streamgroups.tables import Cell, Column, Table
from streamgroups_cli.connection import parse_settings
from streamgroups_cli.context_file import changed_contexts, config_path, contexts_in, read_contexts
from streamgroups_cli.output import Output, OutputOption, emit, print_message

_COLUMNS = (
    Column("current"),
    Column("name"),
    Column("bootstrap_servers"),
    Column("command_config"),
    Column("settings"),
)
_NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Context.", show_default=False)]


def list_contexts(output: OutputOption = Output.table) -> None:
    """List the contexts. Secrets are not printed."""
    found = read_contexts()
    _emit([found.named[name] for name in sorted(found.named)], found.current, output)


def show(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Context. Default: the current one.")] = None,
    output: OutputOption = Output.table,
) -> None:
    """Show a context. Secrets are not printed."""
    found = read_contexts()
    chosen = name if name is not None else found.current
    if chosen is None:
        raise InvalidOption("There is no current context.", remedy="Name one, or: streamgroups contexts use NAME.")
    _emit([found.get(chosen)], found.current, output)


def use(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Context.", show_default=False)] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no context from now on.")] = False,
) -> None:
    """Choose the current context, which commands use if no option and no variable names a cluster."""
    if (name is None) != none:
        raise InvalidOption("Either a context or --none is required.", remedy="See: streamgroups contexts list.")
    with changed_contexts() as document:
        if name is None:
            document.pop(CURRENT, None)
        else:
            contexts_in(document).get(name)
            document[CURRENT] = name
    print_message("There is no current context." if name is None else f"The current context is '{name}'.")


def set_context(
    name: _NameArgument,
    bootstrap_server: Annotated[
        str | None,
        typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT", help="One or more brokers, separated by commas."),
    ] = None,
    command_config: Annotated[
        Path | None,
        typer.Option("--command-config", metavar="FILE", help="A Java properties file, such as one with the login."),
    ] = None,
    kafka: Annotated[
        list[str] | None,
        typer.Option("--kafka", metavar="NAME=VALUE", help="A client setting that is no secret; repeatable."),
    ] = None,
) -> None:
    """Create a context, or change the given parts of it."""
    check_name(name)
    settings = parse_settings(kafka or [])
    _reject_secrets(settings)
    file = None if command_config is None else str(command_config.expanduser().resolve())
    with changed_contexts() as document:
        tables = document.setdefault(CONTEXTS, {})
        is_new = name not in tables
        table = tables.setdefault(name, {})
        changes: dict[str, Any] = {SERVERS: bootstrap_server, FILE: file}
        table.update({key: value for key, value in changes.items() if value is not None})
        if settings:
            table.setdefault(SETTINGS, {}).update(settings)
        merged = {str(key): str(value) for key, value in table.get(SETTINGS, {}).items()}
        _check(Context(name, table.get(SERVERS), table.get(FILE), merged))
    print_message(f"Context '{name}' was {'created' if is_new else 'changed'} in {config_path()}")
    if is_new:
        print_message(f"Use it with --context {name}, or for all commands: streamgroups contexts use {name}")


def delete(name: _NameArgument) -> None:
    """Delete a context. Its properties file and its cluster are not changed."""
    with changed_contexts() as document:
        found = contexts_in(document)
        found.get(name)
        is_current = found.current == name
        del document[CONTEXTS][name]
        if is_current:
            del document[CURRENT]
    print_message(f"Context '{name}' was deleted." + (" There is no current context now." if is_current else ""))


def _check(context: Context) -> None:
    """Rejects settings and files that the client rejects, before they are stored."""
    from streamgroups_kafka.client.properties_file import command_config

    file = None if context.command_config is None else Path(context.command_config)
    if context.bootstrap_servers is not None or file is not None:
        command_config(context.bootstrap_servers, file and config_path().parent / file, context.settings)


def _reject_secrets(settings: Mapping[str, str]) -> None:
    from streamgroups.connections.secret_names import KAFKA_SECRETS

    secret = next((name for name in settings if name.lower() in KAFKA_SECRETS), None)
    if secret is not None:
        raise InvalidOption(
            f"Setting '{secret}' is a secret, which every user of the machine sees in the command line.",
            remedy="Write it into a properties file, run chmod 600 on it, and pass it as --command-config.",
        )


def _emit(contexts: list[Context], current: str | None, output: Output) -> None:
    shown = [(context, context.name == current, _shown(context.settings)) for context in contexts]
    rows: list[list[Cell]] = [
        [
            "*" if is_current else "",
            context.name,
            context.bootstrap_servers,
            context.command_config,
            " ".join(f"{name}={value}" for name, value in settings.items()) or None,
        ]
        for context, is_current, settings in shown
    ]
    emit(
        output,
        document=lambda: {
            "contexts": [
                {
                    "name": context.name,
                    "current": is_current,
                    "bootstrap_servers": context.bootstrap_servers,
                    "command_config": context.command_config,
                    "settings": settings,
                }
                for context, is_current, settings in shown
            ]
        },
        tables=lambda: [Table(_COLUMNS, rows)],
    )


def _shown(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns settings without secrets. A setting with a misspelt name can be a secret too."""
    from streamgroups.connections.secret_names import KAFKA_SECRETS
    from streamgroups_kafka.client.jaas import redacted, secrets_of
    from streamgroups_kafka.client.java_settings import KNOWN

    secrets = secrets_of(settings.items())
    return {
        name: redacted(value, secrets) if name.lower() in KNOWN and name.lower() not in KAFKA_SECRETS else "***"
        for name, value in sorted(settings.items())
    }
