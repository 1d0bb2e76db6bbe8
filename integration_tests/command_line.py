"""Runs commands of ``streamgroups`` in the process of the test, which saves half a second of processor time per
command.

Used by tests that run many commands. The result does not contain output that client libraries write directly to the
terminal. :func:`groups_command` begins a process, whose output contains that of all libraries.
"""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from streamgroups_cli import main


def streamgroups(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command as the program does; returns its exit code and its output.

    Args:
        arguments: the arguments of the program.
    """
    command = ["streamgroups", *arguments]
    output, errors = io.StringIO(), io.StringIO()
    code: int | str | None = 0
    with mock.patch.object(sys, "argv", command), redirect_stdout(output), redirect_stderr(errors):
        try:
            main()
        except SystemExit as end:
            code = end.code
    return subprocess.CompletedProcess(command, int(code or 0), output.getvalue(), errors.getvalue())


def groups_command(
    directory: Path, server: str, settings: Mapping[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command of ``streamgroups groups`` in a process of its own.

    Args:
        directory: the directory of the file with the settings.
        server: the broker.
        settings: the settings of Java's client.
        arguments: the arguments of the command.
    """
    file = directory / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    run_main = [sys.executable, "-c", "from streamgroups_cli import main; main()", "groups", *arguments]
    to = ["--bootstrap-server", server, "--command-config", str(file), "--timeout", "5s"]
    return subprocess.run([*run_main, *to], capture_output=True, text=True, check=False)
