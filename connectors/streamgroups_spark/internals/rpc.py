"""How processes of one Spark session find and ask each other: the source's, the sink's and the user's own.

Spark runs a query's source in one Python process, and each commit of its sink in another; neither knows of the other, but both
come from ``sg.register`` and so know the session's name. Who can answer listens on a Unix socket in a directory of that name; who asks, asks
all who listen there. All of them run on the driver's machine, as one user, whom
alone the directory lets in: so what comes may be unpickled. What is asked is in ``batch_messages``.
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

#: The address of a Unix socket has 104 bytes, or 108; what comes behind the directory of temporary files has less than 50.
_LONGEST = 54
#: An answer takes a look into memory. A process that takes longer is stopped or starved.
_RETRY_TIMEOUT_S = 10.0
#: A listener that breaks a connection off is closing, so the next connection fails; or it answers then.
_ATTEMPTS = 3


#: Whoever leaves a session last, or sweeps it, may just be removing its directory.
_again = retry(retry=retry_if_exception_type(FileNotFoundError), stop=stop_after_attempt(5), reraise=True)


@_again
def directory_of(session: str) -> Path:
    """Where the sockets of a session are; only this user may enter it.

    Args:
        session: the name that ``sg.register`` has given it.

    Raises:
        StreamGroupsError: if somebody else has made the directory.
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
    """Listens in a session's directory and answers each question, one after the other, on a thread of its own.

    Args:
        session: whose.
        answer: makes the answer; ``None`` says that the question is for another process. Any exception of it, and an answer that
            does not pickle, is raised where it was asked, as a :class:`~streamgroups.errors.StreamGroupsError`.
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
        """Answers nobody any more. Idempotent."""
        if self._closed:
            return
        self._closed = True
        # Nothing else wakes a thread that waits for somebody to connect.
        with suppress(OSError), socket.socket(socket.AF_UNIX) as waker:
            waker.connect(str(self._path))
        self._thread.join(_RETRY_TIMEOUT_S)
        self._socket.close()
        self._path.unlink(missing_ok=True)
        # The last one leaves nothing behind.
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
        """Any exception is an answer: this thread must live, and the process that sent the question must hear of it."""
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
    """Removes what killed processes have left behind: nobody listens there."""
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
    """A process listens, and what it answers cannot be used."""

    why: str


def ask(session: str, question: Any, *, needs_all: bool = False) -> list[Any]:
    """The answers of the processes that listen in a session.

    Args:
        session: whose directory.
        question: anything that pickles; answers may be of classes of the user's own program.
        needs_all: whether a process that listens and does not answer is an error, unless another one has the answer.

    Returns:
        The answers, without those of processes for which the question is not.

    Raises:
        StreamGroupsError: the answer of a process was one; or, with ``needs_all``, a process did not answer.
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
    """One process's answer; ``None`` if the question is not for it or it does not listen any more."""
    why = ""
    for _ in range(_ATTEMPTS):
        try:
            return _asked(path, question)
        except ConnectionRefusedError:
            # Left behind by one that was killed.
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
