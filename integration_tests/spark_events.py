"""The streaming queries in an event log of Spark. Used by tests and benchmarks of workers.

Source: Spark's ``EventLoggingListener``, which writes one JSON document a line, and ``StreamingQueryListener``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

_PREFIX = "org.apache.spark.sql.streaming.StreamingQueryListener$"


@dataclass
class LoggedQuery:
    """A query of the event log.

    Args:
        name: its name.
        runs: the ids of its runs.
        batches: the ids of its batches, in their order. Batches without data have none of their own.
        errors: the errors of its runs.
        triggers: the time of each trigger that had records, in seconds since the epoch, and its duration in milliseconds.
    """

    name: str
    runs: set[str] = field(default_factory=set)
    batches: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    triggers: list[tuple[float, int]] = field(default_factory=list)


def logged_queries(directory: Path) -> dict[str, LoggedQuery]:
    """The queries in the event logs of a directory, by their names."""
    found: dict[str, LoggedQuery] = {}
    names: dict[str, str] = {}
    for event in _events(directory):
        kind = event["Event"].removeprefix(_PREFIX)
        if kind == "QueryStartedEvent":
            names[event["runId"]] = event["name"]
            found.setdefault(event["name"], LoggedQuery(event["name"])).runs.add(event["runId"])
        elif kind == "QueryProgressEvent":
            progress = event["progress"]
            query, batch = found[progress["name"]], int(progress["batchId"])
            if batch not in query.batches[-1:]:
                query.batches.append(batch)
            if sum(it["numInputRows"] for it in progress.get("sources", ())):
                at_s = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
                query.triggers.append((at_s, int(progress["durationMs"]["triggerExecution"])))
        elif kind == "QueryTerminatedEvent" and event.get("exception"):
            found[names[event["runId"]]].errors.append(event["exception"])
    return found


def _events(directory: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(it for it in directory.rglob("*") if it.is_file()):
        for line in file.read_text(errors="replace").splitlines():
            # The last line can be incomplete.
            if line.startswith('{"Event"') and line.endswith("}"):
                yield json.loads(line)
