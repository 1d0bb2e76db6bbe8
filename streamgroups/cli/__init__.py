"""The command ``streamgroups``: the composition of its command groups, one file each.

Called by the console script (``main``). A command's file is imported when the command is called, and imports what it drives
inside the command, so that ``--help`` is fast.
"""

from __future__ import annotations

import sys

from streamgroups.cli.exits import exit_code
from streamgroups.cli.lazy_commands import lazy_app
from streamgroups.errors import StreamGroupsError

app = lazy_app(
    "Kafka consumer groups for Spark Structured Streaming.",
    {
        "groups": "streamgroups.cli.groups:app",
        "topics": "streamgroups.cli.topics:app",
        "gaps": "streamgroups.cli.gaps:gaps",
        "cursors": "streamgroups.cli.cursors:app",
        "broker": "streamgroups.cli.broker:app",
        "metrics": "streamgroups.cli.metrics:metrics",
        "doctor": "streamgroups.cli.doctor:doctor",
    },
    name="streamgroups",
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line. What an error of ours ends it with is decided in :mod:`streamgroups.cli.exits`."""
    try:
        app()
    except StreamGroupsError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(exit_code(error))
