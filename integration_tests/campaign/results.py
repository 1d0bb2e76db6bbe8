"""Results of campaigns: one line of JSON each, and their tables. Used by ``integration_tests.campaign``.

``python -m integration_tests.campaign.results FILE`` prints the tables of a file. Each line contains the commit, the
day and the seed, so that a campaign can be repeated with the same turns.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from integration_tests.campaign.computed import COMPUTED

#: The words after a sink, by the kind.
_SUFFIXES = {"stateful": ", with state", "poison": ", with dead letters"}
_NAMES = {"kafka": "Kafka", "postgres": "PostgreSQL", "delta": "Delta", "none": "none"}


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one campaign. Its mappings are plain dictionaries, because ``asdict`` cannot copy a ``Counter``.

    Args:
        day: the day in UTC, such as ``2013-01-01``.
        commit: the commit of the code, with a ``+`` if files differ from it.
        versions: the versions of Python, Spark and Kafka.
        sink: ``kafka``, ``postgres`` or ``delta``.
        protocol: the group protocol.
        nodes: the number of brokers.
        kind: one of ``campaign.turns.KINDS``.
        sabotaged: the disabled safeguard; empty if all were enabled.
        seed: the seed of the order of turns.
        victims: how often each fault was injected.
        points: how often a fault was injected at each point.
        records: the number of records that were produced.
        lost: the number of records that did not arrive; of windows: of results.
        twice: the number of records that arrived more than once; of windows: of rows.
        disordered: the number of partitions out of order.
        different: the number of rows with another result.
        errors: the number of errors of states.
        resets: the number of requested resets to known positions.
        unapplied: the number of partitions and resets without a run of the output.
        savepoints: the number of complete savepoints.
        cuts: the number of different positions of them.
        incomplete: the number of savepoints without a commit record.
        forks: the number of forks whose output was compared.
        fork_rows: the number of their rows.
        fork_differences: the number of their rows that differ, and of forks that failed.
        problems: the number of savepoints and errors that should not exist.
        command_kills: how often a command was killed, by its name and point.
        anomalies: how many records, rows or events have each anomaly, by the checker of histories.
        took_s: the duration in seconds.
        stuck: what did not happen in time.
        invariants: what the checker of histories has decided for each invariant: ``holds``, ``violated`` with the number of
            records, rows or events, or ``undecided`` with the reason. Empty in older results.
        min_insync: the number of brokers that each write needs.
    """

    day: str
    commit: str
    versions: Mapping[str, str]
    sink: str
    protocol: str
    nodes: int
    kind: str
    sabotaged: str
    seed: int
    victims: Mapping[str, int]
    points: Mapping[str, int]
    records: int
    lost: int
    twice: int
    disordered: int
    different: int
    errors: int
    resets: int
    unapplied: int
    savepoints: int
    cuts: int
    incomplete: int
    forks: int
    fork_rows: int
    fork_differences: int
    problems: int
    command_kills: Mapping[str, int]
    anomalies: Mapping[str, int]
    took_s: int
    stuck: Sequence[str] = ()
    invariants: Mapping[str, str] = field(default_factory=dict)
    min_insync: int = 1

    @property
    def kills(self) -> int:
        """The number of injected faults."""
        return sum(self.victims.values())

    def to_line(self) -> str:
        """The result as one line of JSON.

        >>> parse(EXAMPLE.to_line()) == EXAMPLE
        True
        """
        return json.dumps(asdict(self), sort_keys=True)


def parse(line: str) -> Result:
    """Parses a line of :meth:`Result.to_line`."""
    values = json.loads(line)
    return Result(**{**values, "stuck": tuple(values.get("stuck", ()))})


def here(kafka_version: str) -> tuple[str, str, dict[str, str]]:
    """The day, the commit of the tested code, and the versions of Python, Spark and Kafka."""
    import pyspark

    def git(*arguments: str) -> str:
        root = Path(__file__).parent.parent.parent
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()

    changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
    versions = {"python": platform.python_version(), "spark": pyspark.__version__, "kafka": kafka_version}
    return f"{datetime.now(timezone.utc):%Y-%m-%d}", git("rev-parse", "--short=9", "HEAD") + changed, versions


