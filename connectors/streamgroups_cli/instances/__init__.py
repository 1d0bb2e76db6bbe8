"""``streamgroups instance``: the manager of an instance, and its state.

Part of the command line (``streamgroups_cli``). Source: SEMANTICS P2.
"""

from __future__ import annotations

from streamgroups_cli.lazy_commands import lazy_app

app = lazy_app(
    "Run the manager of an instance, and show its workers and processors.",
    {
        "run": "streamgroups_cli.instances.running:run",
        "status": "streamgroups_cli.instances.status:status",
    },
)
