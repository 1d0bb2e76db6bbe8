"""A TCP proxy that can lose responses: requests arrive, and then the connection breaks. A server that fails right after
a commit has the same effect. Used by component tests, and by campaigns (``integration_tests.campaign.storage``).
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

#: PostgreSQL's response to a COMMIT that has succeeded: the message ``CommandComplete`` with its length and its tag.
COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00"


class LossyProxy:
    """Forwards connections to a port of this machine.

    ``with LossyProxy(5432) as proxy: connect(proxy.port)``. If :attr:`lose_answers` is set, the next response breaks
    its connection.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._sockets: list[socket.socket] = []
        self._lock, self._next = threading.Lock(), b""
        self.lose_answers = threading.Event()
        #: The number of lost responses.
        self.n_lost = 0

    def lose_next(self, content: bytes) -> None:
        """The next response with this content breaks its connection; the ones after it arrive.

        Args:
            content: bytes of the response, such as :data:`COMMITTED`.
        """
        with self._lock:
            self._next = content

    def __enter__(self) -> LossyProxy:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _end(self._listener)
        self._listener.close()
        for one in self._sockets:
            _end(one)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    # The server is not there. Later connections can reach it.
                    client.close()
                    continue
                self._sockets += [client, server]
                threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        _end(source)
        _end(target)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        before = b""
        with contextlib.suppress(OSError):
            while data := server.recv(65_536):
                # A response can arrive in two parts.
                if self._is_lost(before + data):
                    break
                client.sendall(data)
                before = data[1 - len(COMMITTED) :]
        _end(server)
        _end(client)

    def _is_lost(self, data: bytes) -> bool:
        with self._lock:
            is_next = bool(self._next) and self._next in data
            if is_next:
                self._next = b""
            is_lost = is_next or self.lose_answers.is_set()
            self.n_lost += is_lost
            return is_lost


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
