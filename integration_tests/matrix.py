"""The versions of PySpark, Python and Kafka that streamgroups is tested with, and the table ``docs/version-table.rst``.

Called by ``make test-matrix``. Each cell has a virtual environment under ``build/matrix`` with the packages that
``setup.cfg`` accepts. It runs the tests of private facts of Spark, and the same small part of the integration tests. The cells are combinations, not the full
product: each version of PySpark, Python and Kafka is in at least one of them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from streamgroups.spark_features import spark_features
from streamgroups_broker._releases import is_kafka_3

_ROOT = Path(__file__).parent.parent
_BUILD = _ROOT / "build" / "matrix"
_TESTS = Path("integration_tests")
_TIMEOUT_S = 540
#: The extra ``test`` has many packages that these tests do not need.
_TOOLS = ("pytest-timeout>=2.4,<3", "hypothesis>=6,<7", "psutil>=6,<8")
#: The tests of the private facts of Spark on which the library depends. They have a Spark session of their own.
_FACTS = ("component_tests/test_spark_facts.py", "component_tests/test_spark_operators.py")
#: The tests of each promise that depends on PySpark or on the broker.
_SUBSET = {
    "plain source, triggers": ("test_triggers_and_limits.py",),
    "group protocols": ("test_group_protocols.py",),
    "shared group": (
        "test_members_share_a_topic.py::test_join_and_leave_under_load[{protocol}]",
        "test_members_share_a_topic.py::test_G10_one_query_too_many_idles_and_takes_over[{protocol}]",
    ),
    "killed query": ("test_killing_a_member_loses_nothing.py::test_kill_under_load[{protocol}]",),
    "restart": (
        "test_restarting.py::test_from_the_checkpoint_and_from_the_group",
        "test_restarting.py::test_unfinished_batch_is_read_again",
        "test_restarting.py::test_unfinished_batch_that_the_group_has_passed",
    ),
    "exactly-once Kafka sink": (
        "test_kafka_sink_is_exactly_once.py::test_X2_output_and_offsets_of_several_batches[{protocol}]",
        "test_kafka_sink_is_exactly_once.py::test_X2_a_batch_that_is_run_again_after_its_commit_writes_nothing",
    ),
    "windows of partitions": (
        "test_windows_of_partitions.py::test_S10_windows_of_partitions_in_an_exclusive_query_survive_its_checkpoint",
    ),
    "copy of a Spark checkpoint": ("test_checkpoints_are_copied.py::test_C1_C5_a_query_of_kafka_continues_from_a_copy[changelog]",),
    "dedup": ("test_dedup_drops_retries.py::test_X5_all_columns_are_kept_and_ids_have_several_columns",),
}  # fmt: skip
#: Tests that need ``transformWithState``.
_OF_SPARK_4_1 = {
    "windows in Spark's state": ("test_windows_in_spark.py::test_a_late_record_updates_and_a_later_one_is_emitted_with_the_window_that_it_missed",),
}  # fmt: skip
#: Tests that need the group protocol ``consumer``.
_OF_KAFKA_4 = {
    "command line": ("test_groups_cli_keeps_its_contract.py::test_O1_members_of_the_new_protocol_are_seen_too",),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A combination of versions.

    Args:
        spark: the release of PySpark, such as ``4.3.0``.
        python: the minor release of Python, such as ``3.13``.
        kafka: the release of the embedded broker.
    """

    spark: str
    python: str
    kafka: str

    @property
    def directory(self) -> Path:
        """The virtual environment of the cell."""
        return _BUILD / f"spark-{self.spark}-python-{self.python}"

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests of the cell. Before Kafka 4.0 the group protocol is ``classic``."""
        is_old = is_kafka_3(self.kafka)
        spark = _OF_SPARK_4_1 if spark_features(self.spark).has_arrow_api else {}
        subset = {**_SUBSET, **spark, **({} if is_old else _OF_KAFKA_4)}
        protocol = "classic" if is_old else "consumer"
        return tuple(name.format(protocol=protocol) for names in subset.values() for name in names)


@dataclass(frozen=True, slots=True)
class Passed:
    """All tests of a cell have passed.

    Args:
        tests: the number of tests.
        took_s: their duration in seconds.
    """

    tests: int
    took_s: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Tests of a cell have failed, or have not ended in time."""

    why: str


