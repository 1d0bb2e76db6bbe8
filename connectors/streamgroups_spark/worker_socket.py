"""Takes 40 ms off every Python task: acknowledges at once what Spark's JVM has sent to this worker.

Called by ``source`` when a worker unpickles a reader. The JVM sends a task in two writes, first the command (which holds the
reader), then the partition, over a TCP connection within the machine with Nagle's algorithm on. The second, short write
leaves only when the first is acknowledged, and a receiver with nothing to say delays that by 40 ms: a fifth of the trigger
time of a small micro-batch. Source: RFC 896, RFC 1122 (4.2.3.2), ``tcp(7)`` on ``TCP_QUICKACK``. With
``spark.python.unix.domain.socket.enabled=true`` there is no TCP, and nothing to do here.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

_OPEN_FILES = "/proc/self/fd"


def acknowledge_at_once() -> None:
    """Sends the acknowledgements that are due on this process's TCP connections. Never fails; Linux only."""
    quickack = getattr(socket, "TCP_QUICKACK", None)
    if quickack is None:
        return
    with suppress(OSError):
        for name in os.listdir(_OPEN_FILES):
            with suppress(OSError):
                if os.readlink(f"{_OPEN_FILES}/{name}").startswith("socket:"):
                    _acknowledge(int(name), quickack)


def _acknowledge(fd: int, quickack: int) -> None:
    with socket.socket(fileno=os.dup(fd)) as connection:
        if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
            connection.setsockopt(socket.IPPROTO_TCP, quickack, 1)
