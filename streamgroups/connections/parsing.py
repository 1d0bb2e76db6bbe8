"""Parses the file of connections, after TOML.

Called by ``streamgroups.connections.config_file``. Any user can write the file, so each type, name and value is checked. An
error contains no value, which can be a secret. Source: SEMANTICS P3.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from streamgroups.connections.named import Connections
from streamgroups.connections.references import FromConnections, Setting, absolute, reference_in
from streamgroups.connections.secret_names import is_secret
from streamgroups.connections.variants import (
    Connection,
    DeltaConnection,
    KafkaConnection,
    PostgresConnection,
    SchemaRegistryConnection,
)
from streamgroups.errors import InvalidOption
from streamgroups.location_uris import path_or_url
from streamgroups.similar_names import nearest

#: The names of the keys in the file.
CURRENT, CONNECTIONS, TYPE, SETTINGS = "current-context", "connections", "type", "settings"
SERVERS, COMMAND_CONFIG = "bootstrap-servers", "command-config"
CONNINFO, LOCATION, STORAGE_OPTIONS, URL = "conninfo", "location", "storage-options", "url"
_NAME = re.compile(r"[\w.-]{1,200}", re.ASCII)
_SERVERS_SETTING = "bootstrap.servers"
_TEXT = "a text in quotes"
_TEXT_OR_REFERENCE = 'a text in quotes, {env = "VARIABLE"} or {file = "/path"}'


def parse_connections(document: Mapping[str, Any], path: str) -> Connections:
    """Returns the connections of a parsed file.

    Args:
        document: the content of the file.
        path: its absolute path.

    Raises:
        InvalidOption: if a key is unknown, or a value has the wrong type.

    >>> table = {"type": "kafka", "bootstrap-servers": "kafka:9092", "settings": {"sasl.password": {"env": "PASSWORD"}}}
    >>> found = parse_connections({"connections": {"prod": table}, "current-context": "prod"}, "/etc/streamgroups.toml")
    >>> found.get("prod").settings
    {'sasl.password': FromEnvironment(variable='PASSWORD')}
    >>> parse_connections({"connections": {"prod": {"type": "kafak"}}}, "")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Key 'type' of connection 'prod' is no type of a connection. Did you mean 'kafka'?
    """
    _only(document, (CURRENT, CONNECTIONS), "of the file")
    tables = document.get(CONNECTIONS, {})
    if not isinstance(tables, Mapping):
        raise _of_type(CONNECTIONS, "of the file", "a table")
    named = {str(name): _connection(str(name), table, path) for name, table in tables.items()}
    current = document.get(CURRENT)
    if current is not None and not isinstance(current, str):
        raise _of_type(CURRENT, "of the file", _TEXT)
    found = Connections(named, None if current is None else str(current), path)
    if found.current is not None:
        found.typed(found.current, KafkaConnection)
    return found


def check_name(name: str) -> str:
    """Returns the name of a connection.

    Raises:
        InvalidOption: if it contains other characters than letters, digits, ``.``, ``_`` and ``-``.

    >>> check_name("prod/eu")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: 'prod/eu' is not a name of a connection. Use letters, digits, '.', '_' and '-'.
    """
    if not _NAME.fullmatch(name):
        raise InvalidOption(f"'{name}' is not a name of a connection.", remedy="Use letters, digits, '.', '_' and '-'.")
    return name


@dataclass(frozen=True, slots=True)
class _Table:
    """The table of one connection.

    Args:
        name: the name of the connection.
        content: the content of the table.
        path: the path of the file.
    """

    name: str
    content: Mapping[str, Any]
    path: str

    @property
    def where(self) -> str:
        return f"of connection '{self.name}'"

    @property
    def directory(self) -> str:
        return os.path.dirname(self.path)

    def text(self, key: str) -> str | None:
        """Returns a text that errors may contain."""
        value = self.content.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or "\0" in value or not value.strip():
            raise _of_type(key, self.where, _TEXT)
        if is_secret(key, value):
            raise InvalidOption(
                f"Key '{key}' {self.where} contains a login.", remedy="Write it into the settings, as a reference."
            )
        return str(value)

    def setting(self, key: str) -> Setting | None:
        value = self.content.get(key)
        return None if value is None else self._setting(key, value, (CONNECTIONS, self.name, key), self.where)

    def settings(self, table: str = SETTINGS, *, stored: Callable[[str], str] = str) -> dict[str, Setting]:
        """Returns a table of settings.

        Args:
            table: its key.
            stored: returns the name of a setting as clients have it.
        """
        content = self.content.get(table, {})
        if not isinstance(content, Mapping):
            raise _of_type(table, self.where, "a table")
        found: dict[str, Setting] = {}
        where = f"in the {table} {self.where}"
        for given, value in content.items():
            name = stored(str(given).strip())
            if not name or name in found:
                raise InvalidOption(
                    f"Setting '{given}' {where} {'is there twice' if name else 'has no name'}.", remedy="Remove it."
                )
            found[name] = self._setting(name, value, (CONNECTIONS, self.name, table, str(given)), where)
        return found

    def _setting(self, name: str, value: Any, keys: tuple[str, ...], where: str) -> Setting:
        if isinstance(value, Mapping):
            reference = reference_in(value, self.directory)
            if reference is not None:
                return reference
        if not isinstance(value, str) or "\0" in value:
            raise _of_type(name, where, _TEXT_OR_REFERENCE)
        return FromConnections(self.path, keys) if is_secret(name, value) else str(value)


def _kafka(table: _Table) -> KafkaConnection:
    _only(table.content, (TYPE, SERVERS, COMMAND_CONFIG, SETTINGS), table.where)
    settings = table.settings(stored=lambda name: name.strip().lower().removeprefix("kafka."))
    if _SERVERS_SETTING in settings:
        raise InvalidOption(f"The settings {table.where} contain {_SERVERS_SETTING}.", remedy=f"Use the key {SERVERS}.")
    servers, file = table.setting(SERVERS), table.text(COMMAND_CONFIG)
    if servers is None and file is None:
        raise InvalidOption(
            f"Connection '{table.name}' names no cluster.",
            remedy=f"Set {SERVERS}, or {COMMAND_CONFIG} with a file that contains {_SERVERS_SETTING}.",
        )
    return KafkaConnection(table.name, servers, None if file is None else absolute(file, table.directory), settings)


def _postgres(table: _Table) -> PostgresConnection:
    _only(table.content, (TYPE, CONNINFO, SETTINGS), table.where)
    found = PostgresConnection(table.name, table.setting(CONNINFO), table.settings())
    if found.conninfo is None and not found.settings:
        raise _missing(table, CONNINFO)
    return found


def _delta(table: _Table) -> DeltaConnection:
    _only(table.content, (TYPE, LOCATION, STORAGE_OPTIONS), table.where)
    location = table.text(LOCATION)
    if location is None:
        raise _missing(table, LOCATION)
    location = path_or_url(location, f"Key '{LOCATION}' {table.where}")
    if "://" not in location:
        location = absolute(location, table.directory)
    return DeltaConnection(table.name, location, table.settings(STORAGE_OPTIONS))


def _schema_registry(table: _Table) -> SchemaRegistryConnection:
    _only(table.content, (TYPE, URL, SETTINGS), table.where)
    url = table.text(URL)
    if url is None:
        raise _missing(table, URL)
    return SchemaRegistryConnection(table.name, url, table.settings())


_PARSERS: Mapping[str, Callable[[_Table], Connection]] = {
    KafkaConnection.type: _kafka,
    PostgresConnection.type: _postgres,
    DeltaConnection.type: _delta,
    SchemaRegistryConnection.type: _schema_registry,
}


def _connection(name: str, content: Any, path: str) -> Connection:
    check_name(name)
    if not isinstance(content, Mapping):
        raise _of_type(name, "of the connections", "a table")
    table = _Table(name, content, path)
    of = table.text(TYPE)
    if of is None:
        raise InvalidOption(f"Key '{TYPE}' {table.where} is missing.", remedy=f"Use one of: {', '.join(_PARSERS)}.")
    if of not in _PARSERS:
        raise InvalidOption(f"Key '{TYPE}' {table.where} is no type of a connection.", remedy=nearest(of, _PARSERS))
    return _PARSERS[of](table)


def _only(table: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    unknown = sorted(set(map(str, table)) - set(keys))
    if unknown:
        raise InvalidOption(f"Key '{unknown[0]}' {where} is unknown.", remedy=nearest(unknown[0], keys))


def _missing(table: _Table, key: str) -> InvalidOption:
    return InvalidOption(f"Key '{key}' {table.where} is missing.", remedy="Set it.")


def _of_type(key: str, where: str, required: str) -> InvalidOption:
    return InvalidOption(f"Key '{key}' {where} has the wrong type.", remedy=f"Write {required}.")
