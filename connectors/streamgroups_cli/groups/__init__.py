"""``streamgroups groups``: seeing and moving the consumer groups of a cluster, one file a command.

Part of the command line (``streamgroups_cli``). Source: SEMANTICS O1, O2, O3; the commands do what ``kafka-consumer-groups.sh`` does.
"""

from __future__ import annotations

from streamgroups_cli.lazy_commands import lazy_app

app = lazy_app(
    "Inspect consumer groups and reset their offsets.",
    {
        "list": "streamgroups_cli.groups.listing:list_groups",
        "describe": "streamgroups_cli.groups.describing:describe",
        "reset": "streamgroups_cli.groups.resetting:reset",
        "export": "streamgroups_cli.groups.transfer:export",
        "import": "streamgroups_cli.groups.transfer:import_",
        "delete": "streamgroups_cli.groups.deleting:delete",
        "delete-offsets": "streamgroups_cli.groups.deleting:delete_offsets",
        "watch": "streamgroups_cli.groups.watching:watch",
    },
)
