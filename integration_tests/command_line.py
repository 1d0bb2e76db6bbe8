"""Commands of ``streamgroups`` in the process of a test: half a second of processor time sooner than in a process of their own.

Used by tests that run many commands. What a client's library writes to the terminal is not in the result.
"""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

from streamgroups_cli import main


def streamgroups(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command as the program does; returns its exit code and what it has written.

    Args:
        arguments: of the program.
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
