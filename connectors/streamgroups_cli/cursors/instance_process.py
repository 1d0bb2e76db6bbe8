"""The process of an instance: it joins a group, and serves the commands that have a cursor of it.

``cursors create`` starts it (:func:`launch`) and ends as soon as the instance has joined. It has no terminal and prints
nothing. It ends when a command requests it to leave, or when the last cursor it returned has expired. If the lease of
the instance expires (SEMANTICS G6), the instance leaves its group long before that, and the process remains to report
it. After SIGTERM it leaves the group. Its settings arrive through a pipe: they contain secrets, which all users could
read on a command line.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamgroups.cursors.cursor_tokens import LIFETIME_MS, GroupCursor, decode
from streamgroups.errors import StreamGroupsError, error_of
from streamgroups_cli.cursors import opening
from streamgroups_cli.cursors.paths import instances
from streamgroups_cli.cursors.requests import TIMEOUT_S, connection_key
from streamgroups_spark.bridge.dataclass_json import to_json
from streamgroups_spark.bridge.sockets import Server

if TYPE_CHECKING:
    from streamgroups_kafka.cursors.group_cursors import GroupCursors

_POLL_S = 0.5
#: Without the working directory on the path: Python 3.10 ignores PYTHONSAFEPATH.
_START = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; "
    "from streamgroups_cli.cursors.instance_process import main; main()"
)


@dataclass(frozen=True, slots=True)
class Job:
    """The settings of an instance's process.

    Args:
        bootstrap_servers: the cluster.
        settings: the settings of the connection.
        key: the key that signs its cursors, in hexadecimal.
        instance_request: the arguments of ``create_group_cursor``.
    """

    bootstrap_servers: str
    # Two fields contain secrets, which must not be printed.
    settings: dict[str, str] = field(repr=False)
    key: str = field(repr=False)
    instance_request: dict[str, Any]


def launch(job: Job) -> str:
    """Starts the process of an instance, and waits until it has joined.

    Returns:
        Its first cursor.

    Raises:
        StreamGroupsError: why it could not join. No process remains.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", _START],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Its import path is that of this process, without the current directory.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONSAFEPATH": "1"},
    )
    reply, error = process.communicate(json.dumps(asdict(job)))
    if not reply:
        raise StreamGroupsError(_last_line(error))
    answer = json.loads(reply)
    if "error" in answer:
        raise error_of(answer["error"])
    return str(answer["cursor"])


def _last_line(error: str) -> str:
    return f"The process of the instance ended: {(error.strip() or 'without a message').splitlines()[-1]}"


def main() -> None:
    """Runs the process of an instance: settings on standard input, first cursor or an error on standard output."""
    # The parent ends at once, so that no process has to wait for the child.
    if os.fork():
        os._exit(0)
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        run(Job(**json.loads(sys.stdin.read())), _send_first_line)
    except StreamGroupsError as e:
        print(json.dumps({"error": e.document}), flush=True)


def _send_first_line(cursor: str) -> None:
    """Prints the first cursor, and closes the pipe to the parent."""
    print(json.dumps({"cursor": cursor}), flush=True)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def run(job: Job, ready: Callable[[str], None]) -> None:
    """Joins, serves requests until the instance ends, and leaves.

    Args:
        job: the settings.
        ready: called with the first cursor when it can be used.
    """
    key = bytes.fromhex(job.key)
    with opening.open_cursors(job.bootstrap_servers, job.settings, key) as cursors:
        cursor = cursors.create_group_cursor(**job.instance_request)
        claims = decode(cursor, key, now_ms=0)
        assert isinstance(claims, GroupCursor)
        with _address(claims.session) as address:
            server = InstanceServer(address, key, cursors)
            ready(cursor)
            server.serve()


@contextmanager
def _address(session: str) -> Iterator[Path]:
    """Creates the path of a socket, which must be short, in its own directory, and a link to it for the commands."""
    directory = Path(tempfile.mkdtemp(prefix="streamgroups-"))
    link = instances() / session
    try:
        address = directory / "socket"
        link.symlink_to(address)
        yield address
    finally:
        link.unlink(missing_ok=True)
        shutil.rmtree(directory, ignore_errors=True)


class InstanceServer:
    """Serves requests with cursors of one instance.

    Each request has a thread of its own, so that a heartbeat waits for no other request.

    Args:
        address: the path of its socket.
        key: the key that signs its cursors.
        cursors: the cursors of the instance.
    """

    def __init__(self, address: Path, key: bytes, cursors: GroupCursors) -> None:
        self._cursors = cursors
        self._left = threading.Event()
        self._answered_s = time.monotonic()
        self._server = Server(address, connection_key(key), self._respond, TIMEOUT_S)

    def serve(self) -> None:
        """Serves requests until the instance was requested to leave, or every cursor has expired."""
        try:
            while not self._left.wait(_POLL_S) and time.monotonic() - self._answered_s < LIFETIME_MS / 1000:
                pass
        finally:
            self._server.close()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Returns the response to one request: ``do`` is the command, ``cursor`` its cursor."""
        response = self._do(request["do"], request["cursor"], request.get("limit"))
        self._answered_s = time.monotonic()
        return response

    def end(self) -> None:
        """Makes :meth:`serve` return after the responses in progress."""
        self._left.set()

    def _respond(self, request: dict[str, Any]) -> dict[str, Any]:
        response = self.answer(request)
        if request["do"] == "leave":
            self.end()
        return response

    def _do(self, what: str, cursor: str, limit: int | None) -> dict[str, Any]:
        match what:
            case "get":
                messages, after = self._cursors.get_messages(cursor, limit)
                return {"cursor": after, "messages": [to_json(message) for message in messages]}
            case "heartbeat":
                return {"cursor": self._cursors.consumer_heartbeat(cursor)}
            case "commit":
                return {"cursor": self._cursors.consumer_commit(cursor)}
            case "leave":
                self._cursors.leave_group(cursor)
                return {}
        raise StreamGroupsError(
            f"An instance does not support the request {what!r}.",
            remedy="Use the same version of streamgroups for all instances on this machine.",
        )
