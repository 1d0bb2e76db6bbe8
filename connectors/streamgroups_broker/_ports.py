"""Free TCP ports for listeners that are bound a moment later by another process.

Used by ``streamgroups_broker.embedded``. Ports come from below the range from which the kernel serves outgoing
connections (32768 on Linux, 49152 on macOS): a port from inside it could be taken by any client while a node restarts.
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
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Java does it: a port in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
        return True


def free_ports(count: int, taken: Collection[int] = ()) -> tuple[int, ...]:
    """Distinct free ports, chosen at random so that two processes hardly ever choose the same.

    Args:
        count: how many.
        taken: ports to leave alone.

    Raises:
        EmbeddedBrokerError: none were found.
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
    """Refuse ports that are in use.

    Raises:
        EmbeddedBrokerError: naming the first one in use.
    """
    for port in ports:
        if not is_free(port):
            raise port_taken(port)


def port_taken(port: int) -> EmbeddedBrokerError:
    """The error for a port in use.

    >>> print(port_taken(9092))
    Port 9092 on 127.0.0.1 is already in use. Stop the process that listens there, or use another port.
    """
    return EmbeddedBrokerError(
        f"Port {port} on {HOST} is already in use.", remedy="Stop the process that listens there, or use another port."
    )
