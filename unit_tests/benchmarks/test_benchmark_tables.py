"""The table shows the results, on a terminal and in the documents, and hides no failure."""

from __future__ import annotations

import io

from rich.console import Console

from benchmarks.figures import MS, RECORDS_PER_S, Missing, Row, median_of
from benchmarks.tables import remarks, rst, terminal_table

FAST = Row(
    "batch read", RECORDS_PER_S, median_of([9.0, 10.0, 11.0]), "kafka", median_of([5e6, 5.5e6, 4e6]), ratio=2 / 1e6
)
SLOW = Row("batch read", RECORDS_PER_S, FAST.own, "kafka, 20 ms", median_of([4e6]), ratio=None)
BROKEN = Row("trigger", MS, Missing("us: ValueError: *broken* by |x_"), "kafka", median_of([1.0]), ratio=None)
ABSENT = Row("join", MS, median_of([1.0]), "kafka", Missing("kafka: it cannot", is_failure=False), ratio=None)
ROWS = [FAST, SLOW, BROKEN, ABSENT]


def _shown(rows: list[Row]) -> str:
    text = io.StringIO()
    Console(file=text, width=160).print(terminal_table(rows))
    return text.getvalue()


def test_a_measurement_is_named_once_for_all_its_peers() -> None:
    shown = _shown(ROWS)
    assert shown.count("batch read") == 1
    assert shown.count("kafka, 20 ms") == 1
    assert "10.0" in shown
    assert "9.00 to 11.0" in shown
    assert "4,000,000 to 5,500,000" in shown


def test_missing_figures_show() -> None:
    shown = _shown(ROWS)
    assert "failed" in shown
    assert "—" in shown


def test_each_remark_is_printed_once() -> None:
    assert remarks([BROKEN, BROKEN, ABSENT, ABSENT]) == [
        "trigger: us: ValueError: *broken* by |x_",
        "kafka: it cannot",
    ]


def test_the_document_has_every_cell_the_remarks_and_the_machine() -> None:
    text = rst(ROWS, {"Processor": "x86_64"}, ["A remark."])
    lines = text.splitlines()
    assert sum(line.startswith("   * - ") for line in lines) == 1 + len(ROWS)
    cells = [line for line in lines if line.startswith(("   * -", "     -"))]
    assert len(cells) == 8 * (1 + len(ROWS))
    assert "   * - batch read" in lines
    assert "* A remark." in lines
    assert "* Processor: x86\\_64" in lines
    assert "* trigger: us: ValueError: \\*broken\\* by \\|x\\_" in lines
