"""Driver RPC: requests between the processes of one Spark session on the driver's machine.

Spark runs the source of a query in one Python process, and each commit of its sink in another. These processes have no
connection, but all receive the session from ``sg.register``. It names a directory that only this user can enter, and
it is the shared key of the processes. A server listens on a socket in the directory, and a caller sends its request to
all servers there. Used by ``source.running_query``, ``sinks`` and ``ops``. ``messages.unions`` lists the messages.
Source: ``unix(7)``.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
import tempfile
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenacity import retry, retry_if_exception_type, stop_after_attempt

from streamgroups.errors import StreamGroupsError
from streamgroups_spark.bridge.dataclass_json import from_json, to_json
from streamgroups_spark.bridge.sockets import Server, call
from streamgroups_spark.messages.unions import Reply, Request

logger = logging.getLogger(__name__)

#: The address of a Unix socket has 104 or 108 bytes. The part after the directory of temporary files has less than 50.
_LONGEST = 54
#: A reply only reads memory. A process that takes longer is stopped or starved.
_RETRY_TIMEOUT_S = 10.0
#: A server that closes a connection is itself being closed, and then the next connection fails. Otherwise a retry gets
#: the reply.
_ATTEMPTS = 3
#: The rest of a session is not visible in its directory.
_NAME_LENGTH = 12


#: The sockets of the servers of this process.
_OWN: set[Path] = set()


#: Another process that leaves the session last, or sweeps it, can remove its directory at the same time.
_again = retry(retry=retry_if_exception_type(FileNotFoundError), stop=stop_after_attempt(5), reraise=True)


@_again
def directory_of(session: str) -> Path:
    """Returns the directory of the sockets of a session, which only this user can enter.

    Args:
        session: the session from ``sg.register``.

    Raises:
        StreamGroupsError: if it cannot be created, or another user owns it or can enter it.
    """
    temporary = tempfile.gettempdir()
    mine = Path(temporary if len(temporary) <= _LONGEST else "/tmp") / f"streamgroups-{os.getuid()}"
    return _private(mine, mine / session[:_NAME_LENGTH])


@_again
def task_directory_of(session: str) -> Path:
    """Returns the directory of the files that tasks of a session pass on (``bridge.handoff``).

    It is not below the directory of the sockets: there every file without a listening process is removed.

    Args:
        session: the session from ``sg.register``.

    Raises:
        StreamGroupsError: if it cannot be created, or another user owns it or can enter it.
    """
    mine = Path(tempfile.gettempdir()) / f"streamgroups-tasks-{os.getuid()}"
    return _private(mine, mine / session[:_NAME_LENGTH])


def _private(*directories: Path) -> Path:
    """Creates directories that only this user can enter. Returns the last one."""
    for directory in directories:
        try:
            directory.mkdir(mode=0o700)
        except FileExistsError:
            pass
        except OSError as e:
            if isinstance(e, FileNotFoundError) and directory != directories[0]:
                # Another process has just removed the directory above.
                raise
            raise StreamGroupsError(
                f"{directory} cannot be created: {e.strerror}.",
                remedy="Set TMPDIR to a directory in which this user can create files, on the driver and on each executor.",
            ) from e
        if (problem := _problem_of(directory.lstat())) is not None:
            raise StreamGroupsError(f"{directory} {problem}.", remedy="Remove it, or set TMPDIR to another directory.")
    return directories[-1]


def _problem_of(status: os.stat_result) -> str | None:
    if stat.S_ISLNK(status.st_mode):
        return "is a symbolic link, not a directory"
    if not stat.S_ISDIR(status.st_mode):
        return "is a file, not a directory"
    if status.st_uid != os.getuid():
        return f"belongs to another user (uid {status.st_uid})"
    if status.st_mode & 0o077:
        return f"has mode {stat.S_IMODE(status.st_mode):04o}, so other users can access it"
    return None


class SessionServer:
    """Answers the requests of a session one by one.

    Args:
        session: the session.
        answer: returns the reply. ``None``: the request is for another process. The caller raises its exceptions as a
            :class:`~streamgroups.errors.StreamGroupsError`.
    """

    def __init__(self, session: str, answer: Callable[[Any], Any]) -> None:
        self._answer, self._lock = answer, threading.Lock()
        _sweep(directory_of(session).parent)
        self._directory, self._server = self._bind(session)

    @_again
    def _bind(self, session: str) -> tuple[Path, Server]:
        directory = directory_of(session)
        path = directory / uuid.uuid4().hex[:12]
        server = Server(path, session.encode(), self._reply, _RETRY_TIMEOUT_S)
        self._path = path
        _OWN.add(path)
        return directory, server

    def _reply(self, document: Any) -> Any:
        with self._lock:
            return to_json(self._answer(from_json(document, Request)))

    def close(self) -> None:
        """Stops the server. Idempotent."""
        _OWN.discard(self._path)
        self._server.close()
        # The last server of a session removes its directory.
        with suppress(OSError):
            self._directory.rmdir()


def _sweep(sessions: Path) -> None:
    """Removes sockets of killed processes, on which no process listens."""
    for path in _sockets(sessions):
        with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_RETRY_TIMEOUT_S)
            try:
                connection.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
                path.parent.rmdir()


def _sockets(sessions: Path) -> list[Path]:
    """The sockets of all sessions. Another process can remove a directory while it is listed."""
    found: list[Path] = []
    for session in sessions.glob("*"):
        with suppress(FileNotFoundError, NotADirectoryError):
            found += session.iterdir()
    return found


@dataclass(frozen=True, slots=True)
class _NoReply:
    """A process listens, but its reply is unusable."""

    why: str


def request_all(session: str, request: Any, *, needs_all: bool = False, of_others: bool = False) -> list[Any]:
    """Sends a request to the processes that listen in a session, and returns their replies.

    Args:
        session: the session.
        request: one of ``messages.unions``.
        needs_all: whether a listening process without a reply is an error, unless another process replies.
        of_others: whether only other processes can reply. A request takes a millisecond for each process.

    Returns:
        All replies except ``None``.

    Raises:
        StreamGroupsError: if a process replied with one. With ``needs_all`` also if a process did not reply.
    """
    replies, silent = [], []
    for path in sorted(directory_of(session).glob("*")):
        if of_others and path in _OWN:
            continue
        reply = _reply_of(path, session, request)
        if isinstance(reply, _NoReply):
            silent.append(reply.why)
            logger.warning("A process of this Spark session does not respond: %s", reply.why)
        elif reply is not None:
            replies.append(reply)
    if needs_all and silent and not replies:
        raise StreamGroupsError(
            f"A process of this Spark session does not respond: {silent[0]}.",
            remedy=(
                "The process is stopped, overloaded or hangs. Start the query again. If that fails too, "
                "restart the Spark session."
            ),
        )
    return replies


def _reply_of(path: Path, session: str, request: Any) -> Any:
    """Returns the reply of one process.

    ``None`` if the request is for another process, or the process no longer listens.
    """
    why = ""
    for _ in range(_ATTEMPTS):
        try:
            return from_json(call(path, session.encode(), to_json(request), _RETRY_TIMEOUT_S), Reply)
        except ConnectionRefusedError:
            # The socket of a killed process.
            path.unlink(missing_ok=True)
            return None
        except FileNotFoundError:
            return None
        except TimeoutError as e:
            return _NoReply(str(e))
        except OSError as e:
            why = f"{e}"
        except ValueError as e:
            return _NoReply(f"the response of {path.name} cannot be read ({e})")
    return _NoReply(why)
