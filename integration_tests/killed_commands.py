"""Commands of ``streamgroups`` that are killed or frozen at named points, as ``python -m integration_tests.killed_commands``.

Used by ``test_savepoints`` and by campaigns of savepoints. The process kills itself with ``kill -9`` at a call of a function, so
that each point is exact. The tested code has no dependency on this file. Source: SEMANTICS C3.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from integration_tests.campaign.single_processes import is_stopped

_TIMEOUT_S = 300
_ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Point:
    """A call of a function.

    Args:
        module: the module.
        owner: the class in it, or the module that it imports.
        function: the name of the function.
        call: the number of the call, from 1.
        is_after: whether the point is after the call.
        is_frozen: whether the process stops there with SIGSTOP, instead of ending.
    """

    module: str
    owner: str
    function: str
    call: int = 1
    is_after: bool = False
    is_frozen: bool = False


_FILE = Point("streamgroups_operators.locations", "StateDirectory", "write_parts")
_RENAME = Point("streamgroups_operators.local_files", "os", "replace")
_RECORD = Point("streamgroups_operators.savepoints.directory", "SavepointDirectory", "write")
_COMMIT = Point("streamgroups_kafka.admin.groups", "KafkaGroupAdmin", "alter_offsets")
_OF_FILES = {"before-first-file": _FILE, "in-a-file": _RENAME, "between-files": replace(_FILE, call=2)}
#: The points of ``savepoint create``. ``in-a-file``: the file is written, and does not have its name yet.
CREATE_POINTS: Mapping[str, Point] = MappingProxyType(
    {**_OF_FILES, "before-record": _RECORD, "after-record": replace(_RECORD, is_after=True)}
)
#: The points of ``savepoint restore`` into a group without members.
RESTORE_POINTS: Mapping[str, Point] = MappingProxyType(
    {**_OF_FILES, "before-commit": _COMMIT, "after-commit": replace(_COMMIT, is_after=True)}
)


def run_command(
    point: Point | None, *arguments: str, environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    """Runs a command in a process of its own.

    Args:
        point: where it is killed. A point that it does not reach has no effect. ``None``: it is not killed.
        arguments: the arguments of the program.
        environment: further environment variables.
    """
    command, variables = _command(point, arguments, environment)
    return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, env=variables, check=False)


def run_frozen_command(
    point: Point, *arguments: str, seconds: float, environment: Mapping[str, str] = MappingProxyType({})
) -> tuple[subprocess.CompletedProcess[str], bool]:
    """Runs a command that is frozen at a point, and continues it.

    Args:
        point: where it is frozen. A point that it does not reach has no effect.
        arguments: the arguments of the program.
        seconds: for how long.
        environment: further environment variables.

    Returns:
        Its result, and whether it was in the state T for this time.

    Raises:
        AssertionError: if another process continues it earlier, or it does not end.
    """
    command, variables = _command(replace(point, is_frozen=True), arguments, environment)
    was_frozen, deadline_s = False, time.monotonic() + _TIMEOUT_S
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables) as process:
        while process.poll() is None:
            if not was_frozen and is_stopped(psutil.Process(process.pid)):
                time.sleep(seconds)
                if not is_stopped(psutil.Process(process.pid)):
                    process.kill()
                    raise AssertionError("the command was continued")
                was_frozen = True
                process.send_signal(signal.SIGCONT)
            if time.monotonic() > deadline_s:
                process.kill()
                raise AssertionError(f"the command does not end after {_TIMEOUT_S} s")
            time.sleep(0.05)
        out, err = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, out, err), was_frozen


def _command(
    point: Point | None, arguments: tuple[str, ...], environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment variables."""
    command = [sys.executable, "-m", "integration_tests.killed_commands"]
    path = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), str(_ROOT), str(_ROOT / "connectors")]))
    return (
        [*command, json.dumps(point and asdict(point)), *arguments],
        {**os.environ, **environment, "PYTHONPATH": path},
    )


def is_killed(result: subprocess.CompletedProcess[str]) -> bool:
    """Whether the process has reached its point."""
    return result.returncode == -signal.SIGKILL


def _arm(point: Point) -> None:
    owner = getattr(importlib.import_module(point.module), point.owner)
    function, calls = getattr(owner, point.function), iter(range(1, 1_000_000))
    signal_ = signal.SIGSTOP if point.is_frozen else signal.SIGKILL

    def called(*args: Any, **kwargs: Any) -> Any:
        is_here = next(calls) == point.call
        if is_here and not point.is_after:
            os.kill(os.getpid(), signal_)
        result = function(*args, **kwargs)
        if is_here and point.is_after:
            os.kill(os.getpid(), signal_)
        return result

    setattr(owner, point.function, called)


def main() -> None:
    from streamgroups_cli import main as command_line

    point = json.loads(sys.argv.pop(1))
    if point is not None:
        _arm(Point(**point))
    command_line()


if __name__ == "__main__":
    main()
