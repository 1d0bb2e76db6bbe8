"""``streamgroups groups``: describes and resets the consumer groups of a cluster, one file per command.

Part of the command line (``streamgroups_cli``). Source: SEMANTICS O1, O2, O3; the commands correspond to
``kafka-consumer-groups.sh``.
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
        "undo": "streamgroups_cli.groups.undoing:undo",
        "copy": "streamgroups_cli.groups.copy_offsets:copy",
        "delete": "streamgroups_cli.groups.deleting:delete",
        "delete-offsets": "streamgroups_cli.groups.deleting:delete_offsets",
        "sweep": "streamgroups_cli.groups.delete_unused:sweep",
        "watch": "streamgroups_cli.groups.watching:watch",
        "audit": "streamgroups_cli.groups.auditing:audit",
        "timeline": "streamgroups_cli.groups.timeline:timeline",
    },
)
