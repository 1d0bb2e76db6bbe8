"""Tries mutants: ``make mutants``, or ``python -m unit_tests.mutants --help``.

Each mutant meets the tests of its module first, then those of its neighbours, then the whole unit suite. Several jobs work on several copies. What is known is kept
in ``build/mutants``: a run that was interrupted continues where it was, unless the code or the tests have changed.
"""

from __future__ import annotations

import argparse
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from unit_tests.mutants.lists import MUTANTS
from unit_tests.mutants.mutant import Mutant, check
from unit_tests.mutants.related import stages
from unit_tests.mutants.results import MIN_SCORE, Result, ResultFile, fingerprint, score, table
from unit_tests.mutants.workshop import Tried, Workshop, WorkshopError

ROOT = Path(__file__).parent.parent.parent
_PASSED, _FAILED, _UNUSABLE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Tries the selected mutants and prints the score.

    Returns:
        0 if the score is high enough, 1 if it is not, 2 if the list or the project cannot be used.
    """
    options = _parser().parse_args(arguments)
    mutants = tuple(m for m in MUTANTS if _is_required(m, options.ids, options.area))
    if options.list:
        print(*(f"{m.id:<4} {m.area:<15} {m.file}: {m.breaks}" for m in mutants), sep="\n")
        return _PASSED
    if wrong := check(mutants, ROOT) + _unknown(options.ids, options.area):
        print(*wrong, sep="\n", file=sys.stderr)
        return _UNUSABLE
    file = ResultFile(options.results, fingerprint(ROOT))
    known = file.read()
    to_try = [m for m in mutants if m.id not in known and (not m.equivalent or m.id in options.ids)]
    print(f"{len(mutants)} mutants, {len(to_try)} of them to be tried; results in {options.results}", flush=True)
    try:
        _try(to_try, file, options.jobs)
    except WorkshopError as e:
        print(e, file=sys.stderr)
        return _UNUSABLE
    results = file.read()
    print(table(mutants, results))
    return _PASSED if score(mutants, results) >= MIN_SCORE else _FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m unit_tests.mutants", description="Do the unit tests notice small faults?"
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="mutants to try; all if none is named")
    parser.add_argument("--area", action="append", default=[], help="all mutants of an area; may be repeated")
    parser.add_argument("--jobs", type=int, default=1, help="how many are tried at the same time (1)")
    parser.add_argument("--list", action="store_true", help="print the mutants and try none")
    parser.add_argument(
        "--results", type=Path, default=ROOT / "build/mutants/results.jsonl", help="where results are kept"
    )
    return parser


def _is_required(mutant: Mutant, ids: Sequence[str], areas: Sequence[str]) -> bool:
    return mutant.id in ids or mutant.area in areas or not (ids or areas)


def _unknown(ids: Sequence[str], areas: Sequence[str]) -> list[str]:
    known_ids, known_areas = {m.id for m in MUTANTS}, sorted({m.area for m in MUTANTS})
    wrong = [f"There is no mutant '{i}'; --list shows them." for i in ids if i not in known_ids]
    return wrong + [
        f"There is no area '{a}'; there are {', '.join(known_areas)}." for a in areas if a not in known_areas
    ]


def _try(mutants: Sequence[Mutant], file: ResultFile, jobs: int) -> None:
    """Tries mutants, in as many threads as there are jobs; each has a copy of its own."""
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    failures: list[Exception] = []
    writing = threading.Lock()

    def work(place: Path) -> None:
        try:
            workshop = Workshop(ROOT, place)
            with suppress(queue.Empty):
                while not failures:
                    mutant = waiting.get_nowait()
                    result = try_one(workshop, mutant)
                    with writing:
                        file.add(result)
                        output = f"killed by {result.by}" if result.killed else "SURVIVED"
                        print(f"{mutant.id:<4} {result.duration_s:6.1f} s  {output}", flush=True)
        except Exception as e:
            failures.append(e)

    with tempfile.TemporaryDirectory(prefix="streamgroups-mutants-") as folder:
        threads = [
            threading.Thread(target=work, args=(Path(folder) / f"copy-{i}",), daemon=True)
            for i in range(min(jobs, len(mutants)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def try_one(workshop: Workshop, mutant: Mutant) -> Result:
    """Tries one mutant.

    Raises:
        WorkshopError: if what kills it fails without it, too.
    """
    began_s = time.monotonic()
    tried = Tried(True, "")
    for tests in stages(mutant.file, ROOT):
        if tried.passed:
            with workshop.mutated(mutant) as rejection:
                tried = Tried(False, rejection) if rejection else workshop.run(tests)
    if tried.failed:
        workshop.check_passing(tried.failed)
    return Result(mutant.id, not tried.passed, tried.first, round(time.monotonic() - began_s, 1))
