"""A TCP proxy that can lose responses: requests arrive, and then the connection breaks. A server that fails right after
a commit has the same effect.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType


class LossyProxy:
    """Forwards connections to a port of this machine.

    ``with LossyProxy(5432) as proxy: connect(proxy.port)``. If :attr:`lose_answers` is set, the next response breaks
    its connection.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._sockets: list[socket.socket] = []
        self.lose_answers = threading.Event()

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
                server = socket.create_connection(("127.0.0.1", self._to))
                self._sockets += [client, server]
                threading.Thread(target=self._forward, args=(client, server, None), daemon=True).start()
                threading.Thread(target=self._forward, args=(server, client, self.lose_answers), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, lose: threading.Event | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if lose is not None and lose.is_set():
                    break
                target.sendall(data)
        _end(source)
        _end(target)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
