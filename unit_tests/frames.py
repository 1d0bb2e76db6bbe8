"""Messages of Kafka's protocol on a socket, for relays and proxies of tests: a size, and its bytes.

Used by ``unit_tests.request_relay`` and ``integration_tests.protocol_proxy``. Source: Kafka's protocol guide.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress


def frames(of: socket.socket) -> Iterator[bytes]:
    """Reads messages until the connection ends. A message that ends early is left out."""
    with of.makefile("rb") as stream:
        while len(size := stream.read(4)) == 4:
            (n_bytes,) = struct.unpack(">i", size)
            frame = stream.read(n_bytes)
            if len(frame) < n_bytes:
                return
            yield frame


def send_frame(to: socket.socket, frame: bytes) -> None:
    """Sends a message."""
    to.sendall(struct.pack(">i", len(frame)) + frame)


def end(one: socket.socket) -> None:
    """Ends both directions of a connection, or a listener. A close alone does not wake a thread that waits for it."""
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
