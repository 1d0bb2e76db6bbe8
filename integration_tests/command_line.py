"""Runs commands of ``streamgroups`` in the process of the test, which saves half a second of processor time per
command.

Used by tests that run many commands. The result does not contain output that client libraries write directly to the
terminal.
"""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
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
