"""``streamgroups state``: inspects the state files of operators that follow their partition, one file per command.

Part of the command line (``streamgroups_cli``). All commands but ``collect`` read files only and need no broker.
"""

from __future__ import annotations

from streamgroups_cli.lazy_commands import lazy_app

app = lazy_app(
    "Inspect and delete the state files of windows, functions, joins and dedup.",
    {
        "list": "streamgroups_cli.state.listing:list_states",
        "show": "streamgroups_cli.state.showing:show",
        "verify": "streamgroups_cli.state.verifying:verify",
        "collect": "streamgroups_cli.state.collecting:collect",
    },
)
