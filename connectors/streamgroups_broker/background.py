"""Runs a broker in the background, and finds and stops it.

Used by ``streamgroups broker run|start|stop|status``. The serving process holds a file lock while it runs. The lock
shows whether it runs, because its process id could already belong to another process. Source: ``flock(2)``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from streamgroups.errors import EmbeddedBrokerError
from streamgroups_broker.embedded import EmbeddedKafka

_POLL_S = 0.1
_LOCK_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Running:
    """A broker in the background.

    Args:
        pid: the id of the serving process.
        bootstrap_servers: the address for clients.
        data_dir: the directory of its data and logs.
        cluster_id: Kafka's cluster id.
        version: the Kafka release.
        nodes: the number of nodes.
    """

    pid: int
    bootstrap_servers: str
    data_dir: str
    cluster_id: str
    version: str
    nodes: int


def serve(kafka: EmbeddedKafka, ready: Callable[[EmbeddedKafka], None], state: Path | None = None) -> None:
    """Starts a broker, and stops it in an orderly way at SIGINT, SIGTERM or SIGHUP.

    Args:
        kafka: the broker, not yet started.
        ready: called when it serves requests.
        state: the directory of its record, for `find` and `stop`. The process then leaves the session of its terminal.

    Raises:
        EmbeddedBrokerError: if it did not start, ended by itself, or another broker is recorded there.
    """
    with contextlib.ExitStack() as stack:
        if state is not None:
            with contextlib.suppress(PermissionError):  # it is already a session leader
                os.setsid()
            stack.enter_context(_recorded(state))
        stack.enter_context(_signals_raise())
        stack.callback(kafka.stop)
        # From here a second Ctrl-C must not interrupt the orderly stop.
        stack.callback(_ignore_signals)
        try:
            kafka.start()
            if state is not None:
                _write(state, kafka)
            ready(kafka)
            while True:
                kafka.require_running()
                time.sleep(_POLL_S)
        except _Asked:
            return


def launch(command: Sequence[str], state: Path, timeout_s: float) -> Running:
    """Runs a command that calls `serve` with this state directory, detached. Waits until its broker serves requests.

    Args:
        command: the command and its arguments.
        state: the state directory.
        timeout_s: the timeout in seconds. It includes the download of jars at the first use of a Kafka version.

    Raises:
        EmbeddedBrokerError: if a broker already runs there, or the new one did not start. The error contains its
            output.
    """
    already = find(state)
    if already is not None:
        raise EmbeddedBrokerError(
            f"A broker is already running: {already.bootstrap_servers}, process {already.pid}.",
            remedy="Stop it with: streamgroups broker stop.",
        )
    state.mkdir(parents=True, exist_ok=True)
    _state_file(state).unlink(missing_ok=True)
    output = state / "background.log"
    pid = _spawn(command, output)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        running = find(state)
        if running is not None:
            return running
        if _has_ended(pid):
            printed = output.read_text(encoding="utf-8", errors="replace").strip()
            raise EmbeddedBrokerError(printed.removeprefix("Error: ") or "The broker ended without an error message.")
        time.sleep(_POLL_S)
    os.kill(pid, signal.SIGTERM)
    raise EmbeddedBrokerError(f"The broker did not start within {timeout_s:.0f} s.", remedy=f"See {output}.")


def find(state: Path) -> Running | None:
    """Returns the broker that is recorded in a state directory. ``None`` if none is running."""
    try:
        with (state / "background.lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        with contextlib.suppress(OSError, ValueError, TypeError):
            return Running(**json.loads(_state_file(state).read_text(encoding="utf-8")))
    return None


def stop(state: Path, timeout_s: float = 20.0) -> Running | None:
    """Stops the broker that is recorded in a state directory: with SIGTERM, and after the timeout with SIGKILL.

    Returns:
        the stopped broker, or ``None``.
    """
    running = find(state)
    if running is None:
        return None
    for number, retry_timeout_s in ((signal.SIGTERM, timeout_s), (signal.SIGKILL, timeout_s)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(running.pid, number)
        deadline = time.monotonic() + retry_timeout_s
        while time.monotonic() < deadline:
            if find(state) is None:
                _has_ended(running.pid)
                _state_file(state).unlink(missing_ok=True)
                return running
            time.sleep(_POLL_S)
    raise EmbeddedBrokerError(f"Process {running.pid} does not end.", remedy="Inspect it with ps.")


class _Asked(BaseException):
    """A signal requested the stop of the serving process."""


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def _signals_raise() -> Iterator[None]:
    def request(number: int, frame: FrameType | None) -> None:
        raise _Asked(signal.Signals(number).name)

    before = {number: signal.signal(number, request) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def _recorded(state: Path) -> Iterator[None]:
    """Holds the lock of the state directory. Deletes the record at the end."""
    state.mkdir(parents=True, exist_ok=True)
    with (state / "background.lock").open("w") as lock:
        _lock(lock, state)
        try:
            yield
        finally:
            _state_file(state).unlink(missing_ok=True)


def _lock(lock: IO[str], state: Path) -> None:
    """Acquires the lock. `find` holds it for a moment to check it."""
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise EmbeddedBrokerError(
                    f"Another broker is recorded in {state}.", remedy="Stop it with: streamgroups broker stop."
                ) from error
            time.sleep(_POLL_S)


def _write(state: Path, kafka: EmbeddedKafka) -> None:
    running = Running(
        pid=os.getpid(),
        bootstrap_servers=kafka.bootstrap_servers,
        data_dir=str(kafka.data_dir),
        cluster_id=kafka.cluster_id,
        version=kafka.version,
        nodes=len(kafka.node_ids),
    )
    new = _state_file(state).with_suffix(".new")
    new.write_text(json.dumps(asdict(running)) + "\n", encoding="utf-8")
    os.replace(new, _state_file(state))


def _state_file(state: Path) -> Path:
    return state / "background.json"


def _spawn(command: Sequence[str], output: Path) -> int:
    """Starts a detached process with the import path of this one."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    redirect = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    try:
        return os.posix_spawn(command[0], list(command), environment, file_actions=redirect)
    except OSError as error:
        raise EmbeddedBrokerError(f"{command[0]} could not be started: {error}.") from error


def _has_ended(pid: int) -> bool:
    """Returns whether a child has ended, and reaps it. ``False`` for another process."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False
