"""A copy of the project, in which mutants are tried one after the other. The checkout itself is never changed.

Used by ``runner``, one per job. A run of tests ends with the first failure. Examples are the same each time (``CI``) and
are not simplified, because they are not read.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from unit_tests.mutants.mutant import Mutant

#: What tests do not read.
_NOT_COPIED = shutil.ignore_patterns(
    *(".git", ".venv*", "__pycache__", "build", "dist", "*.egg-info", ".mypy_cache", ".ruff_cache", ".pytest_cache"),
    *(".hypothesis", ".import_linter_cache", "demo-output", "spark-warehouse"),
)
#: Longer than any related tests or the whole suite should take on a busy machine. What takes longer hangs.
_RUN_TIMEOUT_S = 900
_BUILD_TIMEOUT_S = 300
#: A test's name may end with values in brackets, which may have blanks; what went wrong may follow.
_FAILED = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+(?:\[.*?\](?= - |$))?)", re.MULTILINE)
_PYTEST_OK = 0


class WorkshopError(Exception):
    """The copy cannot be used; what is wrong is the project or this machine, not a mutant."""


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of a run of tests.

    Args:
        passed: whether all passed.
        first: the first test that failed, or how the run ended.
        failed: what to run to see it again.
    """

    passed: bool
    first: str
    failed: tuple[str, ...] = ()


class Workshop:
    """One copy.

    Args:
        project: what is copied.
        place: where to; it is emptied first.
    """

    def __init__(self, project: Path, place: Path) -> None:
        self._root = place
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(project, place, ignore=_NOT_COPIED, symlinks=True)
        paths = os.pathsep.join(str(place / part) for part in ("", "connectors"))
        self._environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "CI": "1"}
        # The usual number of random sequences, not that of `make test`.
        self._environment["STREAMGROUPS_EXAMPLES"] = "1"
        self._passing: set[tuple[str, ...]] = set()
        self._build()
        self._check_imports()

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[str]:
        """The copy has the fault within the block. Yields why it cannot be built, or nothing."""
        path = self._root / mutant.file
        text = path.read_text(encoding="utf-8")
        path.write_text(mutant.applied_to(text), encoding="utf-8")
        try:
            rejection = ""
            if mutant.is_native:
                try:
                    self._build()
                except WorkshopError as e:
                    rejection = str(e)
            yield rejection
        finally:
            path.write_text(text, encoding="utf-8")
            if mutant.is_native:
                self._build()

    def check_passing(self, tests: Sequence[str]) -> None:
        """Makes sure that tests which failed with a mutant pass without it.

        Raises:
            WorkshopError: if they do not, naming the first that fails.
        """
        if tuple(tests) in self._passing:
            return
        tried = self.run(tests)
        if not tried.passed:
            raise WorkshopError(f"A test fails without any mutant, so it proves nothing: {tried.first}. Mend it first.")
        self._passing.add(tuple(tests))

    def run(self, tests: Sequence[str]) -> Tried:
        """Runs tests until one fails."""
        options = ("-x", "-q", "--tb=no", "--no-header", "-p", "no:cacheprovider", "--hypothesis-profile=mutants")
        # The tests of the list fail with every mutant: they prove that its snippets are there.
        command = [sys.executable, "-m", "pytest", *tests, *options, "--ignore=unit_tests/mutants"]
        code, result = self._call(command, _RUN_TIMEOUT_S)
        failed = _FAILED.search(result)
        if code is None:
            return Tried(False, f"no end within {_RUN_TIMEOUT_S} s", tuple(tests))
        if code < 0:
            return Tried(False, f"the process died of {signal.Signals(-code).name}", tuple(tests))
        if code == _PYTEST_OK:
            return Tried(True, "")
        return (
            Tried(False, failed[1], (failed[1],)) if failed else Tried(False, f"pytest ended with {code}", tuple(tests))
        )

    def _build(self) -> None:
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "--force"]
        code, result = self._call([*command, "--build-temp", "build/objects"], _BUILD_TIMEOUT_S)
        if code != 0:
            raise WorkshopError(f"The C extension cannot be built: {result[-500:]}")

    def _check_imports(self) -> None:
        names = ("streamgroups", "streamgroups_kafka", "streamgroups_spark")
        script = f"import {', '.join(names)}; print({', '.join(f'{n}.__file__' for n in names)})"
        code, result = self._call([sys.executable, "-c", script], _BUILD_TIMEOUT_S)
        if code != 0 or result.count(str(self._root)) != len(names):
            raise WorkshopError(f"Tests would not import the copy at {self._root}: {result}")

    def _call(self, command: Sequence[str], timeout_s: float) -> tuple[int | None, str]:
        process = subprocess.Popen(
            command,
            cwd=self._root,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            result, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _kill(process)
            return None, ""
        except BaseException:
            _kill(process)
            raise
        return process.returncode, result


def _kill(process: subprocess.Popen[str]) -> None:
    """Ends a run and what it has started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
