"""Sends a request to another process of the user and returns the response, over a Unix socket.

Called by ``streamgroups_spark.bridge.rpc`` and ``streamgroups_cli.cursors``. ``multiprocessing.connection`` delimits
messages and authenticates both processes by a shared key. Its ``send`` and ``recv`` are not used: they unpickle, and a
pickle executes code of its sender. Messages are JSON. Source: ``unix(7)``, ``socket(7)``.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from threading import Thread
from typing import Any

from streamgroups.errors import StreamGroupsError, error_of

logger = logging.getLogger(__name__)

#: Connections that a stopped process has not accepted yet.
_BACKLOG = 128
_CLOSE_TIMEOUT_S = 10.0
#: How often a server renews its socket. Programs that clean ``/tmp`` remove files that were unused for days.
_RENEW_S = 60.0
#: The pause after a connection that could not be accepted, such as one without a free file descriptor.
_PAUSE_S = 0.1


class Server:
    """Listens at a path and answers requests, each connection on a thread of its own.

    Args:
        path: the path of the socket. The caller protects its directory from other users.
        key: the shared key. A client with another key receives no response.
        answer: returns the response to a request; both are JSON values. It is called on several threads. The client
            raises its exceptions as a :class:`~streamgroups.errors.StreamGroupsError`.
        timeout_s: the timeout of each read and write, in seconds.
    """

    def __init__(self, path: Path, key: bytes, answer: Callable[[Any], Any], timeout_s: float) -> None:
        self._path, self._key, self._answer, self._timeout_s = path, key, answer, timeout_s
        self._closed = False
        #: The kinds of problems that were logged.
        self._reported: set[str] = set()
        self._threads: list[Thread] = []
        self._listening = _listening_at(path)
        # A process that ends without ``close`` removes it. A fork of this process does not.
        self._remove = weakref.finalize(self, _remove, path, os.getpid())
        self._accepting = Thread(target=self._accept, name="streamgroups-rpc", daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """Stops the server after the responses in progress, or after 10 seconds. Removes the socket. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._wake()
        deadline_s = time.monotonic() + _CLOSE_TIMEOUT_S
        # This thread adds the last request to the others.
        self._accepting.join(_CLOSE_TIMEOUT_S)
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        self._remove()
        self._listening.close()

    def _wake(self) -> None:
        """Wakes the thread in ``accept``. It accepts the connections before this one first."""
        try:
            _connect(self._path, _CLOSE_TIMEOUT_S).close()
        except OSError:
            # The path is gone, or this process has no free file descriptor. Connections before are lost.
            with suppress(OSError):
                self._listening.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closed:
            try:
                # Not ``multiprocessing``'s listener: it would wait for the key of a process without a timeout.
                connection = Connection(self._listening.accept()[0].detach())
            except TimeoutError:
                self._renew()
                continue
            except OSError as e:
                self._report("accept", f"A connection to {self._path} failed: {e}.")
                # The connection stays in the backlog, so the next attempt would fail at once.
                time.sleep(_PAUSE_S)
                continue
            thread = Thread(target=self._serve, args=(connection,), name="streamgroups-rpc-request", daemon=True)
            try:
                thread.start()
            except RuntimeError as e:
                logger.warning("A request is not answered: %s", e)
                connection.close()
                continue
            self._threads = [*(t for t in self._threads if t.is_alive()), thread]

    def _renew(self) -> None:
        """Marks the socket as used, or listens again if it was removed.

        ``systemd-tmpfiles`` keeps sockets that listen, but finds them by the name that they had before (:func:`unnamed`).
        """
        try:
            os.utime(self._path)
        except FileNotFoundError:
            try:
                again = _listening_at(self._path)
            except OSError as e:
                self._report(
                    "renew",
                    f"The socket {self._path} was removed, and cannot be created again: {e}. Restart the program.",
                )
                return
            self._listening.close()
            self._listening = again
            logger.warning("The socket %s was removed, and was created again.", self._path)
        except OSError as e:
            logger.debug("The socket %s is not marked as used: %s", self._path, e)

    def _report(self, kind: str, problem: str) -> None:
        """Logs the first problem of a kind as a warning. It can repeat several times a second."""
        if not self._closed:
            logger.log(logging.DEBUG if kind in self._reported else logging.WARNING, "%s", problem)
            self._reported.add(kind)

    def _serve(self, connection: Connection) -> None:
        with connection:
            try:
                with socket.socket(fileno=os.dup(connection.fileno())) as accepted:
                    _set_timeout(accepted, self._timeout_s)
                deliver_challenge(connection, self._key)
                answer_challenge(connection, self._key)
                request = connection.recv_bytes()
                connection.send_bytes(self._response(request))
            except (OSError, EOFError, AuthenticationError, AssertionError) as e:
                logger.debug("A client received no response: %r", e)

    def _response(self, request: bytes) -> bytes:
        """Returns each exception as a response: the client must receive it."""
        try:
            return json.dumps({"response": self._answer(json.loads(request))}).encode()
        except StreamGroupsError as e:
            error = e
        except Exception as e:
            logger.warning("A request of another process failed", exc_info=e)
            error = StreamGroupsError(
                f"Process {os.getpid()} failed to handle a request ({type(e).__name__}: {e}).",
                remedy="The log of that process contains the traceback.",
            )
        return json.dumps({"error": error.document}).encode()


