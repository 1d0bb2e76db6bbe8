"""The address and the storage options of a table, from a named connection and explicit arguments.

Called by ``sink``: :func:`named_connection` when it is created, and :func:`storage_options_of` where it connects. So a pickle
of the sink contains references instead of secrets. Source: SEMANTICS P3.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping

from streamgroups.connections.config_file import connection_named, resolver
from streamgroups.connections.explicit_options import with_explicit
from streamgroups.connections.references import resolved
from streamgroups.connections.variants import DeltaConnection
from streamgroups.errors import InvalidOption
from streamgroups.groups.program import shown_location
from streamgroups.location_uris import path_or_url
from streamgroups_sinks.delta.atomic_commits import check_atomic_commits
from streamgroups_sinks.delta.store import local_path


def named_connection(connection: str | DeltaConnection, explicit: Mapping[str, str]) -> DeltaConnection:
    """Returns a connection, and checks that explicit storage options do not contradict it.

    Args:
        connection: its name, or the connection.
        explicit: the argument ``storage_options`` beside it.

    Raises:
        InvalidOption: if it does not exist, an option contradicts it, or commits would not be atomic.
    """
    found = connection_named(connection, DeltaConnection) if isinstance(connection, str) else connection
    check_atomic_commits(with_explicit(found, found.storage_options, explicit))
    return found


def address_in(connection: DeltaConnection, uri: str) -> str:
    """Returns the address of a table of a connection.

    Args:
        connection: the connection.
        uri: the directory of the table: relative to the location of the connection, or inside it.

    Raises:
        InvalidOption: if it is outside the location, or neither a path nor a URL.

    >>> lake = DeltaConnection("lake", "s3://bucket/tables/")
    >>> address_in(lake, "flights"), address_in(lake, "s3://bucket/tables/board/flights")
    ('s3://bucket/tables/flights', 's3://bucket/tables/board/flights')
    >>> address_in(lake, "s3://other/flights")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: The table 's3://other/flights' is outside the location of connection 'lake', \
's3://bucket/tables'. Use a path relative to the location, or another connection.
    """
    location = connection.location.rstrip("/") or "/"
    inside = uri = path_or_url(uri, "uri")
    if "://" in uri or uri.startswith("/"):
        inside = uri.removeprefix(location + "/") if uri.startswith(location + "/") else ".."
    path = posixpath.normpath(inside) if inside.strip("/") else ".."
    if path in (".", "..") or path.startswith(("../", "/")):
        raise InvalidOption(
            f"The table '{shown_location(uri)}' is outside the location of connection '{connection.name}', '{location}'.",
            remedy="Use a path relative to the location, or another connection.",
        )
    return f"{location.rstrip('/')}/{path}"


def storage_options_of(connection: DeltaConnection | None, explicit: Mapping[str, str], uri: str) -> Mapping[str, str]:
    """Returns the storage options with their secrets, in the process that connects.

    Args:
        connection: the connection; ``None`` without one.
        explicit: the argument ``storage_options``.
        uri: the address of the table, or of the directory.

    Raises:
        InvalidOption: if a secret cannot be resolved here, or commits would not be atomic.
    """
    options = explicit
    if connection is not None:
        here, merged = resolver(), with_explicit(connection, connection.storage_options, explicit)
        options = {name: resolved(it, connection.name, name, here) for name, it in merged.items()}
    check_atomic_commits(options, os.environ, is_local=local_path(uri) is not None)
    return options
