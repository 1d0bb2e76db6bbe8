"""The record of all campaigns: ``docs/campaigns.jsonl``, and its tables in ``docs/campaign-table.rst``.

``--record`` of ``integration_tests.campaign`` and ``campaign.processors`` adds a result after each campaign, and writes the tables
again. ``python -m integration_tests.campaign.record FILE`` adds the results of a file that ``--results`` has written.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration_tests.campaign.controls import EXPECTED, WRONG_FORK, WRONG_SAVEPOINT, is_noticed
from integration_tests.campaign.invariants_table import by_invariant
from integration_tests.campaign.results import table

DOCS = Path(__file__).parent.parent.parent / "docs"
LINES, TABLES = DOCS / "campaigns.jsonl", DOCS / "campaign-table.rst"
_WORKLOADS = {
    "stateless": "copy",
    "stateful": "copy without duplicates, state of Spark",
    "windows": "windows of a group",
    "zombies": "frozen members and resets",
    "savepoints": "savepoints of windows",
    "processors": "processors of an instance",
    "poison": "copy with dead letters",
    "dedup": "dedup by id",
    "function": "function with state",
    "join": "join of two topics",
    "chained": "windows of windows",
    "cursors": "cursors of instances",
    "repartition": "repartition, two queries",
}
_SINKS = {"kafka": "Kafka", "postgres": "PostgreSQL", "delta": "Delta", "none": "", "": "Kafka, PostgreSQL"}
#: The workloads that decide each promise of ``docs/guarantees.rst``.
_PROMISES = {
    "A group shares a topic; no record is lost; a partition has one owner": (
        *(
            "stateless",
            "stateful",
            "windows",
            "zombies",
            "savepoints",
            "poison",
            "dedup",
            "function",
            "join",
            "chained",
        ),
        *("repartition", "cursors", "processors"),
    ),
    "Positions, restarts, resets, data loss": ("zombies", "windows", "savepoints"),
    "Output is exactly once": ("stateless", "stateful", "zombies", "poison"),
    "A bad record becomes one dead letter": ("zombies", "poison"),
    "Results by event time equal a plain program": ("windows", "savepoints", "join", "chained"),
    "State follows its partition": ("windows", "savepoints", "dedup", "function", "join", "chained"),
    "Savepoints are consistent": ("savepoints",),
    "Processors and workers": ("processors",),
}
#: The counts of a result that are violations, beside the named anomalies. Resets explain other copies of records.
_VIOLATIONS = ("lost", "different", "errors", "unapplied", "disordered")
_TITLE = """\
Campaigns of faults
===================

The campaigns of `sinks.rst <sinks.rst#fault-injection>`_, `state.rst <state.rst#fault-injection>`_,
`savepoints.rst <savepoints.rst#fault-injection>`_ and `instances.rst <instances.rst#fault-injection>`_ write their results here
with ``--record``. ``campaigns.jsonl`` has one line for each, with its points and versions. Only campaigns since the beginning of
this record are counted; `earlier-campaigns.rst <earlier-campaigns.rst>`_ has the ones before. A violation is a record or a row that
is lost, is there twice, has another result or another order, an anomaly of the checker of histories, or a step that did not end
in time (``stuck``). The commit has a ``+`` if files differ from it.

"""
_BY_PROMISE = """\
Faults by promise
-----------------

