"""``streamgroups savepoint``: creates, shows, verifies, restores and deletes savepoints, one file per command.

Part of the command line (``streamgroups_cli``). Only ``create`` and ``restore`` need a broker. Source: SEMANTICS C1 to C3.
"""

from __future__ import annotations

from streamgroups_cli.lazy_commands import lazy_app

app = lazy_app(
    "Copy the positions of a group with their states, and restore them.",
    {
        "create": "streamgroups_cli.savepoints.creating:create",
        "list": "streamgroups_cli.savepoints.listing:list_savepoints",
        "show": "streamgroups_cli.savepoints.showing:show",
        "verify": "streamgroups_cli.savepoints.verifying:verify",
        "restore": "streamgroups_cli.savepoints.restoring:restore",
        "delete": "streamgroups_cli.savepoints.deleting:delete",
    },
)
