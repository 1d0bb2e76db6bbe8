"""The command ``streamgroups``.

This module imports no package of the extra ``cli``, so that the console script can name the extra if it is missing.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line. The console script calls it."""
    from streamgroups.extras import load

    try:
        command_line = load("streamgroups_cli.command_line", needed_by="The command streamgroups")
    except ImportError as e:
        sys.exit(f"Error: {e}")
    command_line.run()
