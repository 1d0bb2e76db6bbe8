"""Finds free TCP ports for listeners of another process.

Used by ``_prepare`` and ``_node``. The ports are below the kernel's range for outgoing connections (32768 on Linux,
49152 on macOS). Any client could use a port in that range while a node restarts. Source: ``ip(7)`` on
``ip_local_port_range``.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Collection, Sequence

from streamgroups.errors import EmbeddedBrokerError
from streamgroups_broker._properties import HOST

_FIRST, _LAST = 20_000, 32_000
_ATTEMPTS = 2_000


def is_free(port: int) -> bool:
    """Returns whether a server can listen on the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As in Java: a port in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
        return True


def free_ports(count: int, taken: Collection[int] = ()) -> tuple[int, ...]:
    """Returns distinct free ports. They are random, so that two processes rarely choose the same ports.

    Args:
        count: the number of ports.
        taken: ports to exclude.

    Raises:
        EmbeddedBrokerError: if not enough free ports were found.
    """
    found: list[int] = []
    for _ in range(_ATTEMPTS):
        if len(found) == count:
            return tuple(found)
        port = random.randrange(_FIRST, _LAST)
        if port not in found and port not in taken and is_free(port):
            found.append(port)
    raise EmbeddedBrokerError(
        f"No {count} free ports between {_FIRST} and {_LAST}.", remedy="Pass free ports: EmbeddedKafka(ports=[...])."
    )


def require_free(ports: Sequence[int]) -> None:
    """Rejects ports that are in use.

    Raises:
        EmbeddedBrokerError: for the first port in use.
    """
    for port in ports:
        if not is_free(port):
            raise port_taken(port)


def port_taken(port: int) -> EmbeddedBrokerError:
    """Creates the error for a port in use.

    >>> print(port_taken(9092))
    Port 9092 on 127.0.0.1 is already in use. Stop the process that listens there, or use another port.
    """
    return EmbeddedBrokerError(
        f"Port {port} on {HOST} is already in use.", remedy="Stop the process that listens there, or use another port."
    )
