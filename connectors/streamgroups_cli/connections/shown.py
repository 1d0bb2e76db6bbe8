"""Prints connections without their secrets.

Called by the other modules of ``streamgroups_cli.connections``. A value is printed only if its name is known, and known to be
no secret: a setting with a misspelt name can be a secret too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import typer

from streamgroups.connections.references import ENVIRONMENT, FILE, FromEnvironment, FromFile, Setting
from streamgroups.connections.secret_names import is_secret
from streamgroups.connections.variants import (
    Connection,
    DeltaConnection,
    KafkaConnection,
    PostgresConnection,
    SchemaRegistryConnection,
)
from streamgroups.tables import Cell, Column, Table
from streamgroups_cli.output import Output, emit

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Check the change, and do not write it.")]
_COLUMNS = (
    Column("current"),
    Column("name"),
    Column("type"),
    Column("address"),
    Column("command_config"),
    Column("settings"),
)
_HIDDEN = "***"
#: Names of settings that are no secrets, of the other systems than Kafka.
_PLAIN = re.compile(
    r"host|hostaddr|port|dbname|user|service|application_name|sslmode|target_session_attrs|connect_timeout"
    r"|(ssl|bearer|proxy|timeout|max|retries|cache)[.\w]*(location|url|scope|cluster|pool\.id|client\.id|retries|ms|capacity)"
    r"|timeout|(aws|azure|google)_\w*(region|endpoint|endpoint_url|account_name|allow_http|access_key_id|client_id|tenant_id)"
    r"|(aws_)?(region|allow_http|s3_allow_unsafe_rename|conditional_put)",
    re.IGNORECASE,
)


def emit_connections(connections: Sequence[Connection], current: str | None, output: Output) -> None:
    """Prints connections.

    Args:
        connections: the connections.
        current: the name of the current context.
        output: the format.
    """
    emit(
        output,
        document=lambda: {
            "connections": [
                {
                    "name": it.name,
                    "type": it.type,
                    "current": it.name == current,
                    "address": _document(address_of(it)),
                    "command_config": it.command_config if isinstance(it, KafkaConnection) else None,
                    "settings": {name: _document(_shown(it, name)) for name in sorted(it.settings)},
                }
                for it in connections
            ]
        },
        tables=lambda: [Table(_COLUMNS, [_row(it, is_current=it.name == current) for it in connections])],
    )


def address_of(connection: Connection) -> Setting | None:
    """Returns the address of the system, which is no secret, or its reference."""
    match connection:
        case KafkaConnection():
            return connection.bootstrap_servers
        case PostgresConnection():
            return connection.conninfo
        case DeltaConnection():
            return connection.location
        case SchemaRegistryConnection():
            return connection.url


def _row(connection: Connection, *, is_current: bool) -> list[Cell]:
    settings = [f"{name}={_text(_shown(connection, name))}" for name in sorted(connection.settings)]
    return [
        "*" if is_current else "",
        connection.name,
        connection.type,
        _text(address_of(connection)),
        connection.command_config if isinstance(connection, KafkaConnection) else None,
        " ".join(settings) or None,
    ]


def _shown(connection: Connection, name: str) -> Setting:
    setting = connection.settings[name]
    if not isinstance(setting, str):
        return setting
    if isinstance(connection, KafkaConnection):
        from streamgroups_kafka.client.java_settings import KNOWN

        is_known = name in KNOWN
    else:
        is_known = bool(_PLAIN.fullmatch(name))
    return setting if is_known and not is_secret(name, setting) else _HIDDEN


def _document(setting: Setting | None) -> str | dict[str, str] | None:
    match setting:
        case FromEnvironment():
            return {ENVIRONMENT: setting.variable}
        case FromFile():
            return {FILE: setting.path}
        case str() | None:
            return setting
    return _HIDDEN


def _text(setting: Setting | None) -> str | None:
    found = _document(setting)
    return ":".join(next(iter(found.items()))) if isinstance(found, dict) else found
