"""``streamgroups topics``: looking at the topics of a cluster, one file a command.

Part of the command line (``streamgroups.cli``).
"""

from __future__ import annotations

import typer

from streamgroups.cli.topics import describing, listing, tailing

app = typer.Typer(help="Look at topics.", no_args_is_help=True)
app.command("list")(listing.list_topics)
app.command("describe")(describing.describe)
app.command("tail")(tailing.tail)
