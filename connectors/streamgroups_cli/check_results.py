"""Prints check results: one line each, their remedies, and a summary.

Called by ``doctor`` and ``connections test``. Exit code 1 reports a problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import typer

from streamgroups.doctor.check_results import Finding, State, worst
from streamgroups.tables import Cell, Column, Table
from streamgroups_cli.output import Output, emit

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}
#: In tables a remedy has a line of its own.
_COLUMNS = (
    Column("state", style=lambda text: _STYLES.get(text, "")),
    *map(Column, ("about", "in_use")),
    Column("what", is_prose=True),
)
_FLAT = (*_COLUMNS, Column("remedy"))


def emit_results(findings: Sequence[Finding], output: Output) -> None:
    """Prints check results.

    Args:
        findings: the results.
        output: the format.

    Raises:
        typer.Exit: if one of them is a problem.
    """
    documents = [{**asdict(finding), "state": finding.state.value} for finding in findings]
    emit(
        output,
        document=lambda: {"state": worst(findings).value, "findings": documents},
        tables=lambda: [Table(_COLUMNS, list(_rows(findings)))],
        flat=lambda: Table(_FLAT, [[found[column.name] for column in _FLAT] for found in documents]),
    )
    if output is Output.table:
        print(_summary(findings))
    if worst(findings) is State.PROBLEM:
        raise typer.Exit(1)


def _rows(findings: Sequence[Finding]) -> Iterator[list[Cell]]:
    for finding in findings:
        yield [finding.state.value, finding.about, finding.in_use or "", finding.what]
        if finding.remedy:
            yield ["", "", "", f"→ {finding.remedy}"]


def _summary(findings: Sequence[Finding]) -> str:
    """Returns the last line.

    >>> from streamgroups.doctor.check_results import problem, warning
    >>> broken, slow = problem("java", "", ""), warning("reader", "", "")
    >>> print(_summary([]), _summary([broken]), _summary([broken, slow, broken]), sep=" | ")
    No problems found. | 1 problem. | 2 problems, 1 warning.
    """
    counts = {word: sum(finding.state.value == word for finding in findings) for word in ("problem", "warning")}
    words = [f"{n} {word}{'' if n == 1 else 's'}" for word, n in counts.items() if n]
    return f"{', '.join(words)}." if words else "No problems found."
