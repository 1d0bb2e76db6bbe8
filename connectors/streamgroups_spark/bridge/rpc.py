"""Driver RPC: requests between the processes of one Spark session on the driver's machine.

Spark runs the source of a query in one Python process, and each commit of its sink in another. These processes have no
connection, but all receive the session from ``sg.register``. It names a directory that only this user can enter, and
contains the shared key of the processes. Each process listens on a socket in the directory. The name of a socket is its
address: :data:`USER` for the user's process, and for a source the id of its run, which the offsets of its batches contain.
Used by ``source.running_query``, ``sinks`` and ``ops``. ``messages.unions`` lists the messages. Source: ``unix(7)``.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tenacity import retry, retry_if_exception_type, stop_after_attempt

from streamgroups.errors import QueryUnknown, StreamGroupsError
from streamgroups_spark.bridge.dataclass_json import from_json, to_json
from streamgroups_spark.bridge.sockets import Server, call
from streamgroups_spark.messages.query import ParallelismRequest
from streamgroups_spark.messages.unions import Reply, Request
from streamgroups_spark.session import directory_in, key_of

logger = logging.getLogger(__name__)

#: The address of a Unix socket has 104 or 108 bytes. The part after the directory of temporary files has at most 51.
_LONGEST = 52
#: A reply only reads memory. A process that takes longer is stopped or starved.
_RETRY_TIMEOUT_S = 10.0
#: A server that closes a connection is itself being closed, and then the next connection fails. Otherwise a retry gets
#: the reply.
_ATTEMPTS = 3
#: How long the socket of a new process can be without a name. A killed process leaves such a socket.
_UNNAMED_S = 3600.0
#: The rest of a session is not visible in its directory.
_NAME_LENGTH = 12


#: The address of the user's process. The id of a run is longer.
USER = "user"

#: Calls a function again: another process that leaves a session last, or sweeps it, can remove its directory meanwhile.
again = retry(retry=retry_if_exception_type(FileNotFoundError), stop=stop_after_attempt(5), reraise=True)


@again
def directory_of(session: str) -> Path:
    """Returns the directory of the sockets of a session, which only this user can enter.

    It is the same in all processes of a registered session, whatever their own ``TMPDIR`` is.

    Args:
        session: the session from ``sg.register``.

    Raises:
        StreamGroupsError: if it cannot be created, or another user owns it or can enter it.
    """
    temporary = directory_in(session) or tempfile.gettempdir()
    mine = Path(temporary if len(temporary) <= _LONGEST else "/tmp") / f"streamgroups-{os.getuid()}"
    return _private(mine, mine / session[:_NAME_LENGTH], of="in the environment of the driver")


@again
def task_directory_of(session: str) -> Path:
    """Returns the directory of the files that tasks of a session pass on (``bridge.handoff``).

    It is not below the directory of the sockets: there every file without a listening process is removed.

    Args:
        session: the session from ``sg.register``.

    Raises:
        StreamGroupsError: if it cannot be created, or another user owns it or can enter it.
    """
    mine = Path(tempfile.gettempdir()) / f"streamgroups-tasks-{os.getuid()}"
    return _private(mine, mine / session[:_NAME_LENGTH], of="on each executor (spark.executorEnv.TMPDIR)")


def _private(*directories: Path, of: str) -> Path:
    """Creates directories that only this user can enter. Returns the last one.

    Args:
        directories: the directories, each in the one before.
        of: where their place is set, for errors.
    """
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
                remedy=f"Set TMPDIR to a directory in which this user can create files, {of}.",
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
        name: the address of this process in the session.
        answer: returns the reply. ``None``: the request is for another process. The caller raises its exceptions as a
            :class:`~streamgroups.errors.StreamGroupsError`.
        concurrent: the requests whose reply only reads memory. They do not wait for others, which can wait for a broker.
    """

    def __init__(
        self, session: str, name: str, answer: Callable[[Any], Any], concurrent: tuple[type, ...] = ()
    ) -> None:
        self._answer, self._concurrent, self._lock = answer, concurrent, threading.Lock()
        _sweep(directory_of(session).parent)
        self._directory, self._server = self._bind(session, name)

    @again
    def _bind(self, session: str, name: str) -> tuple[Path, Server]:
        directory = directory_of(session)
        return directory, Server(directory / name, key_of(session).encode(), self._reply, _RETRY_TIMEOUT_S)

    def _reply(self, document: Any) -> Any:
        request = from_json(document, Request)
        with nullcontext() if isinstance(request, self._concurrent) else self._lock:
            return to_json(self._answer(request))

    def close(self) -> None:
        """Stops the server. Idempotent."""
        self._server.close()
        # The last server of a session removes its directory.
        with suppress(OSError):
            self._directory.rmdir()


def _sweep(sessions: Path) -> None:
    """Removes sockets of killed processes, on which no process listens."""
    for path in files_of_sessions(sessions):
        with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_RETRY_TIMEOUT_S)
            try:
                connection.connect(str(path))
            except ConnectionRefusedError:
                # The socket of a server that is about to listen has no name yet.
                if not _is_unnamed(path) or time.time() - path.stat().st_mtime > _UNNAMED_S:
                    path.unlink(missing_ok=True)
                    path.parent.rmdir()


def _is_unnamed(path: Path) -> bool:
    return path.name.startswith(".")


def _named(session: str) -> list[Path]:
    """The sockets of a session that listen, or that a killed process has left."""
    with suppress(FileNotFoundError):
        return sorted(path for path in directory_of(session).iterdir() if not _is_unnamed(path))
    return []


