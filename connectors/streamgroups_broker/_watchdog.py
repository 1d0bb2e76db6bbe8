"""Runs one command and makes sure that it never outlives the Python process that asked for it.

Started by ``streamgroups_broker._node`` as ``python -I -S _watchdog.py <settings as JSON>``, in a session of its own, so
that Ctrl-C in a terminal reaches the parent only. Its standard input is a pipe from the parent: lines are commands
(``pause``, ``resume``, ``term``, ``kill``; each is answered by ``ok``), and its end means that the parent is gone, however
it died. A pipe works on every POSIX system; on Linux the command is additionally tied to this process with
``PR_SET_PDEATHSIG`` (prctl(2)), for the case that somebody kills the watchdog itself.

Standard library only, and no import of its own package: it must start in milliseconds.
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
    """Run ``settings["argv"]`` until it ends or the parent does; the exit code is the command's own.

    Args:
        settings: ``argv`` (the command), ``output`` (file for its stdout and stderr, appended), ``parent_pid``,
            ``grace_s`` (seconds between SIGTERM and SIGKILL once the parent is gone; 0 kills at once) and ``remove``
            (directory deleted when the parent is gone, or null).
    """
    wakeup_read, wakeup_write = os.pipe()
    os.set_blocking(wakeup_write, False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _take_note)
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
        _say(f"failed {error}")
        return _COULD_NOT_START
    _say(f"pid {child.pid}")
    parent_left = _serve(child, wakeup_read, int(settings["parent_pid"]))
    if parent_left:
        _end(child, float(settings["grace_s"]))
        _remove(settings["remove"])
    code = child.wait()
    return code if code >= 0 else 128 - code


def _serve(child: subprocess.Popen[bytes], wakeup_read: int, parent_pid: int) -> bool:
    """Obey the parent until the child ends (False) or the parent does (True)."""
    buffer = b""
    while child.poll() is None:
        ready, _, _ = select.select([0, wakeup_read], [], [], _PARENT_CHECK_S)
        if wakeup_read in ready and any(number != signal.SIGCHLD for number in os.read(wakeup_read, 64)):
            return True
        # A process forked (not executed) by the parent may hold the pipe open: then only the parent's id tells.
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
    """Send the signals a command stands for, and answer."""
    for number in {
        "pause": [signal.SIGSTOP],
        "resume": [signal.SIGCONT],
        "term": [signal.SIGTERM, signal.SIGCONT],
        "kill": [signal.SIGKILL],
    }[command]:
        child.send_signal(number)
    _say("ok")


def _say(line: str) -> None:
    """Tell the parent, if it still listens."""
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
    """Delete a node's directory; the last node's watchdog deletes the cluster's."""
    if directory is None:
        return
    shutil.rmtree(directory, ignore_errors=True)
    cluster = os.path.dirname(directory)
    with contextlib.suppress(OSError):
        if not any(entry.is_dir() for entry in os.scandir(cluster)):
            shutil.rmtree(cluster, ignore_errors=True)


def _die_with_parent() -> Callable[[], None] | None:
    """What the child runs between fork and exec, on Linux: ask the kernel for SIGKILL when this process dies."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None
    return lambda: prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _take_note(number: int, frame: object) -> None:
    """The wakeup descriptor carries the signal's number to the loop; nothing to do here."""


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
