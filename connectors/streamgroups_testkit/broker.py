"""The interface that the embedded broker and the broker in a container share. Called by tests and by ``reading``."""

from __future__ import annotations

import subprocess
from typing import Protocol

#: The broker detects failed members within seconds, with both group protocols.
BROKER_PROPERTIES = {
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.heartbeat.interval.ms": 1_000,
    # Compaction and the abort of an expired transaction must occur within the timeouts of the tests.
    "log.cleaner.backoff.ms": 200,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}


class Broker(Protocol):
    """A broker that clients connect to and that runs Kafka's tools."""

    @property
    def bootstrap_servers(self) -> str: ...

    def run_tool(self, tool: str, *args: str) -> subprocess.CompletedProcess[str]: ...