def tables(results: Iterable[Result]) -> str:
    """The tables of the documents. Windows, zombies and savepoints have their own, and campaigns with a disabled safeguard are last of their
    kind. The last tables have the points of zombies, and the anomalies that the checker of histories has found without a safeguard.

    >>> print(tables([EXAMPLE]))
    =====  ========  =====  =======  ====  =====  ============  ====  ==========  =========
    sink   protocol  kills  records  lost  twice  out of order  seed  day         commit
    =====  ========  =====  =======  ====  =====  ============  ====  ==========  =========
    Delta  classic   3      1,200    0     1      none          7     2013-01-01  0123abcde
    =====  ========  =====  =======  ====  =====  ============  ====  ==========  =========
    """
    ordered = sorted(results, key=lambda r: (r.kind == "stateful", r.sink, r.protocol, r.sabotaged))
    groups = [
        [_cells(r) for r in ordered if bool(r.sabotaged) is sabotaged and r.kind in kinds]
        for kinds in (
            ("stateless", "stateful", "poison", "cursors"),
            ("windows",),
            tuple(COMPUTED),
            ("zombies",),
            ("savepoints",),
        )
        for sabotaged in (False, True)
    ]
    groups.append(_points([r for r in ordered if r.kind == "zombies"]))
    groups.append(_controls([r for r in ordered if r.sabotaged and r.anomalies]))
    return "\n\n".join(table(group) for group in groups if group)


def _points(results: Sequence[Result]) -> list[dict[str, str]]:
    """How many zombies there were at each point, by sink."""
    counts = {sink: Counter[str]() for sink in sorted({r.sink for r in results}, key=_NAMES.__getitem__)}
    for r in results:
        counts[r.sink].update(r.points)
    points = sorted({point for count in counts.values() for point in count})
    return [{"point": f"``{it}``"} | {_NAMES[sink]: str(count[it]) for sink, count in counts.items()} for it in points]


def _controls(results: Sequence[Result]) -> list[dict[str, str]]:
    """The anomalies of campaigns with a disabled safeguard."""
    return [
        {
            "without": f"``{r.sabotaged}``",
            "sink": _NAMES[r.sink],
            "protocol": r.protocol,
            "kills": str(r.kills),
            "anomalies": ", ".join(f"{name} {n:,}" for name, n in sorted(r.anomalies.items())),
            "seed": str(r.seed),
            "day": r.day,
            "commit": r.commit,
        }
        for r in sorted(results, key=lambda r: r.sabotaged)
    ]


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """A table in reStructuredText. The keys of the first row are the headings."""
    header = list(rows[0])
    texts = [header, *(list(row.values()) for row in rows)]
    widths = [max(len(row[i]) for row in texts) for i in range(len(header))]
    rule = "  ".join("=" * width for width in widths)
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in texts]
    return "\n".join([rule, lines[0], rule, *lines[1:], rule])


def _cells(r: Result) -> dict[str, str]:
    """The cells of a row, by the heading of their column."""
    if r.kind == "windows" or r.kind in COMPUTED:
        differences = {"missing": r.lost, "different": r.different, "twice": r.twice}
        differences |= {"errors": r.errors} if r.sabotaged else {}
        found = {"workload": r.kind} if r.kind in COMPUTED else {}
        found |= {name: f"{number:,}" for name, number in differences.items()}
    elif r.kind == "savepoints":
        found = {
            "kills of commands": str(sum(r.command_kills.values())),
            "savepoints": str(r.savepoints),
            "positions": str(r.cuts),
            "incomplete": str(r.incomplete),
            "forks": str(r.forks),
            "rows of forks": f"{r.fork_rows:,}",
            "differences": f"{r.lost + r.twice + r.different + r.fork_differences + r.errors + r.problems:,}",
        }
    elif r.kind == "zombies":
        found = {
            "resets": str(r.resets),
            "not applied": str(r.unapplied),
            "lost": f"{r.lost:,}",
            "twice": f"{r.twice:,}",
        }
    else:
        # Spark processes grouped records in no defined order.
        order = "" if r.kind in ("stateful", "cursors") else str(r.disordered or "none")
        found = {"lost": f"{r.lost:,}", "twice": f"{r.twice:,}", "out of order": order}
    return {
        "sink": _NAMES[r.sink] + _SUFFIXES.get(r.kind, ""),
        "protocol": r.protocol,
        **({"without": r.sabotaged} if r.sabotaged else {}),
        "zombies" if r.kind == "zombies" else "kills": str(r.kills),
        "records": f"{r.records:,}",
        **found,
        "seed": str(r.seed),
        "day": r.day,
        "commit": r.commit,
    }


#: A result for the examples.
EXAMPLE = Result(
    day="2013-01-01",
    commit="0123abcde",
    versions={"python": "3.12.1", "spark": "4.2.1", "kafka": "4.1.2"},
    sink="delta",
    protocol="classic",
    nodes=1,
    kind="stateless",
    sabotaged="",
    seed=7,
    victims={"worker": 2, "query": 1},
    points={"mid-read": 3},
    records=1_200,
    lost=0,
    twice=1,
    disordered=0,
    different=0,
    errors=0,
    resets=0,
    unapplied=0,
    savepoints=0,
    cuts=0,
    incomplete=0,
    forks=0,
    fork_rows=0,
    fork_differences=0,
    problems=0,
    command_kills={},
    anomalies={},
    took_s=99,
)


if __name__ == "__main__":
    print(tables(map(parse, Path(sys.argv[1]).read_text().splitlines())))  # noqa: T201
