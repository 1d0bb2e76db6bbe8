"""A proxy in front of a broker that cuts connections after the broker has written a batch of records, and before its
producer receives the response. The producer then sends the batch again.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from types import TracebackType

_PRODUCE = 0


class CuttingProxy:
    """Forwards the connections of a producer to a broker with one node.

    Args:
        bootstrap: the address of the broker.
        every: each response with this number to a Produce request is lost with its connection.
    """

    def __init__(self, bootstrap: str, every: int) -> None:
        host, _, port = bootstrap.partition(":")
        self._host, self._port, self._every = host, int(port), every
        self._sockets: list[socket.socket] = []
        self._lock, self._responses = threading.Lock(), 0
        #: The number of connections that were cut.
        self.cuts = 0

    def __enter__(self) -> CuttingProxy:
        self._listener = socket.create_server((self._host, 0))
        port = self._listener.getsockname()[1]
        self.bootstrap = f"{self._host}:{port}"
        # A response to a Metadata request contains the address of the broker: its host, followed by its port.
        self._address, self._own = (self._host.encode() + struct.pack(">i", it) for it in (self._port, port))
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for one in (self._listener, *self._sockets):
            _end(one)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((self._host, self._port))
                self._sockets += [client, server]
                produce: set[bytes] = set()
                threading.Thread(target=self._requests, args=(client, server, produce), daemon=True).start()
                threading.Thread(target=self._answers, args=(server, client, produce), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, produce: set[bytes]) -> None:
        """Forwards requests. The header contains the kind of the request, and the number of its response."""
        with contextlib.suppress(OSError):
            for frame in _frames(client):
                if struct.unpack(">h", frame[:2])[0] == _PRODUCE:
                    produce.add(frame[4:8])
                _send(server, frame)
        _end(client)
        _end(server)

    def _answers(self, server: socket.socket, client: socket.socket, produce: set[bytes]) -> None:
        with contextlib.suppress(OSError):
            for frame in _frames(server):
                if frame[:4] in produce and self._is_lost():
                    break
                _send(client, frame.replace(self._address, self._own))
        _end(client)
        _end(server)

    def _is_lost(self) -> bool:
        with self._lock:
            self._responses += 1
            is_lost = self._responses % self._every == 0
            self.cuts += is_lost
            return is_lost


def _frames(of: socket.socket) -> Iterator[bytes]:
    """Reads the messages of Kafka's protocol: a length, and its bytes."""
    with of.makefile("rb") as stream:
        while len(size := stream.read(4)) == 4:
            yield stream.read(struct.unpack(">i", size)[0])


def _send(to: socket.socket, frame: bytes) -> None:
    to.sendall(struct.pack(">i", len(frame)) + frame)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
