"""Sockets that are closed when they cannot connect.

Used by :mod:`streamgroups_kafka.admin.session`. ``kafka-python`` leaves a socket whose connection was refused, or whose TLS
handshake failed, to the garbage collector: while a broker is away that is a file descriptor at each attempt. Its ways to bring
own sockets are a scheme of ``proxy_url`` (``kafka.net.KafkaNetSocket``) and the socket class of an ``ssl.SSLContext``.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any

from kafka.net import KafkaNetSocket

#: As ``proxy_url``: no proxy, but sockets of this module.
DIRECT = "direct://"


class _ClosingSocket(KafkaNetSocket):  # type: ignore[misc]
    SCHEMES = ("direct",)

    async def sock_connect(self, net: Any, sock: socket.socket, sockaddr: Any, timeout_at: float | None = None) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:  # also when the attempt is given up
            sock.close()
            raise


class ClosingTlsSocket(ssl.SSLSocket):
    """A TLS connection that is closed when its handshake fails."""

    def do_handshake(self, block: bool = False) -> None:
        """As in ``ssl``; what is not yet over is not a failure."""
        try:
            super().do_handshake(block)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except BaseException:
            self.close()
            raise
