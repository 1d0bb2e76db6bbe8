"""``streamgroups cursors``: group cursors and partition cursors for scripts, a command per call of ``sg.cursors.GroupCursors``.

Part of the command line (``streamgroups_cli``). A member of a Kafka group is a live connection, and a command ends at
once. So ``create`` starts a background process, which is the instance, and the other commands send requests to it
(``instance_process``). A cursor of one partition needs no process, because it contains the next offset. Source:
SEMANTICS G1-G7, G16.
"""

from __future__ import annotations

from streamgroups_cli.lazy_commands import lazy_app

app = lazy_app(
    "Read streams with cursors, by partition or as an instance of a group.",
    {
        "create": "streamgroups_cli.cursors.creating:create",
        "get": "streamgroups_cli.cursors.reading:get",
        "heartbeat": "streamgroups_cli.cursors.reading:heartbeat",
        "commit": "streamgroups_cli.cursors.reading:commit",
        "leave": "streamgroups_cli.cursors.reading:leave",
    },
)
