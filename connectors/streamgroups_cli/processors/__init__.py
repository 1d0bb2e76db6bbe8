"""``streamgroups processors``: validates, explains and runs declared processors, one file per command.

Part of the command line (``streamgroups_cli``). Only ``run`` and ``sample`` import Spark. Source: SEMANTICS P1.
"""

from __future__ import annotations

from streamgroups_cli.lazy_commands import lazy_app

app = lazy_app(
    "Validate, explain and run processors, which are queries in YAML files.",
    {
        "validate": "streamgroups_cli.processors.validating:validate",
        "explain": "streamgroups_cli.processors.explaining:explain",
        "run": "streamgroups_cli.processors.running:run",
        "schema": "streamgroups_cli.processors.printing_schema:print_schema",
        "apply": "streamgroups_cli.processors.applying:apply",
        "start": "streamgroups_cli.processors.starting:start",
        "stop": "streamgroups_cli.processors.stopping:stop",
        "restart": "streamgroups_cli.processors.starting:restart",
        "list": "streamgroups_cli.processors.listing:list_processors",
        "sample": "streamgroups_cli.processors.sampling:sample",
        "describe": "streamgroups_cli.processors.describing:describe",
        "drop": "streamgroups_cli.processors.dropping:drop",
    },
)
