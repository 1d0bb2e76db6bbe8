"""``streamgroups checkpoint``: shows, verifies and copies the checkpoint of any Spark query, one file per command.

Part of the command line (``streamgroups_cli``). It needs no Spark. Source: SEMANTICS C1, C5.
"""

from __future__ import annotations

from streamgroups_cli.lazy_commands import lazy_app

app = lazy_app(
    "Show, verify and copy the checkpoint of any Spark query.",
    {
        "show": "streamgroups_cli.checkpoint.showing:show",
        "verify": "streamgroups_cli.checkpoint.verifying:verify",
        "copy": "streamgroups_cli.checkpoint.copying:copy",
    },
)
