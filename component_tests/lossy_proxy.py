"""A TCP proxy that can lose responses: requests arrive, and then the connection breaks. A server that fails right after
a commit has the same effect. Used by component tests, and by campaigns (``integration_tests.campaign.storage``).
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

from unit_tests.frames import end

#: PostgreSQL's response to a COMMIT that has succeeded: the message ``CommandComplete`` with its length and its tag.
COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00"
#: The time in which the threads of a proxy end, when their connections have ended.
_JOIN_S = 10.0


class LossyProxy:
    """Forwards connections to a port of this machine.

    ``with LossyProxy(5432) as proxy: connect(proxy.port)``. If :attr:`lose_answers` is set, the next response breaks
    its connection.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        #: The sockets of open connections, and the threads that serve and close them.
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._is_closed = False
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
        end(self._listener)
        self._listener.close()
        with self._lock:
            self._is_closed = True
            for one in self._sockets:
                end(one)
        for thread in self._threads:
            thread.join(_JOIN_S)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        # Without a server, the connection ends. Later ones can reach it.
        with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._to)) as server:
            with self._lock:
                if self._is_closed:
                    return
                self._sockets += [client, server]
            answering = threading.Thread(target=self._answer, args=(server, client), daemon=True)
            answering.start()
            self._forward(client, server)
            answering.join()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        end(source)
        end(target)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        before = b""
        with contextlib.suppress(OSError):
            while data := server.recv(65_536):
                # A response can arrive in two parts.
                if self._is_lost(before + data):
                    break
                client.sendall(data)
                before = data[1 - len(COMMITTED) :]
        end(server)
        end(client)

    def _is_lost(self, data: bytes) -> bool:
        with self._lock:
            is_next = bool(self._next) and self._next in data
            if is_next:
                self._next = b""
            is_lost = is_next or self.lose_answers.is_set()
            self.n_lost += is_lost
            return is_lost
