"""Explicit options beside a connection: they add to it, and do not contradict it.

Called by the clients that connect, in ``streamgroups_kafka``, ``streamgroups_sinks`` and ``streamgroups.decoding``. Source:
SEMANTICS P3: the credentials of a connection are never sent to a server that another option names. So an option that selects
a server is rejected, unless the connection has the same one. Sources of the names: librdkafka's CONFIGURATION.md (2.16);
libpq's "Parameter Key Words" (18); the configuration keys of ``object_store`` in deltalake 1.6.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from streamgroups.connections.references import Setting
from streamgroups.connections.variants import (
    Connection,
    DeltaConnection,
    KafkaConnection,
    PostgresConnection,
    SchemaRegistryConnection,
)
from streamgroups.errors import InvalidOption

#: The options that select a server, by type of connection.
_SERVERS = {
    KafkaConnection.type: re.compile(
        r"bootstrap\.servers|metadata\.broker\.list|sasl\.oauthbearer\.token\.endpoint\.url"
    ),
    PostgresConnection.type: re.compile(r"host|hostaddr|port|service|servicefile|oauth_issuer"),
    DeltaConnection.type: re.compile(
        r".*(endpoint|proxy|_ur[li]|host|region|allow_http|allow_invalid|emulator|fabric|account_name|container_name).*"
        r"|(.*_)?bucket(_name)?"
    ),
    SchemaRegistryConnection.type: re.compile(r"url|proxy|bearer\.auth\.issuer\.endpoint\.url"),
}
#: Options of Delta have several names, in lower or upper case, with or without the prefix of the cloud.
_CLOUD = re.compile(r"^(aws|azure_storage|azure|google|object_store)_")
_SAME_OPTION = {
    "endpoint_url": "endpoint",
    "bucket_name": "bucket",
    "session_token": "token",
    "bearer_token": "token",
    "account_key": "access_key",
    "master_key": "access_key",
    "sas_token": "sas_key",
    "authority_id": "tenant_id",
    "identity_endpoint": "msi_endpoint",
    "service_account_path": "service_account",
}
#: The name of a client in lists and logs. Several clients share a connection, and each can have a name.
_CLIENT_ID = "client.id"


def with_explicit(
    connection: Connection, settings: Mapping[str, Setting], explicit: Mapping[str, str], *, prefix: str = ""
) -> dict[str, Setting]:
    """Returns the settings of a connection and explicit options together.

    An explicit ``client.id`` replaces that of the connection.

    Args:
        connection: the connection.
        settings: its settings.
        explicit: the options that the user has set, by the same names.
        prefix: the prefix that the user has written before the names, for errors.

    Raises:
        InvalidOption: if an option differs from that of the connection, the connection has a secret for it, or only the option
            selects a server. The error contains no value.

    >>> prod = KafkaConnection("prod")
    >>> with_explicit(prod, {"client.id": "a", "client.rack": "r"}, {"client.id": "b", "client.rack": "r"})
    {'client.id': 'b', 'client.rack': 'r'}
    >>> with_explicit(prod, {"client.rack": "a"}, {"client.rack": "b"}, prefix="kafka.")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'kafka.client.rack' contradicts connection 'prod', which sets it too. Remove \
the option, or use another connection.
    >>> with_explicit(PostgresConnection("warehouse"), {"host": "db"}, {"hostaddr": "192.0.2.1"})
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'hostaddr' selects a server, which only connection 'warehouse' may do. Remove \
the option, or set it in the connection.
    """
    own = {_option(connection, name): value for name, value in settings.items()}
    for name, value in explicit.items():
        option = _option(connection, name)
        if option not in own and _SERVERS[connection.type].fullmatch(name.lower()):
            raise InvalidOption(
                f"Option '{prefix}{name}' selects a server, which only connection '{connection.name}' may do.",
                remedy="Remove the option, or set it in the connection.",
            )
        if own.get(option, value) != value and name != _CLIENT_ID:
            raise InvalidOption(
                f"Option '{prefix}{name}' contradicts connection '{connection.name}', which sets it too.",
                remedy="Remove the option, or use another connection.",
            )
    return {**settings, **explicit}


def _option(connection: Connection, name: str) -> str:
    """Returns one name of an option for all its names."""
    if not isinstance(connection, DeltaConnection):
        return name
    plain = _CLOUD.sub("", name.lower())
    return _SAME_OPTION.get(plain, plain)
