"""The streaming queries in an event log of Spark. Used by tests of workers.

Source: Spark's ``EventLoggingListener``, which writes one JSON document a line, and ``StreamingQueryListener``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
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
    """

    name: str
    runs: set[str] = field(default_factory=set)
    batches: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


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
        elif kind == "QueryTerminatedEvent" and event.get("exception"):
            found[names[event["runId"]]].errors.append(event["exception"])
    return found


def _events(directory: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(it for it in directory.rglob("*") if it.is_file()):
        for line in file.read_text(errors="replace").splitlines():
            # The last line can be incomplete.
            if line.startswith('{"Event"') and line.endswith("}"):
                yield json.loads(line)
