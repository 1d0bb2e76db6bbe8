"""``streamgroups topics``: creates, describes, fills and deletes the topics of a cluster, one file per command.

Part of the command line (``streamgroups_cli``).
"""

from __future__ import annotations

from streamgroups_cli.lazy_commands import lazy_app

app = lazy_app(
    "Create, inspect, fill and delete topics.",
    {
        "create": "streamgroups_cli.topics.creating:create",
        "list": "streamgroups_cli.topics.listing:list_topics",
        "describe": "streamgroups_cli.topics.describing:describe",
        "tail": "streamgroups_cli.topics.tailing:tail",
        "produce": "streamgroups_cli.topics.producing:produce",
        "delete": "streamgroups_cli.topics.deleting:delete",
    },
)
