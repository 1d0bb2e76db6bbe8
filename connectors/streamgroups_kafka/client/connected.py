"""The client settings of a Kafka connection, with explicit options.

Called by the options of the source and of the sink (``streamgroups_spark``), and by the command line. The secrets are resolved here, in the process that connects. Their references travel with the configuration,
so another process resolves them again. Source: SEMANTICS P3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streamgroups.connections.config_file import connection_named, resolver
from streamgroups.connections.explicit_options import with_explicit
from streamgroups.connections.references import Reference, Setting, resolved
from streamgroups.connections.variants import KafkaConnection
from streamgroups.errors import InvalidOption
from streamgroups.extras import explained
from streamgroups.option_values import KAFKA, folded
from streamgroups_kafka.client.java_properties import affects_connections, read_properties

_SERVERS = "bootstrap.servers"


@dataclass(frozen=True, slots=True)
class FromProperties:
    """A property in the properties file of a connection.

    Args:
        path: the absolute path of the file.
        name: the property.
    """

    path: str
    name: str


KafkaReference = Reference | FromProperties


@dataclass(frozen=True, slots=True)
class References:
    """The settings whose values do not leave a process.

    Args:
        connection: the name of the connection.
        named: the reference of each of them.
    """

    connection: str
    named: tuple[tuple[str, KafkaReference], ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """The options of a configuration, with references instead of the secrets of its connection.

    Args:
        options: the options without a reference. They can contain secrets that the user has set explicitly.
        references: the references of the other ones.
    """

    options: tuple[tuple[str, str], ...] = field(repr=False)
    references: References

    @classmethod
    def of(cls, given: Mapping[str, str], references: References) -> Recipe | None:
        """Returns the recipe of options; ``None`` if none of them has a reference."""
        named = {name: it for name, it in references.named if name in given}
        options = tuple(sorted((name, value) for name, value in given.items() if name not in named))
        return cls(options, References(references.connection, tuple(named.items()))) if named else None


@dataclass(frozen=True, slots=True)
class ConnectedSettings:
    """The settings of a client.

    Args:
        values: their values in this process. They contain secrets: do not print them.
        references: the references of some of them; ``None`` without a connection.
        ignored: the properties of the connection's file that do not affect connections.
    """

    values: dict[str, str] = field(repr=False)
    references: References | None = None
    ignored: tuple[str, ...] = ()


def connected_settings(
    connection: str | KafkaConnection | None, explicit: Mapping[str, str], *, connections_file: str | None = None
) -> ConnectedSettings:
    """Returns the settings of a connection with explicit options.

    Args:
        connection: the connection, or its name. ``None``: the options name no connection.
        explicit: the ``kafka.*`` options, in lower case and without that prefix.
        connections_file: see :func:`streamgroups.connections.config_file.connection_named`.

    Raises:
        InvalidOption: if the connection does not exist, an option contradicts it, or a secret cannot be resolved here.
        MissingExtra: if the connection has a properties file, and the package that reads it is not installed.
    """
    if connection is None:
        return ConnectedSettings(dict(explicit))
    if isinstance(connection, str):
        connection = connection_named(connection, KafkaConnection, connections_file)
    path = connection.command_config
    of_file = {} if path is None else _read(path, connection.name)
    properties = {name: value for name, value in of_file.items() if affects_connections(name)}
    own = _settings(connection)
    merged = with_explicit(connection, {**properties, **own}, explicit, prefix=KAFKA)
    references: dict[str, KafkaReference] = {name: it for name, it in merged.items() if not isinstance(it, str)}
    if path is not None:
        # Each value of the file could be a secret.
        other = properties.keys() - own.keys() - explicit.keys()
        references |= {name: FromProperties(path, name) for name in other}
    here = resolver()
    values = {name: resolved(it, connection.name, name, here) for name, it in merged.items()}
    ignored = tuple(sorted(of_file.keys() - properties.keys() - values.keys()))
    return ConnectedSettings(values, References(connection.name, tuple(sorted(references.items()))), ignored)


def of_connection(ignored: tuple[str, ...]) -> tuple[str, ...]:
    """Describes properties of a connection's file that have no effect.

    >>> of_connection(("session.timeout.ms",))
    ("session.timeout.ms in the properties file of the connection (set it as option 'kafka.session.timeout.ms')",)
    """
    return tuple(f"{it} in the properties file of the connection (set it as option '{KAFKA}{it}')" for it in ignored)


def resolved_settings(settings: Mapping[str, str], references: References) -> dict[str, str]:
    """Resolves the references of settings again, in another process.

    Args:
        settings: the settings without those that have a reference.
        references: the references.

    Raises:
        InvalidOption: if a reference cannot be resolved.
        MissingExtra: see :func:`connected_settings`.
    """
    connection, here = references.connection, resolver()
    files = {it.path for _, it in references.named if isinstance(it, FromProperties)}
    properties = {path: _read(path, connection) for path in files}
    found = dict(settings)
    for name, it in references.named:
        if not isinstance(it, FromProperties):
            found[name] = resolved(it, connection, name, here)
        elif it.name in properties[it.path]:
            found[name] = properties[it.path][it.name]
        else:
            raise InvalidOption(
                f"Connection '{connection}': {it.path} on {here.host} has no property {it.name}.",
                remedy="The properties file must be the same on the driver and on all executors.",
            )
    return found


def check_explicit(connection: KafkaConnection, explicit: Mapping[str, str]) -> None:
    """Checks that explicit options do not contradict a connection, without its secrets.

    Args:
        connection: the connection.
        explicit: see :func:`connected_settings`.

    Raises:
        InvalidOption: if an option contradicts it.
    """
    own = _settings(connection)
    if connection.command_config is not None:
        # Its file can set the others. Each process that connects checks all of them.
        explicit = {name: it for name, it in explicit.items() if name in own}
    with_explicit(connection, own, explicit, prefix=KAFKA)


def _settings(connection: KafkaConnection) -> dict[str, Setting]:
    servers: dict[str, Setting] = {}
    if connection.bootstrap_servers is not None:
        servers[_SERVERS] = connection.bootstrap_servers
    return {**servers, **connection.settings}


def _read(path: str, connection: str) -> dict[str, str]:
    try:
        found = read_properties(Path(path))
    except ImportError as e:
        raise explained(e, f"Connection '{connection}' with a properties file") from e
    return folded(found.items())
