"""The connection string of a sink, from a named connection and explicit parameters.

Called by ``sink``: :func:`named_connection` when it is created, and :func:`conninfo_of` where it connects. So a pickle of the
sink contains references instead of secrets. Source: libpq's "Parameter Key Words"; SEMANTICS P3.
"""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from streamgroups.connections.config_file import connection_named, resolver
from streamgroups.connections.explicit_options import with_explicit
from streamgroups.connections.references import Setting, resolved
from streamgroups.connections.variants import PostgresConnection
from streamgroups.errors import InvalidOption
from streamgroups_sinks.postgres.connection import check_conninfo

#: The value of a reference in checks without secrets.
_UNKNOWN = "unknown"


def named_connection(connection: str | PostgresConnection, explicit: str) -> PostgresConnection:
    """Returns a connection, and checks it without its secrets.

    Args:
        connection: its name, or the connection.
        explicit: the argument ``conninfo`` beside it, which can be empty.

    Raises:
        InvalidOption: if it does not exist, libpq cannot parse a parameter, or ``conninfo`` contradicts it.
    """
    found = connection_named(connection, PostgresConnection) if isinstance(connection, str) else connection
    plain = found.conninfo if isinstance(found.conninfo, str) else ""
    merged = _merged(found, plain, explicit)
    known = {name: it if isinstance(it, str) else _UNKNOWN for name, it in merged.items() if name != "port"}
    if known:
        check_conninfo(_made(found, known), f"connection={found.name}")
    return found


def conninfo_of(connection: PostgresConnection | None, explicit: str) -> str:
    """Returns the connection string with its secrets, in the process that connects.

    Args:
        connection: the connection; ``None`` without one.
        explicit: the argument ``conninfo``.

    Raises:
        InvalidOption: if a secret cannot be resolved here, or the result is not valid.
    """
    if connection is None:
        return explicit
    here, name = resolver(), connection.name
    base = "" if connection.conninfo is None else resolved(connection.conninfo, name, "conninfo", here)
    merged = _merged(connection, base, explicit)
    made = _made(connection, {key: resolved(it, name, key, here) for key, it in merged.items()})
    check_conninfo(made, f"connection={name}")
    return made


def _merged(connection: PostgresConnection, base: str, explicit: str) -> dict[str, Setting]:
    own = {**_parameters(base, connection.name), **connection.settings}
    given = _parameters(explicit, "") if explicit else {}
    return with_explicit(connection, own, given)


def _parameters(conninfo: str, connection: str) -> dict[str, str]:
    try:
        return {name: str(value) for name, value in conninfo_to_dict(conninfo).items() if value is not None}
    except psycopg.Error:
        # The text of the error can contain a password.
        where = f"Key 'conninfo' of connection '{connection}'" if connection else "Option 'conninfo'"
    raise InvalidOption(
        f"{where} cannot be parsed by libpq.",
        remedy="Write 'host=... dbname=... user=...' or 'postgresql://user@host/database'.",
    )


def _made(connection: PostgresConnection, parameters: Mapping[str, str]) -> str:
    for name, value in parameters.items():
        try:
            make_conninfo("", **{name: value})
        except (psycopg.Error, TypeError):
            pass
        else:
            continue
        raise InvalidOption(
            f"Connection '{connection.name}': libpq has no parameter '{name}', or rejects its value.",
            remedy="See libpq's parameter key words, such as host, port, dbname, user, password and sslmode.",
        )
    return make_conninfo("", **parameters)
