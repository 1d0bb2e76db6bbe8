"""Driver RPC: requests between the processes of one Spark session on the driver's machine.

Spark runs the source of a query in one Python process, and each commit of its sink in another. These processes have no
connection, but both receive the session id from ``sg.register``. A server listens on a Unix socket in a directory with
this name, and a caller sends its request to all servers there. All processes belong to one user, and only this user can
enter the directory. Requests may therefore be unpickled. Used by ``source.running_query``, ``sinks`` and ``ops``.
``source.batch_messages`` defines the messages. Source: ``unix(7)``.
"""

from __future__ import annotations

import logging
import os
import pickle
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

from pyspark import cloudpickle
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from streamgroups.errors import StreamGroupsError

logger = logging.getLogger(__name__)

#: The address of a Unix socket has 104 or 108 bytes. The part after the directory of temporary files has less than 50.
_LONGEST = 54
#: A reply only reads memory. A process that takes longer is stopped or starved.
_RETRY_TIMEOUT_S = 10.0
#: A listener that closes a connection is itself being closed, and then the next connection fails. Otherwise a retry
#: gets the reply.
_ATTEMPTS = 3


#: Another process that leaves the session last, or sweeps it, can remove its directory at the same time.
_again = retry(retry=retry_if_exception_type(FileNotFoundError), stop=stop_after_attempt(5), reraise=True)


@_again
def directory_of(session: str) -> Path:
    """Returns the directory of the sockets of a session, which only this user can enter.

    Args:
        session: the session id from ``sg.register``.

    Raises:
        StreamGroupsError: if another user owns the directory or can enter it.
    """
    temporary = tempfile.gettempdir()
    mine = Path(temporary if len(temporary) <= _LONGEST else "/tmp") / f"streamgroups-{os.getuid()}"
    for directory in (mine, mine / session):
        directory.mkdir(mode=0o700, exist_ok=True)
        status = directory.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise StreamGroupsError(
                f"{directory} belongs to another user, or other users can access it.",
                remedy="Remove it, or set TMPDIR to another directory.",
            )
    return mine / session


class Answering:
    """Listens in the directory of a session and answers requests one by one, on its own thread.

    Args:
        session: the session id.
        answer: returns the reply. ``None``: the request is for another process. Its exceptions, and a reply that cannot
            be pickled, are raised by the caller as a :class:`~streamgroups.errors.StreamGroupsError`.
    """

    def __init__(self, session: str, answer: Callable[[Any], Any]) -> None:
        self._answer, self._closed = answer, False
        _sweep(directory_of(session).parent)
        self._socket = socket.socket(socket.AF_UNIX)
        self._path = self._bind(session)
        self._socket.listen()
        self._thread = threading.Thread(target=self._run, name="streamgroups-rendezvous", daemon=True)
        self._thread.start()

    @_again
    def _bind(self, session: str) -> Path:
        path = directory_of(session) / uuid.uuid4().hex[:12]
        self._socket.bind(str(path))
        return path

    def close(self) -> None:
        """Stops the server. Idempotent."""
        if self._closed:
            return
        self._closed = True
        # Only a connection wakes a thread in ``accept``.
        with suppress(OSError), socket.socket(socket.AF_UNIX) as waker:
            waker.connect(str(self._path))
        self._thread.join(_RETRY_TIMEOUT_S)
        self._socket.close()
        self._path.unlink(missing_ok=True)
        # The last server of a session removes its directory.
        with suppress(OSError):
            self._path.parent.rmdir()

    def _run(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._socket.accept()
                with connection:
                    connection.settimeout(_RETRY_TIMEOUT_S)
                    self._reply(connection)
            except OSError as e:
                logger.debug("The process that sent a request has ended: %s", e)

    def _reply(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as asked:
            try:
                question = pickle.load(asked)
            except (OSError, EOFError) as e:
                logger.debug("A connection sent no request: %s", e)
                return
            except Exception as e:
                reply = _failure(e)
            else:
                reply = self._answer_to(question)
        connection.sendall(reply)

    def _answer_to(self, question: Any) -> bytes:
        """Returns each exception as a reply: this thread must continue, and the caller must receive the error."""
        try:
            return _pickled(self._answer(question))
        except StreamGroupsError as e:
            return _pickled(e)
        except Exception as e:
            return _failure(e)


def _failure(exception: Exception) -> bytes:
    logger.warning("A request of another process of the Spark session failed", exc_info=exception)
    return _pickled(
        StreamGroupsError(
            f"Process {os.getpid()} of the Spark session failed to handle a request "
            f"({type(exception).__name__}: {exception}).",
            remedy=(
                "Its log contains the traceback. Create objects that cannot be pickled, such as open "
                "connections, in the process that uses them."
            ),
        )
    )


def _pickled(what: object) -> bytes:
    pickled: bytes = cloudpickle.dumps(what)
    return pickled


def _sweep(sessions: Path) -> None:
    """Removes sockets of killed processes, on which no process listens."""
    for path in sessions.glob("*/*"):
        with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_RETRY_TIMEOUT_S)
            try:
                connection.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
                path.parent.rmdir()


@dataclass(frozen=True, slots=True)
class _NoAnswer:
    """A process listens, but its reply is unusable."""

    why: str


def ask(session: str, question: Any, *, needs_all: bool = False) -> list[Any]:
    """Calls the processes that listen in a session, and returns their replies.

    Args:
        session: the session id.
        question: the request, any object that can be pickled. Replies can be of classes of the user's program.
        needs_all: whether a listening process without a reply is an error, unless another process replies.

    Returns:
        All replies except ``None``.

    Raises:
        StreamGroupsError: if a process replied with one. With ``needs_all`` also if a process did not reply.
    """
    answers, silent = [], []
    for path in sorted(directory_of(session).glob("*")):
        answer = _answer_of(path, question)
        if isinstance(answer, StreamGroupsError):
            raise answer
        if isinstance(answer, _NoAnswer):
            silent.append(answer.why)
            logger.warning("A process of this Spark session does not respond: %s", answer.why)
        elif answer is not None:
            answers.append(answer)
    if needs_all and silent and not answers:
        raise StreamGroupsError(
            f"A process of this Spark session does not respond: {silent[0]}.",
            remedy=(
                "The process is stopped, overloaded or hangs. Start the query again. If that fails too, "
                "restart the Spark session."
            ),
        )
    return answers


def _answer_of(path: Path, question: Any) -> Any:
    """Returns the reply of one process.

    ``None`` if the request is for another process, or the process no longer listens.
    """
    why = ""
    for _ in range(_ATTEMPTS):
        try:
            return _asked(path, question)
        except ConnectionRefusedError:
            # The socket of a killed process.
            path.unlink(missing_ok=True)
            return None
        except FileNotFoundError:
            return None
        except TimeoutError:
            return _NoAnswer(f"no response from {path.name} within {_RETRY_TIMEOUT_S:g} s")
        except (OSError, EOFError, pickle.UnpicklingError) as e:
            why = f"{path.name} closed the connection ({type(e).__name__}: {e})"
        except Exception as e:
            return _NoAnswer(f"the response of {path.name} cannot be read ({type(e).__name__}: {e})")
    return _NoAnswer(why)


def _asked(path: Path, question: Any) -> Any:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_RETRY_TIMEOUT_S)
        connection.connect(str(path))
        connection.sendall(_pickled(question))
        with connection.makefile("rb") as answered:
            return pickle.load(answered)
