"""``streamgroups connections set``.

``streamgroups_cli.connections`` imports it. The command line is visible to every user of the machine, so it accepts references
of secrets and no secrets. Source: ``kubectl config set-context``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from streamgroups.connections.config_file import config_path
from streamgroups.connections.parsing import (
    COMMAND_CONFIG,
    CONNECTIONS,
    CONNINFO,
    LOCATION,
    SERVERS,
    SETTINGS,
    STORAGE_OPTIONS,
    TYPE,
    URL,
    check_name,
)
from streamgroups.connections.references import ENVIRONMENT, FILE
from streamgroups.connections.secret_names import is_secret, secret_parameter
from streamgroups.connections.variants import (
    VARIANTS,
    Connection,
    DeltaConnection,
    KafkaConnection,
    PostgresConnection,
    SchemaRegistryConnection,
    references_of,
)
from streamgroups.errors import InvalidOption
from streamgroups.home_paths import expanded
from streamgroups.location_uris import path_or_url
from streamgroups.option_values import repeated_names
from streamgroups_cli.connections.shown import DryRunOption, emit_connections
from streamgroups_cli.connections_file import changed_connections, connections_in
from streamgroups_cli.options import name_values
from streamgroups_cli.output import Output, OutputOption, print_message

#: The type of connection that has a key.
_TYPE_OF = {
    SERVERS: KafkaConnection.type,
    COMMAND_CONFIG: KafkaConnection.type,
    CONNINFO: PostgresConnection.type,
    LOCATION: DeltaConnection.type,
    URL: SchemaRegistryConnection.type,
}
#: Keys of a connection that can be references.
_ADDRESSES = (SERVERS, CONNINFO)
_WITHOUT_HOME = "Write the path without ~, or set HOME."


def set_connection(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Connection.", show_default=False)],
    of_type: Annotated[
        str | None,
        typer.Option(
            "--type", metavar="TYPE", help="kafka, postgres, delta or schema-registry. Default: that of the address."
        ),
    ] = None,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server", "-b", metavar="HOST:PORT", help="kafka: one or more brokers, separated by commas."
        ),
    ] = None,
    command_config: Annotated[
        Path | None,
        typer.Option("--command-config", metavar="FILE", help="kafka: a Java properties file, with the login."),
    ] = None,
    conninfo: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="postgres: libpq's connection string or URL, without a password."),
    ] = None,
    location: Annotated[
        str | None, typer.Option(metavar="URI", help="delta: the directory of the tables, a path or a URL.")
    ] = None,
    url: Annotated[str | None, typer.Option(metavar="URL", help="schema-registry: its URL.")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--setting", metavar="NAME=VALUE", help="A setting that is no secret; repeatable."),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VARIABLE", help="A setting from an environment variable; repeatable."),
    ] = None,
    file: Annotated[
        list[str] | None, typer.Option("--file", metavar="NAME=PATH", help="A setting from a file; repeatable.")
    ] = None,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.table,
) -> None:
    """Create a connection, or change the given parts of it."""
    check_name(name)
    addresses = {
        SERVERS: bootstrap_server,
        COMMAND_CONFIG: None if command_config is None else str(expanded(command_config, remedy=_WITHOUT_HOME)),
        CONNINFO: conninfo,
        LOCATION: _absolute(location),
        URL: url,
    }
    given = {key: value for key, value in addresses.items() if value is not None}
    _reject_secrets(given)
    settings = _settings(setting or [], env or [], file or [])
    with changed_connections(dry_run=dry_run) as document:
        tables = document.setdefault(CONNECTIONS, {})
        is_new = name not in tables
        table = tables.setdefault(name, {})
        if TYPE not in table:
            table[TYPE] = _type(of_type, given)
        _check_type(name, str(table[TYPE]), of_type, given)
        table.update(given)
        _add_settings(table, settings)
        changed = connections_in(document)
        _check(changed.get(name))
    emit_connections([changed.get(name)], changed.current, output)
    if dry_run:
        print_message("Dry run, nothing was changed.")
        return
    print_message(f"Connection '{name}' was {'created' if is_new else 'changed'} in {config_path()}")
    if is_new and isinstance(changed.get(name), KafkaConnection):
        print_message(f"Use it with --context {name}, or for all commands: streamgroups connections use {name}")


def _absolute(location: str | None) -> str | None:
    if location is None:
        return None
    found = path_or_url(location, "--location")
    return found if "://" in found else str(expanded(found, remedy=_WITHOUT_HOME))


def _type(of_type: str | None, given: Mapping[str, str]) -> str:
    if of_type is not None:
        return of_type
    types = {_TYPE_OF[key] for key in given}
    if len(types) != 1:
        raise InvalidOption(
            "The type of the connection is not known." if not types else "The options belong to several types.",
            remedy=f"Pass --type with one of {', '.join(it.type for it in VARIANTS)}, and the options of this type.",
        )
    return types.pop()


def _check_type(name: str, existing: str, of_type: str | None, given: Mapping[str, str]) -> None:
    others = {of_type or existing, *(_TYPE_OF[key] for key in given)} - {existing}
    if others:
        raise InvalidOption(
            f"Connection '{name}' is of type {existing}, and the options belong to {min(others)}.",
            remedy="Use another name, or delete the connection first.",
        )


def _settings(plain: Sequence[str], variables: Sequence[str], files: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for option, assignments in (("--setting", plain), ("--env", variables), ("--file", files)):
        for given, value in name_values(option, assignments, example="sasl.username=me"):
            name = given.removeprefix("kafka.")
            if repeated_names([*found, name]):
                raise InvalidOption(f"Setting '{name}' is given twice.", remedy="Pass it once.")
            found[name] = {"--setting": value, "--env": {ENVIRONMENT: value}, "--file": {FILE: value}}[option]
    _reject_secrets(found)
    return found


def _reject_secrets(given: Mapping[str, Any]) -> None:
    secret = next((name for name, value in given.items() if isinstance(value, str) and is_secret(name, value)), None)
    if secret is not None:
        name = secret_parameter(given[secret]) if secret == CONNINFO else secret
        raise InvalidOption(
            f"'{secret}' contains a secret, which every user of the machine sees in the command line.",
            remedy=f"Pass a reference: --env {name}=VARIABLE or --file {name}=/path.",
        )


def _add_settings(table: dict[str, Any], settings: Mapping[str, Any]) -> None:
    where = STORAGE_OPTIONS if table[TYPE] == DeltaConnection.type else SETTINGS
    for name, value in settings.items():
        if name in _ADDRESSES:
            table[name] = value
        else:
            table.setdefault(where, {})[name] = value


def _check(connection: Connection) -> None:
    """Rejects settings and files that a client rejects, before they are stored. Secrets need not exist here."""
    if isinstance(connection, SchemaRegistryConnection):
        from streamgroups.decoding.registry import SchemaRegistry

        SchemaRegistry(connection=connection)
    if not isinstance(connection, KafkaConnection):
        return
    from streamgroups_kafka.client.config import ClientConfig
    from streamgroups_kafka.client.connected import connected_settings
    from streamgroups_kafka.client.java_settings import check_setting
    from streamgroups_kafka.client.properties_file import as_in_a_file

    try:
        for setting in connection.settings:
            check_setting(setting)
        if not references_of(connection):
            ClientConfig.from_options(connected_settings(connection, {}).values)
    except InvalidOption as e:
        rejection = as_in_a_file(e)
    else:
        return
    raise InvalidOption(f"Connection '{connection.name}': {rejection.what}", remedy=rejection.remedy)
