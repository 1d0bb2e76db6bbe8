"""One node of an embedded cluster: a JVM behind a watchdog.

Used by ``streamgroups_broker.embedded``. All signals go through the watchdog (``_watchdog.py``), which owns the JVM and
has not reaped it yet: a process id can never belong to somebody else by then.
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
    """A node that can be started, stopped, killed, paused and started again.

    Args:
        node_id: Kafka's node.id.
        directory: the node's folder.
        command: what to run.
        temporary: whether the watchdog deletes the folder if this process dies.
        lock_fd: descriptor of the data directory's lock, which the watchdog holds on to.
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
        #: Process id of the JVM of the latest start.
        self.pid: int | None = None

    @property
    def running(self) -> bool:
        """Whether the JVM lives (a paused one does)."""
        return self._watchdog is not None and self._watchdog.poll() is None

    def spawn(self) -> None:
        """Start the JVM; `ready` tells when it serves.

        Raises:
            EmbeddedBrokerError: it could not be started.
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
        """Whether the node serves requests since its latest start.

        Raises:
            EmbeddedBrokerError: it has died; the message ends with the last lines of its log.
        """
        if not self.running:
            raise self.died()
        return STARTED in self._log_since_start()

    def died(self) -> EmbeddedBrokerError:
        """The error for a node that died by itself."""
        taken = port_in_use(self._log_since_start().decode(errors="replace"))
        if taken is not None:
            return port_taken(taken)
        code = self._watchdog.returncode if self._watchdog is not None else None
        return EmbeddedBrokerError(
            f"Node {self.node_id} of the embedded broker died (exit code {code}). The last lines of its log:\n{self.tail()}\n",
            remedy=f"The whole log is {self.log}." if not self._temporary else "",
        )

    def tail(self) -> str:
        """The last lines of what the JVM printed and logged."""
        lines: deque[str] = deque(maxlen=_SHOWN_LINES)
        for path in (self.output, self.log):
            with contextlib.suppress(OSError), path.open(errors="replace") as file:
                lines.extend(f"    {line.rstrip()}" for line in file)
        return "\n".join(lines) or "    (it wrote nothing)"

    def pause(self) -> None:
        """Freeze the JVM (SIGSTOP): it keeps its connections and answers nothing."""
        self._order("pause")

    def resume(self) -> None:
        """Let a paused JVM go on (SIGCONT)."""
        self._order("resume")

    def terminate(self) -> None:
        """Ask the JVM to stop (SIGTERM), paused or not."""
        if self.running:
            self._order("term")

    def kill(self) -> None:
        """End the JVM at once (SIGKILL) and wait for it. Harmless when it has ended."""
        if self._watchdog is None:
            return
        if self.running:
            with contextlib.suppress(EmbeddedBrokerError):
                self._order("kill")
        self._close()

    def join(self, deadline: float) -> None:
        """Wait for a terminated JVM until a point of ``time.monotonic()``; then kill it."""
        if self._watchdog is not None and self._watchdog.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._watchdog.wait(max(0.0, deadline - time.monotonic()))
        self.kill()

    def _order(self, command: str) -> None:
        """Send the watchdog a command and wait until it was carried out."""
        if self._watchdog is None or not self.running:
            raise EmbeddedBrokerError(f"Node {self.node_id} is not running.", remedy="Start it with restart_node().")
        assert self._watchdog.stdin is not None
        try:
            self._watchdog.stdin.write(f"{command}\n".encode())
        except BrokenPipeError:
            return
        self._answer()

    def _answer(self) -> str:
        """One line from the watchdog; empty when it has ended."""
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
        """Wait for the watchdog, then close its pipes: closed any earlier, they would tell it that we are gone."""
        watchdog = self._watchdog
        assert watchdog is not None
        assert watchdog.stdin is not None
        assert watchdog.stdout is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            watchdog.wait(_ANSWER_TIMEOUT_S)
        watchdog.stdin.close()
        try:
            watchdog.wait(_ORPHAN_GRACE_S + _ANSWER_TIMEOUT_S)
        except subprocess.TimeoutExpired:  # pragma: no cover - the kernel does not let go of it
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
    """Wait until all nodes serve requests.

    Raises:
        EmbeddedBrokerError: one died, or the time was up; with the last lines of its log.
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
    """The port that a broker's log says it could not bind, or None.

    >>> port_in_use("KafkaException: Socket server failed to bind to 127.0.0.1:9092: Address already in use.")
    9092
    >>> port_in_use("all is well") is None
    True
    """
    found = re.search(r"failed to bind to \S*?:(\d+)", log)
    return int(found.group(1)) if found else None
