"""``streamgroups cursors``: group cursors and partition cursors for scripts, one command for each call of ``sg.GroupCursors``.

Part of the command line (``streamgroups.cli``). A member of a Kafka group is a live connection, and a command ends at once: so
``create`` leaves a process behind, which is the instance, and the other commands talk to it (``instance_process``). A cursor of
one partition needs no process: it says all that is needed to read on. Source: SEMANTICS G1-G7, G16.
"""

from __future__ import annotations

import typer

from streamgroups.cli.cursors import making, using

app = typer.Typer(help="Read streams with cursors, alone or as an instance of a group.", no_args_is_help=True)
app.command("create")(making.create)
app.command("get")(using.get)
app.command("heartbeat")(using.heartbeat)
app.command("commit")(using.commit)
app.command("leave")(using.leave)
