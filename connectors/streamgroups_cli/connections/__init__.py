"""``streamgroups connections``: names for how to reach a system, and the current Kafka cluster.

Part of the command line (``streamgroups_cli``). :mod:`streamgroups.connections` parses the file, and
:mod:`streamgroups.contexts` decides which cluster a command uses.
"""

from __future__ import annotations

from streamgroups_cli.lazy_commands import lazy_app

app = lazy_app(
    "Name Kafka clusters, databases, Delta tables and schema registries.",
    {
        "list": "streamgroups_cli.connections.commands:list_connections",
        "show": "streamgroups_cli.connections.commands:show",
        "set": "streamgroups_cli.connections.setting:set_connection",
        "use": "streamgroups_cli.connections.commands:use",
        "delete": "streamgroups_cli.connections.commands:delete",
        "test": "streamgroups_cli.connections.testing:check_access",
    },
)
