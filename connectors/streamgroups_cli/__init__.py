"""The command ``streamgroups``. This module imports nothing that the extra ``cli`` installs, so that the console script can name the extra."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; called by the console script."""
    from streamgroups.extras import load

    try:
        command_line = load("streamgroups_cli.command_line", needed_by="The command streamgroups")
    except ImportError as e:
        sys.exit(f"Error: {e}")
    command_line.run()