def _listening_at(path: Path) -> socket.socket:
    """Listens, and then gives the socket its name.

    A named socket on which no process listens is one of a killed process, and another process can remove it.
    """
    new = unnamed(path)
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(str(new))
        listening.listen(_BACKLOG)
        listening.settimeout(_RENEW_S)
        new.rename(path)
    except OSError:
        listening.close()
        raise
    return listening


def unnamed(path: Path) -> Path:
    """Returns where the socket of a path is until it listens.

    >>> print(unnamed(Path("/tmp/session/user")))
    /tmp/session/.user
    """
    return path.with_name(f".{path.name}")


def _remove(path: Path, pid: int) -> None:
    if os.getpid() == pid:
        path.unlink(missing_ok=True)


def call(path: Path, key: bytes, request: Any, timeout_s: float) -> Any:
    """Sends a request and returns its response.

    Args:
        path: the path of the socket of the server.
        key: the shared key.
        request: a JSON value.
        timeout_s: the timeout of the connection, and of each read and write, in seconds.

    Raises:
        FileNotFoundError: if no server listens at this path.
        ConnectionRefusedError: if its process was killed.
        TimeoutError: if its process hangs or is stopped.
        ConnectionError: if it closes the connection, or has another key.
        StreamGroupsError: the error of the response.
    """
    try:
        with _connect(path, timeout_s) as connection:
            answer_challenge(connection, key)
            deliver_challenge(connection, key)
            connection.send_bytes(json.dumps(request).encode())
            document = json.loads(connection.recv_bytes())
    except BlockingIOError as e:
        raise TimeoutError(f"no response from {path.name} within {timeout_s:g} s") from e
    # Before Python 3.12 ``answer_challenge`` asserts that the first message is a challenge.
    except (EOFError, AuthenticationError, AssertionError, ValueError) as e:
        raise ConnectionAbortedError(f"{path.name} closed the connection ({type(e).__name__}: {e})") from e
    if "error" in document:
        raise error_of(document["error"])
    return document["response"]


def _connect(path: Path, timeout_s: float) -> Connection:
    # ``Client`` has no timeout: it blocks while the backlog of a stopped process is full.
    with socket.socket(socket.AF_UNIX) as connecting:
        _set_timeout(connecting, timeout_s)
        connecting.connect(str(path))
        return Connection(connecting.detach())


def _set_timeout(connection: socket.socket, timeout_s: float) -> None:
    # A ``Connection`` reads and writes the descriptor, so ``settimeout`` has no effect. Its ``poll`` waits for the first
    # byte of a message only. With these options the operating system ends each connect, read and write with EAGAIN.
    microseconds = max(1, round(timeout_s * 1_000_000))
    timeval = struct.pack("@ll", microseconds // 1_000_000, microseconds % 1_000_000)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connection.setsockopt(socket.SOL_SOCKET, option, timeval)
