"""The matrix of ``make test-matrix``: its cells are within the bounds of ``setup.cfg``, and the result of pytest
is interpreted correctly.
"""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from integration_tests.matrix import CELLS, Cell, CellResult, Failed, NotAvailable, Passed, outcome, table
from streamgroups_broker._releases import DEFAULT_KAFKA_VERSION

_ROOT = Path(__file__).parent.parent


def test_every_supported_python_is_in_a_cell() -> None:
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(_ROOT / "setup.cfg")
    prefix = "Programming Language :: Python :: 3."
    supported = {f"3.{line[len(prefix) :]}" for line in setup["metadata"]["classifiers"].splitlines() if prefix in line}
    assert supported == {cell.python for cell in CELLS}
    (pyspark,) = (
        Requirement(line) for line in setup["options.extras_require"]["spark"].split() if line.startswith("pyspark")
    )
    assert all(cell.spark in pyspark.specifier for cell in CELLS)
    assert DEFAULT_KAFKA_VERSION in {cell.kafka for cell in CELLS}


def test_a_cell_of_kafka_3_has_only_tests_of_the_classic_protocol() -> None:
    old, new = (Cell("4.2.1", "3.11", kafka).tests for kafka in ("3.9.2", "4.1.2"))
    assert not [it for it in old if "consumer" in it]
    assert not [it for it in new if "classic" in it]
    assert len(new) == len(old) + 1
    for test in (*old, *new):
        file, _, name = test.partition("::")
        text = (_ROOT / "integration_tests" / file).read_text(encoding="utf-8")
        assert f"def {name.partition('[')[0]}(" in text or not name


@pytest.mark.parametrize(
    ("exit_code", "output", "expected"),
    [
        (0, "....\n13 passed, 4 deselected in 70.3s (0:01:10)\n", Passed(13, 72)),
        (1, "1 failed, 9 passed in 70.3s\n", Failed("1 failed, 9 passed in 70.3s")),
        (0, "9 passed, 1 skipped in 70.3s\n", Failed("9 passed, 1 skipped in 70.3s")),
        (0, "9 passed in 70.3s\n", Passed(9, 72)),
        (1, "9 passed, 1 error in 70.3s\n", Failed("9 passed, 1 error in 70.3s")),
        (5, "4 deselected in 0.1s\n", Failed("4 deselected in 0.1s")),
        (-9, "", Failed("no output")),
    ],
)
def test_only_a_run_in_which_all_tests_pass_is_a_success(exit_code: int, output: str, expected: object) -> None:
    assert outcome(exit_code, output, 72) == expected


def test_the_table_shows_what_has_not_run_and_why() -> None:
    results: list[tuple[Cell, CellResult]] = [
        (Cell("4.3.0", "3.13", "4.3.1"), Passed(13, 80)),
        (Cell("4.2.0", "3.10", "4.0.2"), NotAvailable("no Python")),
        (Cell("4.2.1", "3.12", "4.2.2"), Failed("1 failed")),
    ]
    page = table(results, "2013-01-01")
    assert "Results of 2013-01-01" in page
    assert "* - 4.3.0\n     - 3.13\n     - 4.3.1\n     - 13 tests passed in 80 s\n" in page
    assert "     - 4.0.2\n     - not available: no Python\n" in page
    assert "     - 4.2.2\n     - failed: 1 failed\n" in page
