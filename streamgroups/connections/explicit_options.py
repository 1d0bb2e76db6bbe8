"""Explicit options beside a connection: they add to it, and do not contradict it.

Called by the clients that connect, in ``streamgroups_kafka``, ``streamgroups_sinks`` and ``streamgroups.decoding``. Source:
SEMANTICS P3: the credentials of a connection are never sent to a server that another option names.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamgroups.connections.references import Setting
from streamgroups.errors import InvalidOption


def with_explicit(
    connection: str, settings: Mapping[str, Setting], explicit: Mapping[str, str], *, prefix: str = ""
) -> dict[str, Setting]:
    """Returns the settings of a connection and explicit options together.

    Args:
        connection: the name of the connection.
        settings: its settings.
        explicit: the options that the user has set, by the same names.
        prefix: the prefix that the user has written before the names, for errors.

    Raises:
        InvalidOption: if an option differs from that of the connection, or the connection has a secret for it. The error
            contains no value.

    >>> with_explicit("prod", {"client.id": "a"}, {"client.id": "a", "client.rack": "r"})
    {'client.id': 'a', 'client.rack': 'r'}
    >>> with_explicit("prod", {"client.id": "a"}, {"client.id": "b"}, prefix="kafka.")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'kafka.client.id' contradicts connection 'prod', which sets it too. Remove \
the option, or use another connection.
    """
    for name, value in explicit.items():
        if name in settings and settings[name] != value:
            raise InvalidOption(
                f"Option '{prefix}{name}' contradicts connection '{connection}', which sets it too.",
                remedy="Remove the option, or use another connection.",
            )
    return {**settings, **explicit}
