"""The variants of a connection, one for each kind of system.

``streamgroups.connections.parsing`` creates them. The clients that connect read them: ``streamgroups_kafka.client.connected``,
``streamgroups_sinks.postgres.connected``, ``streamgroups_sinks.delta.connected`` and
:class:`streamgroups.decoding.registry.SchemaRegistry`. Source: SEMANTICS P3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from streamgroups.connections.references import Reference, Setting


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """A Kafka cluster, and the login of its clients.

    Args:
        name: the name of the connection.
        bootstrap_servers: ``host:port[,host:port]``; ``None`` if the properties file contains them.
        command_config: the absolute path of a Java properties file; ``None`` without one. Each process that connects reads
            it.
        settings: client settings by Java's or librdkafka's names, in lower case. They override the properties file.

    >>> KafkaConnection("prod", "kafka:9092", settings={"sasl.password": "hunter2"})
    KafkaConnection(name='prod', bootstrap_servers='kafka:9092', command_config=None)
    """

    type: ClassVar[str] = "kafka"
    name: str
    bootstrap_servers: Setting | None = None
    command_config: str | None = None
    settings: Mapping[str, Setting] = field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, slots=True)
class PostgresConnection:
    """A database of PostgreSQL.

    Args:
        name: the name of the connection.
        conninfo: libpq's connection string or URL; ``None`` if the settings contain all parameters.
        settings: parameters of libpq, such as ``password``. They override the connection string.
    """

    type: ClassVar[str] = "postgres"
    name: str
    conninfo: Setting | None = field(default=None, repr=False)
    settings: Mapping[str, Setting] = field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, slots=True)
class DeltaConnection:
    """A directory of Delta tables.

    Args:
        name: the name of the connection.
        location: an absolute path, or a URL of an object store. The tables are below it.
        storage_options: the options of deltalake for the store.
    """

    type: ClassVar[str] = "delta"
    name: str
    location: str
    storage_options: Mapping[str, Setting] = field(default_factory=dict, repr=False, hash=False)

    @property
    def settings(self) -> Mapping[str, Setting]:
        """The options of the store."""
        return self.storage_options


@dataclass(frozen=True, slots=True)
class SchemaRegistryConnection:
    """A schema registry.

    Args:
        name: the name of the connection.
        url: its URL, or several ones of the same registry, separated by commas.
        settings: settings of Confluent's client, such as ``basic.auth.user.info``.
    """

    type: ClassVar[str] = "schema-registry"
    name: str
    url: str
    settings: Mapping[str, Setting] = field(default_factory=dict, repr=False, hash=False)


Connection = KafkaConnection | PostgresConnection | DeltaConnection | SchemaRegistryConnection
#: All variants, in the order of errors.
VARIANTS: tuple[type[Connection], ...] = (
    KafkaConnection,
    PostgresConnection,
    DeltaConnection,
    SchemaRegistryConnection,
)


def references_of(connection: Connection) -> dict[str, Reference]:
    """Returns the references of a connection by the names of their settings: what each machine must have.

    Args:
        connection: the connection.

    >>> from streamgroups.connections.references import FromEnvironment
    >>> references_of(PostgresConnection("warehouse", "host=db", {"password": FromEnvironment("PG_PASSWORD")}))
    {'password': FromEnvironment(variable='PG_PASSWORD')}
    """
    addresses: dict[str, Setting | None] = {}
    if isinstance(connection, KafkaConnection):
        addresses["bootstrap-servers"] = connection.bootstrap_servers
    elif isinstance(connection, PostgresConnection):
        addresses["conninfo"] = connection.conninfo
    settings = {**addresses, **connection.settings}
    return {name: it for name, it in settings.items() if it is not None and not isinstance(it, str)}
