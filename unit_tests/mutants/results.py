"""What has come of mutants: kept in a file, so that a run that was interrupted continues, and shown as a table with a score.

Used by ``runner``. Results hold for the code and the tests that they were made with: a file of other ones is set aside.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from unit_tests.mutants.mutant import Mutant

#: The score below which the list counts as failed, in percent.
MIN_SCORE = 90.0
_FOLDERS = ("streamgroups", "connectors", "unit_tests")
_FILES = ("setup.cfg", "setup.py", "pyproject.toml")
_SOURCES = {".py", ".c", ".h", ".json", ".cfg", ".toml"}


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one mutant.

    Args:
        id: the mutant's.
        killed: whether a test failed.
        by: the test, or how the run ended; empty for a survivor.
        duration_s: how long it took, in seconds.
    """

    id: str
    killed: bool
    by: str
    duration_s: float


class ResultFile:
    """Results on disk, one line each, written as soon as they are known.

    Args:
        path: where.
        made_with: the fingerprint of the code; see :func:`fingerprint`.
    """

    def __init__(self, path: Path, made_with: str) -> None:
        self._path, self._made_with = path, made_with

    def read(self) -> dict[str, Result]:
        """What is known of this code already, by the ids of mutants."""
        if not self._path.exists():
            return {}
        rows = [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]
        return {row["id"]: Result(**row) for row in rows if row.pop("made_with") == self._made_with}

    def add(self, result: Result) -> None:
        """Remembers one more."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"made_with": self._made_with, **asdict(result)}) + "\n")


def fingerprint(root: Path) -> str:
    """A hash of this code and its tests."""
    files = [root / name for name in _FILES]
    files += [p for folder in _FOLDERS for p in (root / folder).rglob("*") if p.suffix in _SOURCES]
    digest = hashlib.sha256()
    for path in sorted(set(files)):
        digest.update(f"{path.relative_to(root)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def table(mutants: Sequence[Mutant], results: Mapping[str, Result]) -> str:
    """The score of each area, the survivors, and what is equivalent.

    >>> one = Mutant("A1", "balancing", "assignment.py", "<", "<=", "one share too many")
    >>> print(table([one], {"A1": Result("A1", False, "", 2.5)}))
    area          killed   of
    balancing          0    1
    all                0    1     0.0 %
    <BLANKLINE>
    Survivors:
      A1   assignment.py: one share too many
    """
    lines = [f"{'area':<14}{'killed':>6}{'of':>5}"]
    counted = [m for m in mutants if not m.equivalent and m.id in results]
    for area in dict.fromkeys(m.area for m in counted):
        of_area = [m for m in counted if m.area == area]
        lines.append(f"{area:<14}{_killed(of_area, results):>6}{len(of_area):>5}")
    lines.append(f"{'all':<14}{_killed(counted, results):>6}{len(counted):>5}{score(mutants, results):>8.1f} %")
    survivors = [m for m in counted if not results[m.id].killed]
    if survivors:
        lines += ["", "Survivors:", *(f"  {m.id:<4} {m.file}: {m.breaks}" for m in survivors)]
    equivalents = [m for m in mutants if m.equivalent]
    if equivalents:
        lines += ["", "Not counted, for no test can notice them:"]
        lines += [f"  {m.id:<4} {m.file}: {m.breaks} ({m.equivalent})" for m in equivalents]
    return "\n".join(lines)


def score(mutants: Iterable[Mutant], results: Mapping[str, Result]) -> float:
    """The part of the mutants that tests have killed, in percent; equivalent ones do not count."""
    counted = [m for m in mutants if not m.equivalent and m.id in results]
    return 100.0 * _killed(counted, results) / len(counted) if counted else 100.0


def _killed(mutants: Iterable[Mutant], results: Mapping[str, Result]) -> int:
    return sum(results[m.id].killed for m in mutants)
