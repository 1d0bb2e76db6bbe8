"""``streamgroups topics``: describes the topics of a cluster, one file per command.

Part of the command line (``streamgroups_cli``).
"""

from __future__ import annotations

from streamgroups_cli.lazy_commands import lazy_app

app = lazy_app(
    "Inspect topics.",
    {
        "list": "streamgroups_cli.topics.listing:list_topics",
        "describe": "streamgroups_cli.topics.describing:describe",
        "tail": "streamgroups_cli.topics.tailing:tail",
    },
)
