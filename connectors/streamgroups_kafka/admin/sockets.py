"""Sockets that are closed when they cannot connect, and when their session ends.

Used by :mod:`streamgroups_kafka.admin.connection`. After a rejected connection or a failed TLS handshake, ``kafka-python``
leaves the socket to the garbage collector. So each attempt leaks a file descriptor while a broker is down. It does the
same with a handshake that is in progress when the session ends. ``kafka-python`` accepts custom sockets as a scheme of
``proxy_url`` (``kafka.net.KafkaNetSocket``) and as the socket class of an ``ssl.SSLContext``, and a selector as the
setting ``selector``. Source: ``kafka.net`` of ``kafka-python``.
"""

from __future__ import annotations

import selectors
import socket
import ssl
from typing import Any

from streamgroups_kafka.client.private_kafka_python import KafkaNetSocket

#: A ``proxy_url`` without a proxy, but with the sockets of this module.
DIRECT = "direct://"


class _ClosingSocket(KafkaNetSocket):  # type: ignore[misc]
    SCHEMES = ("direct",)

    async def sock_connect(self, net: Any, sock: socket.socket, sockaddr: Any, timeout_at: float | None = None) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:  # also when the attempt is cancelled
            sock.close()
            raise


class ClosingTlsSocket(ssl.SSLSocket):
    """A TLS connection that is closed when its handshake fails."""

    def do_handshake(self, block: bool = False) -> None:
        """As in ``ssl``. A handshake that needs more data is not a failure."""
        try:
            super().do_handshake(block)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except BaseException:
            self.close()
            raise


class ClosingSelector(selectors.DefaultSelector):
    """A selector whose end closes all sockets that were registered.

    A session closes its selector last, so no socket is in use then.
    """

    def __init__(self) -> None:
        super().__init__()
        # References that keep the sockets alive: the end of a coroutine drops its own one without closing the socket.
        self._registered: set[Any] = set()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """As in ``selectors``."""
        self._registered = {it for it in self._registered if it.fileno() != -1} | {fileobj}
        return super().register(fileobj, events, data)

    def close(self) -> None:
        """Closes the selector, then the sockets."""
        super().close()
        for registered in self._registered:
            registered.close()
