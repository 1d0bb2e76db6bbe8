"""``streamgroups dlq``: lists, repairs and sends dead letters, one file per command.

Part of the command line (``streamgroups_cli``).
"""

from __future__ import annotations

from streamgroups_cli.lazy_commands import lazy_app

app = lazy_app(
    "Inspect dead letters, and send them again.",
    {
        "list": "streamgroups_cli.dlq.listing:list_letters",
        "show": "streamgroups_cli.dlq.showing:show_letters",
        "stats": "streamgroups_cli.dlq.counting:stats",
        "export": "streamgroups_cli.dlq.exporting:export",
        "redrive": "streamgroups_cli.dlq.redriving:redrive",
        "purge": "streamgroups_cli.dlq.purging:purge",
    },
)
