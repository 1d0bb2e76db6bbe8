"""How processes of one Spark session find and ask each other: the source's, the sink's and the user's own.

Spark runs a query's source in one Python process, and each commit of its sink in another; neither knows of the other, but both
come from ``sg.register`` and so know the session's name. Who can answer listens on a Unix socket in a directory of that name; who asks, asks
all who listen there. All of them run on the driver's machine, as one user, whom
alone the directory lets in: so what comes may be unpickled. What is asked is in ``batch_facts``.
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
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from streamgroups.errors import StreamGroupsError

logger = logging.getLogger(__name__)

#: The address of a Unix socket has 104 bytes, or 108; what comes behind the directory of temporary files has less than 50.
_LONGEST = 54
#: An answer is a look into memory. Who takes longer is stopped or starved, and is as good as gone.
_PATIENCE_S = 10.0


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
                f"{directory} is not this user's own, or others may enter it.", remedy="Remove it, or set TMPDIR."
            )
    return mine / session


class Answering:
    """Listens in a session's directory and answers each question, one after the other, on a thread of its own.

    Args:
        session: whose.
        answer: makes the answer; ``None`` says that the question is for somebody else. A
            :class:`~streamgroups.errors.StreamGroupsError` is raised where it was asked.
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
        self._thread.join(_PATIENCE_S)
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
                    connection.settimeout(_PATIENCE_S)
                    self._reply(connection)
            except (OSError, EOFError, pickle.UnpicklingError) as e:
                logger.debug("Somebody who asked has gone: %s", e)

    def _reply(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as asked:
            question = pickle.load(asked)
        try:
            reply = self._answer(question)
        except StreamGroupsError as e:
            reply = e
        connection.sendall(cloudpickle.dumps(reply))


def _sweep(sessions: Path) -> None:
    """Removes what killed processes have left behind: nobody listens there."""
    for path in sessions.glob("*/*"):
        with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_PATIENCE_S)
            try:
                connection.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
                path.parent.rmdir()


def ask(session: str, question: Any) -> list[Any]:
    """What those who listen in a session answer; nothing of those for whom the question is not.

    Args:
        session: whose directory.
        question: anything that pickles; answers may be of classes of the user's own program.

    Raises:
        StreamGroupsError: what somebody's answer was.
    """
    answers = []
    for path in sorted(directory_of(session).glob("*")):
        try:
            answer = _asked(path, question)
        except ConnectionRefusedError:
            # Left behind by one that was killed.
            path.unlink(missing_ok=True)
            continue
        except (OSError, EOFError, pickle.UnpicklingError):
            continue
        if isinstance(answer, StreamGroupsError):
            raise answer
        if answer is not None:
            answers.append(answer)
    return answers


def _asked(path: Path, question: Any) -> Any:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PATIENCE_S)
        connection.connect(str(path))
        connection.sendall(cloudpickle.dumps(question))
        with connection.makefile("rb") as answered:
            return pickle.load(answered)
