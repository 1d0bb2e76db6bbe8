"""``streamgroups groups``: seeing and moving the consumer groups of a cluster, one file a command.

Part of the command line (``streamgroups.cli``). Source: SEMANTICS O1, O2, O3; the commands do what ``kafka-consumer-groups.sh`` does.
"""

from __future__ import annotations

import typer

from streamgroups.cli.groups import deleting, describing, listing, resetting, transfer, watching

app = typer.Typer(help="See and move consumer groups.", no_args_is_help=True)
app.command("list")(listing.list_groups)
app.command("describe")(describing.describe)
app.command("reset")(resetting.reset)
app.command("export")(transfer.export)
app.command("import")(transfer.import_)
app.command("delete")(deleting.delete)
app.command("delete-offsets")(deleting.delete_offsets)
app.command("watch")(watching.watch)
