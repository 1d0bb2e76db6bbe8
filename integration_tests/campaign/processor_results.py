"""Results of campaigns of processors: one line of JSON each, and their tables.

Used by ``integration_tests.campaign.processors``. ``python -m integration_tests.campaign.processor_results FILE`` prints the tables
of a file.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from integration_tests.campaign.processor_faults import Recovery
from integration_tests.campaign.processor_turns import FAULTS
from integration_tests.campaign.results import table


@dataclass(frozen=True, slots=True)
class ProcessorResult:
    """The result of one campaign.

    Args:
        day: the day in UTC, such as ``2013-01-01``.
        commit: the commit of the code, with a ``+`` if files differ from it.
        versions: the versions of Python, Spark and Kafka.
        seed: the seed of the order of faults.
        sabotaged: the disabled safeguard; empty if all were enabled.
        faults: how often each fault was injected.
        points: how often a fault was injected at each point.
        committed_s: the maximum time until both processors have committed records that were produced after the fault, by
            fault, in seconds.
        running_s: the maximum time until all replicas run, by fault that ends replicas, in seconds.
        records: the number of records that were produced.
        rows: the number of rows in the table.
        anomalies: the number of anomalies by name.
        cold_start_s: the time from the start of one processor in the foreground until its first commit, in seconds.
        session_timeout_s: the session timeout of the groups, in seconds.
        took_s: the duration in seconds.
        invariants: see :class:`integration_tests.campaign.results.Result`.
    """

    day: str
    commit: str
    versions: Mapping[str, str]
    seed: int
    sabotaged: str
    faults: Mapping[str, int]
    points: Mapping[str, int]
    committed_s: Mapping[str, float]
    running_s: Mapping[str, float]
    records: int
    rows: int
    anomalies: Mapping[str, int]
    cold_start_s: float
    session_timeout_s: int
    took_s: int
    invariants: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(recoveries: Sequence[Recovery], **more: Any) -> ProcessorResult:
        """The result with the maxima of all faults."""
        committed_s: dict[str, float] = {}
        running_s: dict[str, float] = {}
        for it in recoveries:
            committed_s[it.turn.fault] = max(committed_s.get(it.turn.fault, 0), round(it.committed_s, 1))
            if it.running_s is not None:
                running_s[it.turn.fault] = max(running_s.get(it.turn.fault, 0), round(it.running_s, 1))
        faults = dict(Counter(it.turn.fault for it in recoveries))
        points = dict(Counter(it.turn.point for it in recoveries if it.turn.point))
        return ProcessorResult(faults=faults, points=points, committed_s=committed_s, running_s=running_s, **more)

    def to_line(self) -> str:
        """The result as one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)


def parse(line: str) -> ProcessorResult:
    """Parses a line of :meth:`ProcessorResult.to_line`."""
    return ProcessorResult(**json.loads(line))


def tables(results: Iterable[ProcessorResult]) -> str:
    """The tables of the document: the campaigns, and the faults of those without a disabled safeguard."""
    ordered = sorted(results, key=lambda it: (bool(it.sabotaged), it.sabotaged, it.day, it.seed))
    campaigns = [
        {
            "without": it.sabotaged or "",
            "seed": str(it.seed),
            "faults": str(sum(it.faults.values())),
            "records": f"{it.records:,}",
            "rows": f"{it.rows:,}",
            "anomalies": ", ".join(f"{n:,} {name}" for name, n in it.anomalies.items()) or "0",
            "session timeout + 2 cold starts": f"{it.session_timeout_s + 2 * it.cold_start_s:.0f} s",
            "day": it.day,
            "commit": it.commit,
        }
        for it in ordered
    ]
    complete = [it for it in ordered if not it.sabotaged]
    faults = [
        {
            "fault": f"``{fault}``",
            "times": str(sum(it.faults.get(fault, 0) for it in complete)),
            "commits after": _maximum(it.committed_s[fault] for it in complete if fault in it.committed_s),
            "all run after": _maximum(it.running_s[fault] for it in complete if fault in it.running_s),
        }
        for fault in FAULTS
        if any(it.faults.get(fault) for it in complete)
    ]
    return "\n\n".join(table(rows) for rows in (campaigns, faults) if rows)


def _maximum(times_s: Iterable[float]) -> str:
    found = max(times_s, default=None)
    return "not ended" if found is None else f"{found:.0f} s"


if __name__ == "__main__":
    print(tables(map(parse, Path(sys.argv[1]).read_text().splitlines())))  # noqa: T201
