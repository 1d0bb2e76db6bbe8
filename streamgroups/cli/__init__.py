"""The command ``streamgroups``: the composition of its command groups, one file each.

Called by the console script (``main``). Every file imports what it drives inside its commands, so that ``--help`` is fast.
"""

from __future__ import annotations

import sys

import typer

from streamgroups.cli import broker, cursors, groups, topics
from streamgroups.cli.doctor import doctor
from streamgroups.cli.exits import exit_code
from streamgroups.cli.metrics import metrics
from streamgroups.errors import StreamGroupsError

app = typer.Typer(
    name="streamgroups",
    help="Kafka consumer groups for Spark Structured Streaming.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(groups.app, name="groups")
app.add_typer(topics.app, name="topics")
app.add_typer(cursors.app, name="cursors")
app.add_typer(broker.app, name="broker")
app.command()(metrics)
app.command()(doctor)


def main() -> None:
    """Run the command line. What an error of ours ends it with is decided in :mod:`streamgroups.cli.exits`."""
    try:
        app()
    except StreamGroupsError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(exit_code(error))
