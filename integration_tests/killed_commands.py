"""Commands of ``streamgroups`` that are killed at named points, as ``python -m integration_tests.killed_commands``.

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
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

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
    """

    module: str
    owner: str
    function: str
    call: int = 1
    is_after: bool = False


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
    command = [sys.executable, "-m", "integration_tests.killed_commands"]
    path = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), str(_ROOT), str(_ROOT / "connectors")]))
    return subprocess.run(
        [*command, json.dumps(point and asdict(point)), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment, "PYTHONPATH": path},
        check=False,
    )


def is_killed(result: subprocess.CompletedProcess[str]) -> bool:
    """Whether the process has reached its point."""
    return result.returncode == -signal.SIGKILL


def _arm(point: Point) -> None:
    owner = getattr(importlib.import_module(point.module), point.owner)
    function, calls = getattr(owner, point.function), iter(range(1, 1_000_000))

    def called(*args: Any, **kwargs: Any) -> Any:
        is_here = next(calls) == point.call
        if is_here and not point.is_after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **kwargs)
        if is_here:
            os.kill(os.getpid(), signal.SIGKILL)
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
