"""One node of an embedded cluster: a JVM under a watchdog.

Used by ``_prepare`` and ``embedded``. All signals pass through the watchdog (``_watchdog``), which is the parent of the
JVM and has not reaped it yet. Its process id therefore cannot belong to another process. Source: POSIX, ``waitpid``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from streamgroups.errors import EmbeddedBrokerError
from streamgroups_broker._jvm import STARTED
from streamgroups_broker._ports import port_taken

_ANSWER_TIMEOUT_S = 20.0
_POLL_S = 0.02
_ORPHAN_GRACE_S = 10.0
_SHOWN_LINES = 15


class Node:
    """A node that can be started, stopped, killed, paused and restarted.

    Args:
        node_id: Kafka's node.id.
        directory: the directory of the node.
        command: the command to run.
        temporary: whether the watchdog deletes the directory if this process ends.
        lock_fd: the file descriptor of the data directory's lock, which the watchdog inherits.
    """

    def __init__(self, node_id: int, directory: Path, command: Sequence[str], *, temporary: bool, lock_fd: int) -> None:
        self.node_id = node_id
        self.log = directory / "broker.log"
        self.output = directory / "stdout.log"
        self._directory = directory
        self._command = list(command)
        self._temporary = temporary
        self._lock_fd = lock_fd
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        #: The process id of the JVM of the latest start.
        self.pid: int | None = None

    @property
    def running(self) -> bool:
        """Whether the JVM runs. A paused JVM also runs."""
        return self._watchdog is not None and self._watchdog.poll() is None

    def spawn(self) -> None:
        """Starts the JVM. `ready` reports when it serves requests.

        Raises:
            EmbeddedBrokerError: if it could not be started.
        """
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        settings = {
            "argv": self._command,
            "output": str(self.output),
            "parent_pid": os.getpid(),
            "grace_s": 0 if self._temporary else _ORPHAN_GRACE_S,
            "remove": str(self._directory) if self._temporary else None,
        }
        watchdog = Path(__file__).with_name("_watchdog.py")
        try:
            self._watchdog = subprocess.Popen(
                [sys.executable, "-I", "-S", str(watchdog), json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
                pass_fds=(self._lock_fd,),
            )
        except OSError as error:
            raise EmbeddedBrokerError(f"Node {self.node_id} could not be started: {error}.") from error
        answer = self._answer()
        if not answer.startswith("pid "):
            self._close()
            raise EmbeddedBrokerError(
                f"Node {self.node_id} could not be started: {answer or 'its watchdog died'}.", remedy="Check JAVA_HOME."
            )
        self.pid = int(answer.split()[1])

    def ready(self) -> bool:
        """Returns whether the node serves requests since its latest start.

        Raises:
            EmbeddedBrokerError: if the JVM has ended. The message ends with the last lines of its log.
        """
        if not self.running:
            raise self.died()
        return STARTED in self._log_since_start()

    def died(self) -> EmbeddedBrokerError:
        """Creates the error for a node that ended by itself."""
        taken = port_in_use(self._log_since_start().decode(errors="replace"))
        if taken is not None:
            return port_taken(taken)
        code = self._watchdog.returncode if self._watchdog is not None else None
        return EmbeddedBrokerError(
            f"Node {self.node_id} of the embedded broker died (exit code {code}). The last lines of its log:\n{self.tail()}\n",
            remedy=f"The whole log is {self.log}." if not self._temporary else "",
        )

    def tail(self) -> str:
        """Returns the last lines of the output and the log of the JVM."""
        lines: deque[str] = deque(maxlen=_SHOWN_LINES)
        for path in (self.output, self.log):
            with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
                lines.extend(f"    {line.rstrip()}" for line in file)
        return "\n".join(lines) or "    (it wrote nothing)"

    def pause(self) -> None:
        """Pauses the JVM (SIGSTOP). It keeps its connections and does not respond."""
        self._order("pause")

    def resume(self) -> None:
        """Resumes a paused JVM (SIGCONT)."""
        self._order("resume")

    def terminate(self) -> None:
        """Terminates the JVM (SIGTERM), also a paused one."""
        if self.running:
            self._order("term")

    def kill(self) -> None:
        """Kills the JVM (SIGKILL) and waits for its end. Idempotent."""
        if self._watchdog is None:
            return
        if self.running:
            with contextlib.suppress(EmbeddedBrokerError):
                self._order("kill")
        self._close()

    def join(self, deadline: float) -> None:
        """Waits until a deadline of ``time.monotonic()`` for the end of a terminated JVM. Then kills it."""
        if self._watchdog is not None and self._watchdog.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._watchdog.wait(max(0.0, deadline - time.monotonic()))
        self.kill()

    def _order(self, command: str) -> None:
        """Sends a command to the watchdog and waits for its execution."""
        if self._watchdog is None or not self.running:
            raise EmbeddedBrokerError(f"Node {self.node_id} is not running.", remedy="Start it with restart_node().")
        assert self._watchdog.stdin is not None
        try:
            self._watchdog.stdin.write(f"{command}\n".encode())
        except BrokenPipeError:
            return
        self._answer()

    def _answer(self) -> str:
        """Returns one line from the watchdog. Empty if it has ended."""
        assert self._watchdog is not None
        assert self._watchdog.stdout is not None
        deadline, received = time.monotonic() + _ANSWER_TIMEOUT_S, b""
        while not received.endswith(b"\n"):
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0 or not select.select([self._watchdog.stdout], [], [], remaining_s)[0]:
                raise EmbeddedBrokerError(
                    f"The watchdog of node {self.node_id} did not respond.", remedy="Stop the broker."
                )
            byte = self._watchdog.stdout.read(1)
            if not byte:
                break
            received += byte
        return received.decode(errors="replace").strip()

    def _close(self) -> None:
        """Waits for the watchdog and then closes its pipes.

        A pipe that is closed earlier indicates the end of this process.
        """
        watchdog = self._watchdog
        assert watchdog is not None
        assert watchdog.stdin is not None
        assert watchdog.stdout is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            watchdog.wait(_ANSWER_TIMEOUT_S)
        watchdog.stdin.close()
        try:
            watchdog.wait(_ORPHAN_GRACE_S + _ANSWER_TIMEOUT_S)
        except subprocess.TimeoutExpired:  # pragma: no cover - the kernel does not end it
            watchdog.kill()
            watchdog.wait()
        watchdog.stdout.close()

    def _log_since_start(self) -> bytes:
        try:
            with self.log.open("rb") as file:
                file.seek(self._log_start)
                return file.read()
        except OSError:
            return b""


def await_ready(nodes: Sequence[Node], timeout_s: float) -> None:
    """Waits until all nodes serve requests.

    Raises:
        EmbeddedBrokerError: if a node ended, or after the timeout. The message ends with the last lines of its log.
    """
    deadline = time.monotonic() + timeout_s
    waiting = list(nodes)
    while waiting := [node for node in waiting if not node.ready()]:
        if time.monotonic() > deadline:
            slow = waiting[0]
            raise EmbeddedBrokerError(
                f"Node {slow.node_id} did not start within {timeout_s:.0f} s. The last lines of its log:\n{slow.tail()}\n",
                remedy="Increase start_timeout_s.",
            )
        time.sleep(_POLL_S)


def port_in_use(log: str) -> int | None:
    """Returns the port that a broker could not bind, from its log. ``None`` without such a message.

    >>> port_in_use("KafkaException: Socket server failed to bind to 127.0.0.1:9092: Address already in use.")
    9092
    >>> port_in_use("all is well") is None
    True
    """
    found = re.search(r"failed to bind to \S*?:(\d+)", log)
    return int(found.group(1)) if found else None
