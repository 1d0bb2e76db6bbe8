"""The watchdog follows its commands, reports, and ends its command when the parent is gone. The command here is ``sleep``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streamgroups.errors import EmbeddedBrokerError
from streamgroups_broker._node import Node, await_ready


def eventually(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def make_node(directory: Path, *command: str, temporary: bool = False) -> Node:
    directory.mkdir(parents=True, exist_ok=True)
    return Node(1, directory, command, temporary=temporary, lock_fd=sys.__stderr__.fileno())  # type: ignore[union-attr]


def test_killing_ends_the_command(tmp_path: Path) -> None:
    node = make_node(tmp_path, "sleep", "100")
    node.spawn()
    assert node.pid is not None
    assert alive(node.pid)
    node.kill()
    node.kill()
    assert not node.running
    assert not alive(node.pid)


def test_a_killed_temporary_node_keeps_its_folder_for_the_next_start(tmp_path: Path) -> None:
    node = make_node(tmp_path / "node-1", "sleep", "100", temporary=True)
    for _ in range(3):
        node.spawn()
        node.kill()
    assert node.output.exists()


def test_a_paused_command_can_be_terminated(tmp_path: Path) -> None:
    node = make_node(tmp_path, "sleep", "100")
    node.spawn()
    assert node.pid is not None
    node.pause()
    node.resume()
    node.pause()
    node.terminate()
    node.join(time.monotonic() + 10)
    assert not alive(node.pid)
    with pytest.raises(EmbeddedBrokerError, match="Node 1 is not running"):
        node.pause()


def test_a_command_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    node = make_node(tmp_path, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    node.spawn()
    eventually(lambda: "ready" in node.tail())
    node.terminate()
    node.join(time.monotonic() + 0.3)
    assert not node.running


def test_a_command_that_dies_is_reported_with_its_last_words(tmp_path: Path) -> None:
    node = make_node(tmp_path, "sh", "-c", "echo no such luck; exit 3")
    node.spawn()
    with pytest.raises(EmbeddedBrokerError, match=r"died \(exit code 3\).*\n *no such luck"):
        await_ready([node], 10)
    node.kill()


def test_a_command_that_never_gets_ready_runs_into_the_deadline(tmp_path: Path) -> None:
    node = make_node(tmp_path, "sleep", "100")
    node.spawn()
    with pytest.raises(EmbeddedBrokerError, match="did not start within 0 s"):
        await_ready([node], 0.1)
    node.kill()


def test_a_missing_command_is_an_error(tmp_path: Path) -> None:
    node = make_node(tmp_path, str(tmp_path / "nothing"))
    with pytest.raises(EmbeddedBrokerError, match=r"could not be started: .*nothing"):
        node.spawn()


PARENT = """
import sys, time
from pathlib import Path
from streamgroups_broker._node import Node
node = Node(1, Path(sys.argv[1]), ["sleep", "100"], temporary=True, lock_fd=2)
node.spawn()
print(node.pid, flush=True)
time.sleep(100)
"""


def test_kill_9_of_the_parent_ends_the_command_and_removes_its_folder(tmp_path: Path) -> None:
    directory = tmp_path / "cluster" / "node-1"
    directory.mkdir(parents=True)
    (directory.parent / "cluster.json").touch()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(directory)], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.send_signal(signal.SIGKILL)
    eventually(lambda: not alive(pid))
    eventually(lambda: not directory.parent.exists())
