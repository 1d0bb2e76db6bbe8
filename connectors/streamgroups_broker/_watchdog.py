"""Runs one command and ends it when the Python process that started it ends.

Started by ``_node`` as ``python -I -S _watchdog.py <settings as JSON>``, in its own session, so that Ctrl-C in a
terminal reaches only the parent. Its standard input is a pipe from the parent. Each line is a command (``pause``,
``resume``, ``term``, ``kill``), and the reply is ``ok``. The end of the pipe indicates that the parent has ended, for
any reason. A pipe works on every POSIX system. On Linux ``PR_SET_PDEATHSIG`` also ends the command if the watchdog
itself is killed. Source: ``prctl(2)``.

It uses only the standard library, without imports of its own package, because it must start in milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

_PR_SET_PDEATHSIG = 1
_PARENT_CHECK_S = 0.5
_COULD_NOT_START = 127


def main(settings: dict[str, Any]) -> int:
    """Runs ``settings["argv"]`` until the command or the parent ends. Returns the exit code of the command.

    Args:
        settings: ``argv`` (the command), ``output`` (file for its stdout and stderr, appended), ``parent_pid``,
            ``grace_s`` and ``remove``. ``grace_s`` is the time in seconds between SIGTERM and SIGKILL after the end of
            the parent, and 0 kills at once. ``remove`` is the directory to delete then, or null.
    """
    wakeup_read, wakeup_write = os.pipe()
    os.set_blocking(wakeup_write, False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _on_signal)
    signal.set_wakeup_fd(wakeup_write)
    try:
        with open(settings["output"], "ab") as output:
            child = subprocess.Popen(
                settings["argv"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=_die_with_parent(),
            )
    except OSError as error:
        _write_line(f"failed {error}")
        return _COULD_NOT_START
    _write_line(f"pid {child.pid}")
    parent_left = _serve(child, wakeup_read, int(settings["parent_pid"]))
    if parent_left:
        _end(child, float(settings["grace_s"]))
        _remove(settings["remove"])
    code = child.wait()
    return code if code >= 0 else 128 - code


def _serve(child: subprocess.Popen[bytes], wakeup_read: int, parent_pid: int) -> bool:
    """Executes commands of the parent. Returns whether the parent ended before the child."""
    buffer = b""
    while child.poll() is None:
        ready, _, _ = select.select([0, wakeup_read], [], [], _PARENT_CHECK_S)
        if wakeup_read in ready and any(number != signal.SIGCHLD for number in os.read(wakeup_read, 64)):
            return True
        # A fork of the parent without exec can hold the pipe open. Then only the parent's process id shows its end.
        if os.getppid() != parent_pid:
            return True
        if 0 not in ready:
            continue
        received = os.read(0, 4096)
        if not received:
            return True
        *lines, buffer = (buffer + received).split(b"\n")
        for line in lines:
            _apply(child, line.decode())
    return False


def _apply(child: subprocess.Popen[bytes], command: str) -> None:
    """Sends the signals of a command, and replies."""
    for number in {
        "pause": [signal.SIGSTOP],
        "resume": [signal.SIGCONT],
        "term": [signal.SIGTERM, signal.SIGCONT],
        "kill": [signal.SIGKILL],
    }[command]:
        child.send_signal(number)
    _write_line("ok")


def _write_line(line: str) -> None:
    """Writes a line to the parent, if the pipe is still open."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, f"{line}\n".encode())


def _end(child: subprocess.Popen[bytes], grace_s: float) -> None:
    if grace_s > 0:
        child.send_signal(signal.SIGTERM)
        child.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + grace_s
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
    child.kill()
    child.wait()


def _remove(directory: str | None) -> None:
    """Deletes the directory of a node. The watchdog of the last node deletes that of the cluster."""
    if directory is None:
        return
    shutil.rmtree(directory, ignore_errors=True)
    cluster = os.path.dirname(directory)
    with contextlib.suppress(OSError):
        if not any(entry.is_dir() for entry in os.scandir(cluster)):
            shutil.rmtree(cluster, ignore_errors=True)


def _die_with_parent() -> Callable[[], None] | None:
    """Returns a function for the child between fork and exec. On Linux it requests SIGKILL at the end of this process."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None
    return lambda: prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _on_signal(number: int, frame: object) -> None:
    """Does nothing: the wakeup descriptor passes the signal number to the loop."""


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
