"""A relay before a broker, which records the requests of clients.

Used by unit tests before :mod:`unit_tests.raw_broker`, and by integration tests before a real broker. Source: the header
of Kafka's requests, which begins with the API key.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

from unit_tests.frames import end, frames, send_frame

METADATA, API_VERSIONS, FETCH, FIND_COORDINATOR = 3, 18, 1, 10


class Relay:
    """Passes requests on to a broker and records them. Clients find the relay in the broker's metadata.

    Args:
        bootstrap: the address of the broker.
    """

    def __init__(self, bootstrap: str) -> None:
        self.requests: list[tuple[int, bytes]] = []
        self._named = threading.Event()
        self.awaits_group = False
        host, port = bootstrap.rsplit(":", 1)
        self._broker = host, int(port)
        self._listener = socket.create_server((host, 0))
        self._port = self._listener.getsockname()[1]
        self.bootstrap = f"{host}:{self._port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accepts no more connections."""
        end(self._listener)
        self._listener.close()

    def of(self, api_key: int) -> list[bytes]:
        """The requests of one kind so far."""
        return [request for key, request in self.requests if key == api_key]

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self._broker)
            except OSError:
                # The broker has stopped, and a client connects once more.
                client.close()
                continue
            threading.Thread(target=self._pass, args=(client, broker, self._record), daemon=True).start()
            threading.Thread(target=self._pass, args=(broker, client, self._readdress), daemon=True).start()

    def _record(self, request: bytes) -> bytes:
        (api_key,) = struct.unpack_from(">h", request)
        self.requests.append((api_key, request))
        if api_key == FIND_COORDINATOR:
            self._named.set()
        elif api_key == FETCH and self.awaits_group:
            # A read of two records can end before librdkafka names the group.
            self._named.wait(10)
        return request

    def _readdress(self, response: bytes) -> bytes:
        return response.replace(struct.pack(">i", self._broker[1]), struct.pack(">i", self._port))

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket, change: Callable[[bytes], bytes]) -> None:
        # The other side can close the connection.
        with source, target, suppress(OSError):
            for frame in frames(source):
                send_frame(target, change(frame))
