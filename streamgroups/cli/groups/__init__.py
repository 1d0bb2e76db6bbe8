"""``streamgroups groups``: seeing and moving the consumer groups of a cluster, one file a command.

Part of the command line (``streamgroups.cli``). Source: SEMANTICS O1, O2, O3; the commands do what ``kafka-consumer-groups.sh`` does.
"""

from __future__ import annotations

from streamgroups.cli.lazy_commands import lazy_app

app = lazy_app(
    "See and move consumer groups.",
    {
        "list": "streamgroups.cli.groups.listing:list_groups",
        "describe": "streamgroups.cli.groups.describing:describe",
        "reset": "streamgroups.cli.groups.resetting:reset",
        "export": "streamgroups.cli.groups.transfer:export",
        "import": "streamgroups.cli.groups.transfer:import_",
        "delete": "streamgroups.cli.groups.deleting:delete",
        "delete-offsets": "streamgroups.cli.groups.deleting:delete_offsets",
        "watch": "streamgroups.cli.groups.watching:watch",
    },
)
