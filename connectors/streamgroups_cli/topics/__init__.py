"""``streamgroups topics``: creates and fills topics, and shows their last records, one file per command.

Part of the command line (``streamgroups_cli``). Kafka's own tool lists, describes and deletes topics.
"""

from __future__ import annotations

from streamgroups_cli.lazy_commands import lazy_app

app = lazy_app(
    "Create topics, and write and show their records.",
    {
        "create": "streamgroups_cli.topics.creating:create",
        "tail": "streamgroups_cli.topics.tailing:tail",
        "produce": "streamgroups_cli.topics.producing:produce",
    },
)
