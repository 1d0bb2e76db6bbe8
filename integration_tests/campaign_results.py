"""Results of campaigns: one line of JSON each, and the tables in ``docs/sinks.rst``. Used by
``integration_tests.campaign``.

``python -m integration_tests.campaign_results FILE`` prints the tables of a file. Each line contains the commit, the
day and the seed, so that a campaign can be repeated with the same turns.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

_NAMES = {"kafka": "Kafka", "postgres": "PostgreSQL", "delta": "Delta"}


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one campaign. Its mappings are plain dictionaries, because ``asdict`` cannot copy a ``Counter``.

    Args:
        day: the day in UTC, such as ``2013-01-01``.
        commit: the commit of the code, with a ``+`` if files differ from it.
        versions: the versions of Python, Spark and Kafka.
        sink: ``kafka``, ``postgres`` or ``delta``.
        protocol: the group protocol.
        stateful: whether the query kept state.
        sabotaged: the disabled safeguard; empty if all were enabled.
        seed: the seed of the order of turns.
        victims: how often each fault was injected.
        points: how often a fault was injected at each point.
        records: the number of records that were produced.
        lost: the number of records that did not arrive.
        twice: the number of records that arrived more than once.
        disordered: the number of partitions out of order.
        took_s: the duration in seconds.
    """

    day: str
    commit: str
    versions: Mapping[str, str]
    sink: str
    protocol: str
    stateful: bool
    sabotaged: str
    seed: int
    victims: Mapping[str, int]
    points: Mapping[str, int]
    records: int
    lost: int
    twice: int
    disordered: int
    took_s: int

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
    return Result(**json.loads(line))


def here(kafka_version: str) -> tuple[str, str, dict[str, str]]:
    """The day, the commit of the tested code, and the versions of Python, Spark and Kafka."""
    import pyspark

    def git(*arguments: str) -> str:
        root = Path(__file__).parent.parent
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()

    changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
    versions = {"python": platform.python_version(), "spark": pyspark.__version__, "kafka": kafka_version}
    return f"{datetime.now(timezone.utc):%Y-%m-%d}", git("rev-parse", "--short=9", "HEAD") + changed, versions


def tables(results: Iterable[Result]) -> str:
    """The tables of the document. Campaigns with a disabled safeguard are last.

    >>> print(tables([EXAMPLE]))
    =====  ========  =====  =======  ====  =====  ============  ====  ==========  =========
    sink   protocol  kills  records  lost  twice  out of order  seed  day         commit
    =====  ========  =====  =======  ====  =====  ============  ====  ==========  =========
    Delta  classic   3      1,200    0     1      none          7     2013-01-01  0123abcde
    =====  ========  =====  =======  ====  =====  ============  ====  ==========  =========
    """
    ordered = sorted(results, key=lambda r: (r.stateful, r.sink, r.protocol, r.sabotaged))
    whole = [r for r in ordered if not r.sabotaged]
    without = [r for r in ordered if r.sabotaged]
    parts = [_table(whole), _table(without, names_what_is_missing=True)]
    return "\n\n".join(part for part in parts if part)


def _table(results: Sequence[Result], *, names_what_is_missing: bool = False) -> str:
    if not results:
        return ""
    missing = ["without"] if names_what_is_missing else []
    header = [
        "sink",
        "protocol",
        *missing,
        "kills",
        "records",
        "lost",
        "twice",
        "out of order",
        "seed",
        "day",
        "commit",
    ]
    rows = [header]
    for r in results:
        rows.append(
            [
                _NAMES[r.sink] + (", with state" if r.stateful else ""),
                r.protocol,
                *([r.sabotaged] if names_what_is_missing else []),
                str(r.kills),
                f"{r.records:,}",
                f"{r.lost:,}",
                f"{r.twice:,}",
                # Spark processes grouped records in no defined order.
                "" if r.stateful else str(r.disordered or "none"),
                str(r.seed),
                r.day,
                r.commit,
            ]
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    rule = "  ".join("=" * width for width in widths)
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([rule, lines[0], rule, *lines[1:], rule])


#: A result for the examples.
EXAMPLE = Result(
    day="2013-01-01",
    commit="0123abcde",
    versions={"python": "3.12.1", "spark": "4.2.1", "kafka": "4.1.2"},
    sink="delta",
    protocol="classic",
    stateful=False,
    sabotaged="",
    seed=7,
    victims={"worker": 2, "query": 1},
    points={"mid-read": 3},
    records=1_200,
    lost=0,
    twice=1,
    disordered=0,
    took_s=99,
)


if __name__ == "__main__":
    print(tables(map(parse, Path(sys.argv[1]).read_text().splitlines())))  # noqa: T201
