"""``streamgroups worker``: a process that runs the processors of an instance.

Part of the command line (``streamgroups_cli``). Source: SEMANTICS P2.
"""

from __future__ import annotations

from streamgroups_cli.lazy_commands import lazy_app

app = lazy_app("Run a worker of an instance.", {"run": "streamgroups_cli.workers.running:run"})
