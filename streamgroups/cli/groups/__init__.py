"""``streamgroups groups``: seeing and moving the consumer groups of a cluster, one file a command.

Part of the command line (``streamgroups.cli``). Source: SEMANTICS O1, O2, O3; the commands do what ``kafka-consumer-groups.sh`` does.
"""

from __future__ import annotations

import typer

from streamgroups.cli.groups import describing, listing

app = typer.Typer(help="See and move consumer groups.", no_args_is_help=True)
app.command("list")(listing.list_groups)
app.command("describe")(describing.describe)