@dataclass(frozen=True, slots=True)
class NotAvailable:
    """A cell cannot run on this machine."""

    why: str


CellResult = Passed | Failed | NotAvailable

#: From the oldest to the newest of each. Kafka 4.2.2 and 4.4.0 are not in Maven Central in full: ``kafka-tools`` of these
#: releases is missing. ``make test`` uses PySpark 4.2.1 with Python 3.11 and Kafka 4.1.2.
CELLS = (
    Cell("4.0.5", "3.11", "3.9.2"),
    Cell("4.1.4", "3.11", "4.1.2"),
    Cell("4.2.0", "3.10", "4.0.2"),
    Cell("4.2.1", "3.11", "3.7.2"),
    Cell("4.2.1", "3.11", "3.9.2"),
    Cell("4.2.1", "3.11", "4.1.2"),
    Cell("4.2.1", "3.12", "4.2.1"),
    Cell("4.3.0", "3.13", "4.3.1"),
)


def find_python(minor: str) -> str | None:
    """Returns the command of an interpreter of a minor release: from ``PATH``, otherwise from pyenv."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    installed = sorted(root.glob(f"versions/{minor}.*/bin/python"))
    for candidate in [shutil.which(f"python{minor}"), *map(str, reversed(installed))]:
        # A shim of pyenv exists also for releases that are not selected.
        if candidate is not None and subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return candidate
    return None


def prepare(cell: Cell, python: str) -> NotAvailable | None:
    """Creates the virtual environment of a cell, unless an earlier run has created it."""
    done = cell.directory / "installed"
    if done.exists():
        return None
    subprocess.run([python, "-m", "venv", "--clear", str(cell.directory)], check=True)
    pip = [str(cell.directory / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    packages = [f"pyspark=={cell.spark}", *_TOOLS, "-e", ".[spark,cli,windows,testkit]"]
    ran = subprocess.run([*pip, *packages], cwd=_ROOT, capture_output=True, text=True)
    if ran.returncode:
        return NotAvailable(f"pip: {last_line(ran.stderr)}")
    done.touch()
    return None


def run(cell: Cell, *, only_facts: bool = False) -> CellResult:
    """Runs the tests of a cell."""
    python = find_python(cell.python)
    if python is None:
        return NotAvailable(f"Python {cell.python} is not installed")
    missing = prepare(cell, python)
    if missing is not None:
        return missing
    own = cell.directory / "bin" / "python"
    facts = run_tests(cell, own, "facts", _FACTS)
    if only_facts or isinstance(facts, Failed):
        return facts
    tests = [f"--kafka-version={cell.kafka}", *(str(_TESTS / name) for name in cell.tests)]
    rest = run_tests(cell, own, f"kafka-{cell.kafka}", tests)
    return rest if isinstance(rest, Failed) else Passed(facts.tests + rest.tests, facts.took_s + rest.took_s)


def run_tests(cell: Cell, python: Path, log: str, arguments: Sequence[str]) -> Passed | Failed:
    """Runs tests with the Python of the virtual environment of a cell.

    Args:
        cell: the cell.
        python: the Python.
        log: the name of the file with the output.
        arguments: the tests, with options of pytest.
    """
    options = ["-q"]
    if not spark_features(cell.spark).passes_start:
        # Py4J of older releases does not close all sockets.
        options += ["-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning"]
    # SPARK_HOME would replace the Spark of the cell.
    environment = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")}
    command = [str(python), "-m", "pytest", *options, *arguments]
    began = time.monotonic()
    try:
        ran = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return Failed(f"not done within {_TIMEOUT_S} s")
    cell.directory.mkdir(parents=True, exist_ok=True)
    (cell.directory / f"{log}.log").write_text(ran.stdout + ran.stderr, encoding="utf-8")
    return outcome(ran.returncode, ran.stdout or ran.stderr, round(time.monotonic() - began))


def outcome(exit_code: int, output: str, took_s: int) -> Passed | Failed:
    """Reads the result of pytest. A skipped test is a failure: the cell has not shown what the table reports.

    >>> outcome(0, "10 passed, 4 deselected in 70.34s (0:01:10)", 72)
    Passed(tests=10, took_s=72)
    >>> outcome(1, "1 failed, 9 passed in 70.34s", 72)
    Failed(why='1 failed, 9 passed in 70.34s')
    >>> outcome(0, "9 passed, 1 skipped in 70.34s", 72)
    Failed(why='9 passed, 1 skipped in 70.34s')
    """
    summary = last_line(output)
    passed = re.match(r"(\d+) passed", summary)
    if exit_code or passed is None or "skipped" in summary:
        return Failed(summary)
    return Passed(int(passed[1]), took_s)


def last_line(text: str) -> str:
    """Returns the last line that is not empty.

    >>> last_line("one\\ntwo\\n\\n")
    'two'
    """
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no output")


def table(results: Sequence[tuple[Cell, CellResult]], day: str) -> str:
    """Returns the page of the documentation."""
    parts = "".join(f"* {name}\n" for name in ("private facts of Spark", *_SUBSET, *_OF_SPARK_4_1, *_OF_KAFKA_4))
    rows = "".join(
        f"   * - {cell.spark}\n     - {cell.python}\n     - {cell.kafka}\n     - {in_words(result)}\n"
        for cell, result in results
    )
    return (
        "Tested versions\n===============\n\n"
        "``make test-matrix`` writes this page. Each row is a combination of versions that runs a part of the\n"
        f"integration tests:\n\n{parts}\n"
        "``make test-long`` runs all of them with Kafka 4.1.2 and PySpark 4.2.1. `versions.rst <versions.rst>`_ has the differences\n"
        "between versions. With Kafka 3 the group protocol is ``classic``, and the test of the command line is left out. With\n"
        "PySpark 4.0 the windows in Spark's state are left out. Kafka 4.2.2 and 4.4.0 are not in the table, because their\n"
        f"``kafka-tools`` are not in Maven Central. Results of {day}:\n\n"
        ".. list-table::\n   :header-rows: 1\n\n"
        f"   * - PySpark\n     - Python\n     - Kafka\n     - Result\n{rows}"
    )


def in_words(result: CellResult) -> str:
    """Returns the text of a result.

    >>> in_words(Passed(13, 80))
    '13 tests passed in 80 s'
    >>> in_words(NotAvailable("Python 3.14 is not installed"))
    'not available: Python 3.14 is not installed'
    """
    if isinstance(result, Passed):
        return f"{result.tests} tests passed in {result.took_s} s"
    return f"{'failed' if isinstance(result, Failed) else 'not available'}: {result.why}"


def main() -> int:
    """Runs all cells, one after the other. Returns the exit code: 1 if a cell has failed."""
    parser = argparse.ArgumentParser(prog="python -m integration_tests.matrix", description=__doc__)
    parser.add_argument("--out", type=Path, help="the file of the table; default: the standard output")
    parser.add_argument("--facts", metavar="PYSPARK", help="only the private facts of Spark, with this version")
    arguments = parser.parse_args()
    if arguments.facts is not None:
        return _only_facts(arguments.facts)
    out: Path | None = arguments.out
    results: list[tuple[Cell, CellResult]] = []
    for cell in CELLS:
        results.append((cell, run(cell)))
        sys.stderr.write(
            f"PySpark {cell.spark}, Python {cell.python}, Kafka {cell.kafka}: {in_words(results[-1][1])}\n"
        )
    page = table(results, f"{datetime.now(timezone.utc):%Y-%m-%d}")
    if out is None:
        sys.stdout.write(page)
    else:
        out.write_text(page, encoding="utf-8")
    return int(any(isinstance(result, Failed) for _, result in results))


def _only_facts(spark: str) -> int:
    """Runs the tests of private facts. Returns the exit code: 1 if they have not passed."""
    cell = next((it for it in CELLS if it.spark == spark), Cell(spark, CELLS[0].python, CELLS[0].kafka))
    found = run(cell, only_facts=True)
    sys.stdout.write(f"PySpark {cell.spark}, Python {cell.python}: {in_words(found)}\n")
    return int(not isinstance(found, Passed))


if __name__ == "__main__":
    sys.exit(main())
