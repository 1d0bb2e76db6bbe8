"""Records the result of a long run: ``python -m integration_tests.evidence make nightly SEED=7``.

Called by ``make evidence``. It runs the command, prints its output, and writes the commit, the duration and the result to
``docs/evidence.json`` and, as a table, to ``docs/evidence-table.rst``. A later run of the same command replaces its row. An
interrupted run leaves none.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROWS, TABLE = ROOT / "docs" / "evidence.json", ROOT / "docs" / "evidence-table.rst"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PYTEST = re.compile(r"(\d+ \w+, )*\d+ \w+ in [\d.]+s( \([\d:]+\))?")
_MAX_CHARACTERS = 300
_TITLE = """\
Recorded runs
=============

``make evidence RUN='nightly SEED=7'`` runs a target of the Makefile and writes its result here. A run that failed stays in the
table until it succeeds. `guarantees.rst <guarantees.rst>`_ has the promises that these runs verify.

"""
_HEAD = """\
.. list-table::
   :header-rows: 1
   :widths: 34 12 12 10 32

   * - Run
     - Date
     - Commit
     - Minutes
     - Result
"""


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run.

    Args:
        command: its command.
        date: the day of its start, UTC, such as ``2026-11-27``.
        commit: the commit, with ``+`` if files were changed.
        minutes: its duration.
        exit_code: the exit code; 0 means success.
        result: its result as one line.
    """

    command: str
    date: str
    commit: str
    minutes: float
    exit_code: int
    result: str


def result_of(lines: Iterable[str]) -> str:
    """Returns the summaries of pytest in the output of a command. Without one: its last line.

    >>> result_of(["== 3 failed, 7 passed in 2.11s ==", "make: *** [Makefile:9: unit] Error 1"])
    '3 failed, 7 passed in 2.11s'
    >>> result_of(["100 faults", "0 violations", ""])
    '0 violations'
    """
    texts = [_COLOURS.sub("", it).strip(" =\r\n\t") for it in lines]
    found = [it for it in texts if _PYTEST.fullmatch(it)] or [it for it in texts if it][-1:]
    return "; ".join(found)[:_MAX_CHARACTERS]


def with_run(runs: Sequence[Run], run: Run) -> list[Run]:
    """Replaces the row of a command."""
    return sorted([*(it for it in runs if it.command != run.command), run], key=lambda it: it.command)


def table(runs: Iterable[Run]) -> str:
    """The page as reStructuredText."""
    rows = "".join(
        f"   * - ``{it.command}``\n     - {it.date}\n     - ``{it.commit}``\n     - {it.minutes:.1f}\n"
        f"     - {'' if it.exit_code == 0 else f'exit code {it.exit_code}: '}``{it.result.replace('`', chr(39))}``\n"
        for it in runs
    )
    return _TITLE + (_HEAD + rows if rows else "No run is recorded.\n")


def read(rows: Path = ROWS) -> list[Run]:
    """Reads the recorded runs."""
    return [Run(**it) for it in json.loads(rows.read_text(encoding="utf-8"))] if rows.exists() else []


def write(runs: Sequence[Run], rows: Path = ROWS, page: Path = TABLE) -> None:
    """Writes the recorded runs, and their table."""
    rows.write_text(json.dumps([asdict(it) for it in runs], indent=2) + "\n", encoding="utf-8")
    page.write_text(table(runs), encoding="utf-8")


def run(command: Sequence[str]) -> Run:
    """Runs a command, and prints its output meanwhile."""
    began_s, date = time.monotonic(), datetime.now(timezone.utc).date().isoformat()
    commit, lines = _commit(), list[str]()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            lines.append(line)
    minutes = round((time.monotonic() - began_s) / 60, 1)
    return Run(" ".join(command), date, commit, minutes, process.returncode, result_of(lines))


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    # The files of this module are results, and no changed code.
    own = [f":!{it.relative_to(ROOT)}" for it in (ROWS, TABLE)]
    is_changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", *own)
    return git("rev-parse", "--short=8", "HEAD") + ("+" if is_changed else "")


def main(command: Sequence[str]) -> int:
    """Runs and records. Returns the exit code of the command."""
    if not command:
        sys.stderr.write(__doc__.splitlines()[0] + "\n")
        return 2
    finished = run(command)
    write(with_run(read(), finished))
    return finished.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