def files_of_sessions(sessions: Path) -> list[Path]:
    """The files of all sessions. Another process can remove a directory while it is listed.

    Args:
        sessions: the directory of the directories of sessions.
    """
    found: list[Path] = []
    for session in sessions.glob("*"):
        with suppress(OSError):
            found += session.iterdir()
    return found


@dataclass(frozen=True, slots=True)
class _NoReply:
    """A process listens, but its reply is unusable."""

    why: str


def request_user(session: str, request: Any, *, is_needed: bool = False) -> Any:
    """Sends a request to the user's process, and returns its reply.

    Args:
        session: the session.
        request: one of ``messages.unions``.
        is_needed: whether a listening process without a reply is an error.

    Returns:
        The reply. ``None`` without one, and if no such process listens (:func:`why_unknown`).

    Raises:
        StreamGroupsError: if the process replied with one.
        QueryUnknown: with ``is_needed``, if the process did not reply.
    """
    reply = _reply_of(directory_of(session) / USER, session, request)
    if not isinstance(reply, _NoReply):
        return reply
    if is_needed:
        raise QueryUnknown(
            f"The process of this Spark session does not respond: {reply.why}.",
            remedy=(
                "The process is stopped, overloaded or hangs. Start the query again. If that fails too, "
                "restart the Spark session."
            ),
        )
    return _warned(reply)


def requested_parallelism(session: str, registered: int) -> int:
    """Returns the number of tasks that can run at once when a query or a batch starts.

    Args:
        session: the session.
        registered: the number when the session was registered. It is returned without a reply.
    """
    try:
        reply: int | None = request_user(session, ParallelismRequest())
    except StreamGroupsError as e:
        logger.debug("Spark's default parallelism is that of sg.register: %s", e)
        reply = None
    return registered if reply is None else reply


def why_unknown(session: str) -> str | None:
    """Returns why the user's process does not reply about a query of its session.

    Args:
        session: the session.

    Returns:
        The reason. ``None``: no process has registered the session.
    """
    if directory_in(session) is None:
        return None
    path = directory_of(session) / USER
    if path.exists():
        return "it does not find the query among its active queries"
    return f"it has ended, or its socket {path} was removed, as by a clean-up of temporary files"


def request_source(session: str, end: Mapping[str, Any], request: Any) -> Any:
    """Sends a request about a batch to the source that runs it, and returns its reply.

    Only the process of the run that planned the batch receives it. If this process has no reply, an earlier run planned the
    batch, and all other processes receive it until one replies.

    Args:
        session: the session.
        end: the end offset of the batch, as Spark has logged it for the source.
        request: one of ``messages.unions``.

    Returns:
        The reply. ``None`` if no process runs the batch.

    Raises:
        StreamGroupsError: if a process replied with one.
    """
    paths = sorted(_named(session), key=lambda path: path.name != end.get("run"))
    replies = (_warned(_reply_of(path, session, request)) for path in paths)
    return next((reply for reply in replies if reply is not None), None)


def request_all(session: str, request: Any, *, timeout_s: float | None = None) -> list[Any]:
    """Sends a request to all processes that listen in a session at once, and returns all replies except ``None``.

    A process that does not respond is left out. See :func:`request_each`.

    Args:
        session: the session.
        request: one of ``messages.unions``.
        timeout_s: how long to wait for the replies, in seconds. Default: 10.

    Raises:
        StreamGroupsError: if a process replied with one.
    """
    replies = request_each(session, request, timeout_s=timeout_s).by_address.values()
    return [reply for reply in replies if reply is not None]


@dataclass(frozen=True, slots=True)
class Replies:
    """The replies of the processes of a session to a request.

    Args:
        by_address: the reply of each process. ``None``: the request is for another process.
        missing: the addresses of the processes that listen, and did not reply.
    """

    by_address: Mapping[str, Any]
    missing: frozenset[str]


def request_each(session: str, request: Any, *, timeout_s: float | None = None) -> Replies:
    """Sends a request to all processes that listen in a session at once, and returns the replies and the missing ones.

    Args:
        session: the session.
        request: one of ``messages.unions``.
        timeout_s: how long to wait for the replies, in seconds. Default: 10.

    Raises:
        StreamGroupsError: if a process replied with one.
    """
    requests = {path.name: _Sent(partial(_reply_of, path, session, request, timeout_s)) for path in _named(session)}
    in_order = list(requests.values())
    for sent in in_order[1:]:
        sent.start()
    for sent in in_order[:1]:
        sent.run()
    replies = {address: sent.reply() for address, sent in requests.items()}
    missing = frozenset(address for address, reply in replies.items() if reply is not None and _warned(reply) is None)
    return Replies({address: it for address, it in replies.items() if address not in missing}, missing)


class _Sent:
    """A request on a thread of its own. An executor would start no thread after the main thread has ended."""

    def __init__(self, send: Callable[[], Any]) -> None:
        self._send = send
        self._reply: Any = None
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        thread = threading.Thread(target=self.run, name="streamgroups-request", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The process has no more threads.
            self.run()
        else:
            self._thread = thread

    def run(self) -> None:
        try:
            self._reply = self._send()
        except Exception as e:
            self._error = e

    def reply(self) -> Any:
        """Waits for the reply. Raises the error of the request."""
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self._reply


def _warned(reply: Any) -> Any:
    if isinstance(reply, _NoReply):
        logger.warning("A process of this Spark session does not respond: %s", reply.why)
        return None
    return reply


def _reply_of(path: Path, session: str, request: Any, timeout_s: float | None = None) -> Any:
    """Returns the reply of one process.

    ``None`` if the request is for another process, or the process no longer listens.
    """
    why = ""
    for _ in range(_ATTEMPTS):
        try:
            response = call(path, key_of(session).encode(), to_json(request), timeout_s or _RETRY_TIMEOUT_S)
            return from_json(response, Reply)
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