The figures of `guarantees.rst <guarantees.rst#evidence>`_. A campaign counts for each promise that its workload
decides in part:"""
_BY_INVARIANT = """\
Faults by kind and invariant. A cell has the number of faults in campaigns whose history has decided that the invariant holds, and
after the ``/`` the number of faults in campaigns whose history does not decide it. The number of violated campaigns follows, if there
are any. Older results do not store the decisions, and are counted as ``not stored``:"""
_TITLE_OF_CONTROLS = """\
Controls
--------"""
_CONTROLS = """\
Campaigns with a disabled protection. {} of {} have found the anomaly that it must leave:"""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A campaign.

    Args:
        workload: one of ``campaign.turns.KINDS``, or ``processors``.
        sink: the sink; empty for processors.
        protocol: the group protocol.
        nodes: the number of brokers.
        kafka: their release.
        sabotaged: the disabled safeguard; empty if all were enabled.
        faults: how often each fault was injected.
        records: the number of produced records.
        violations: the number of violations.
        anomalies: the anomalies by name.
        invariants: what was decided for each invariant; empty in older results, which do not store it.
        seed, day, commit: what repeats it.
        min_insync: the number of brokers that each write needs.
    """

    workload: str
    sink: str
    protocol: str
    nodes: int
    kafka: str
    sabotaged: str
    faults: Mapping[str, int]
    records: int
    violations: int
    anomalies: Mapping[str, int]
    invariants: Mapping[str, str]
    seed: int
    day: str
    commit: str
    min_insync: int = 1

    @property
    def n_faults(self) -> int:
        """The number of injected faults."""
        return sum(self.faults.values())

    @staticmethod
    def of(result: Mapping[str, Any]) -> Recorded:
        """The campaign of a line, as JSON.

        >>> line = {"day": "2013-01-01", "commit": "0123abc", "seed": 7, "records": 9, "faults": {"worker": 2}, "sabotaged": ""}
        >>> Recorded.of(line | {"anomalies": {}, "versions": {"kafka": "4.1.2"}}).workload
        'processors'
        """
        # Older results have no names for savepoints and forks.
        unnamed = {WRONG_SAVEPOINT: result.get("problems", 0), WRONG_FORK: result.get("fork_differences", 0)}
        anomalies = {**{name: n for name, n in unnamed.items() if n}, **result["anomalies"]}
        counts = [int(result.get(name, 0)) for name in _VIOLATIONS]
        # Dead letters of a zombie can be there twice after a reset. The checker of histories decides about them.
        counts.append(0 if result.get("kind") == "zombies" else int(result.get("twice", 0)))
        return Recorded(
            workload=result.get("kind", "processors"),
            sink=result.get("sink", ""),
            protocol=result.get("protocol", "classic"),
            nodes=result.get("nodes", 1),
            kafka=result["versions"]["kafka"],
            sabotaged=result["sabotaged"],
            faults=result.get("victims") or result.get("faults") or {},
            records=result["records"],
            violations=sum(counts) + sum(anomalies.values()),
            anomalies=anomalies,
            invariants=result.get("invariants", {}),
            seed=result["seed"],
            day=result["day"],
            commit=result["commit"],
            min_insync=result.get("min_insync", 1),
        )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options ``--results`` and ``--record`` of :func:`keep`."""
    parser.add_argument("--results", type=Path, help="a file; the result of each campaign is added as one line")
    parser.add_argument("--record", action="store_true", help="add the results to docs/campaign-table.rst")


def keep(line: str, file: Path | None, *, is_recorded: bool) -> None:
    """Adds a result to a file and to the record.

    Args:
        line: the result, as one line of JSON.
        file: the file; ``None``: only the record.
        is_recorded: whether it is added to the record.
    """
    if file is not None:
        with file.open("a", encoding="utf-8") as results:
            results.write(f"{line}\n")
    if is_recorded:
        add([line])


def add(lines: Iterable[str]) -> None:
    """Adds results to the record, and writes its tables.

    Args:
        lines: results, each as one line of JSON. Lines of the record are not added again.
    """
    known = LINES.read_text(encoding="utf-8").splitlines() if LINES.exists() else []
    known += [it for it in lines if it and it not in known]
    LINES.write_text("".join(f"{it}\n" for it in known), encoding="utf-8")
    TABLES.write_text(page([Recorded.of(json.loads(it)) for it in known]), encoding="utf-8")


def page(campaigns: Sequence[Recorded]) -> str:
    """The page with the tables of all campaigns."""
    complete = [it for it in campaigns if not it.sabotaged]
    n_faults = sum(it.n_faults for it in complete)
    total = (
        f"{n_faults:,} faults in {len(complete):,} campaigns with all protections, {sum(it.records for it in complete):,} records, "
        f"{sum(it.violations for it in complete):,} violations."
    )
    controls = [it for it in campaigns if it.sabotaged]
    parts = [total, table(_by_workload(complete)), "Faults by kind:", table(_by_fault(complete))]
    parts += [_BY_INVARIANT, table(by_invariant([(it.faults, it.invariants) for it in complete]))]
    parts += [_BY_PROMISE, table(_by_promise(complete))]
    if controls:
        parts.append(_TITLE_OF_CONTROLS)
        n_noticed = sum(is_noticed(it.sabotaged, it.anomalies) for it in controls)
        parts += [_CONTROLS.format(n_noticed, len(controls)), table(_controls(controls))]
    return _TITLE + "\n\n".join(parts) + "\n"


def _by_workload(campaigns: Sequence[Recorded]) -> list[dict[str, str]]:
    groups: defaultdict[tuple[str, str, str, int, int, str], list[Recorded]] = defaultdict(list)
    for it in campaigns:
        groups[it.workload, it.sink, it.protocol, it.nodes, it.min_insync, it.kafka].append(it)
    order = list(_WORKLOADS)
    rows = []
    for (workload, sink, protocol, nodes, min_insync, kafka), of in sorted(
        groups.items(), key=lambda it: (order.index(it[0][0]), *it[0][1:])
    ):
        rows.append(
            {
                "workload": _WORKLOADS[workload],
                "sink": _SINKS[sink],
                "protocol": protocol,
                "brokers": str(nodes) + (f", min ISR {min_insync}" if min_insync > 1 else ""),
                "Kafka": kafka,
                "faults": f"{sum(it.n_faults for it in of):,}",
                "records": f"{sum(it.records for it in of):,}",
                "violations": f"{sum(it.violations for it in of):,}",
                "seeds": ", ".join(str(it) for it in sorted({it.seed for it in of})),
                "days": " to ".join(sorted({min(it.day for it in of), max(it.day for it in of)})),
                "commits": ", ".join(sorted({it.commit for it in of})),
            }
        )
    return rows


def _by_fault(campaigns: Sequence[Recorded]) -> list[dict[str, str]]:
    counts = {workload: Counter[str]() for workload in _WORKLOADS if any(it.workload == workload for it in campaigns)}
    for it in campaigns:
        counts[it.workload].update(it.faults)
    faults = sorted({fault for count in counts.values() for fault in count})
    return [
        {"fault": f"``{fault}``"} | {_WORKLOADS[name]: str(count[fault]) for name, count in counts.items()}
        for fault in faults
    ]


def _by_promise(campaigns: Sequence[Recorded]) -> list[dict[str, str]]:
    rows = []
    for promise, workloads in _PROMISES.items():
        of = [it for it in campaigns if it.workload in workloads]
        rows.append(
            {
                "promise": promise,
                "workloads": str(len({it.workload for it in of})),
                "campaigns": f"{len(of):,}",
                "faults": f"{sum(it.n_faults for it in of):,}",
                "records": f"{sum(it.records for it in of):,}",
                "violations": f"{sum(it.violations for it in of):,}",
            }
        )
    return rows


def _controls(campaigns: Sequence[Recorded]) -> list[dict[str, str]]:
    return [
        {
            "without": f"``{it.sabotaged}``",
            "workload": _WORKLOADS[it.workload],
            "sink": _SINKS[it.sink],
            "faults": str(it.n_faults),
            "expected": EXPECTED[it.sabotaged],
            "noticed": "yes" if is_noticed(it.sabotaged, it.anomalies) else "**no**",
            "violations": f"{it.violations:,}",
            "anomalies": ", ".join(f"{name} {n:,}" for name, n in sorted(it.anomalies.items())) or "none",
            "seed": str(it.seed),
            "day": it.day,
            "commit": it.commit,
        }
        for it in sorted(campaigns, key=lambda it: (it.sabotaged, it.day))
    ]


if __name__ == "__main__":
    add(Path(sys.argv[1]).read_text(encoding="utf-8").splitlines())
