"""``streamgroups contexts``: named clusters, as those of ``kubectl``.

Part of the command line (``streamgroups_cli``). :mod:`streamgroups.contexts` decides which context a command uses.
"""

from __future__ import annotations

from streamgroups_cli.lazy_commands import lazy_app

app = lazy_app(
    "Name clusters, and choose the current one.",
    {
        "list": "streamgroups_cli.contexts.commands:list_contexts",
        "show": "streamgroups_cli.contexts.commands:show",
        "use": "streamgroups_cli.contexts.commands:use",
        "set": "streamgroups_cli.contexts.commands:set_context",
        "delete": "streamgroups_cli.contexts.commands:delete",
    },
)
