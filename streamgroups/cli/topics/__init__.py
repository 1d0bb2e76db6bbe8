"""``streamgroups topics``: looking at the topics of a cluster, one file a command.

Part of the command line (``streamgroups.cli``).
"""

from __future__ import annotations

from streamgroups.cli.lazy_commands import lazy_app

app = lazy_app(
    "Look at topics.",
    {
        "list": "streamgroups.cli.topics.listing:list_topics",
        "describe": "streamgroups.cli.topics.describing:describe",
        "tail": "streamgroups.cli.topics.tailing:tail",
    },
)
