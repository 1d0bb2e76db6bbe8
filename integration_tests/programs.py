"""Queries of tests that run in processes of their own, and are killed.

Used by the tests with a module ``integration_tests.*_query``, whose ``main`` takes its configuration as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


class Program:
    """A query in a process group of its own, with the Java process that it starts.

    Args:
        process: the process.
        log: the file with its output.
    """

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process, self._log = process, log

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def check(self) -> None:
        """Fails with the end of the log if the process has ended."""
        assert self._process.poll() is None, self._log.read_text(errors="replace")[-6_000:]

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait_for_end(self, timeout_s: float) -> None:
        """Waits until it ends by itself; fails with the end of the log if it fails."""
        assert self._process.wait(timeout_s) == 0, self._log.read_text(errors="replace")[-6_000:]

    def terminate(self) -> None:
        """Sends SIGTERM to the process, as a process manager does."""
        self._process.terminate()

    def kill(self) -> None:
        """Kills all its processes. A second call has no effect."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)


@contextmanager
def running(
    module: str, config: Mapping[str, Any], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Program]:
    """Runs a query, and kills it at the end of the block.

    Args:
        module: the name of its module in ``integration_tests``.
        config: its configuration.
        log: the file for its output, which is appended.
        environment: further environment variables.
    """
    command = [sys.executable, "-m", f"integration_tests.{module}", json.dumps(config)]
    with running_command(command, log, {**os.environ, **(environment or {})}) as program:
        yield program


@contextmanager
def running_command(
    command: Sequence[str], log: Path, environment: Mapping[str, str], directory: Path | None = None
) -> Iterator[Program]:
    """Runs a command, and kills it at the end of the block.

    Args:
        command: the program and its arguments.
        log: the file for its output, which is appended.
        environment: all environment variables.
        directory: the working directory.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
            cwd=directory,
        )
    program = Program(process, log)
    try:
        yield program
    finally:
        program.kill()
