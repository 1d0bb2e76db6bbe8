"""Prints check results: one line each, their remedies, and a summary.

Called by ``doctor`` and ``connections test``. Exit code 1 reports a problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import typer

from streamgroups.doctor.check_results import CheckResult, State, worst
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


def emit_results(results: Sequence[CheckResult], output: Output) -> None:
    """Prints check results.

    Args:
        results: the results.
        output: the format.

    Raises:
        typer.Exit: if one of them is a problem.
    """
    documents = [{**asdict(result), "state": result.state.value} for result in results]
    emit(
        output,
        document=lambda: {"state": worst(results).value, "results": documents},
        tables=lambda: [Table(_COLUMNS, list(_rows(results)))],
        flat=lambda: Table(_FLAT, [[found[column.name] for column in _FLAT] for found in documents]),
    )
    if output is Output.table:
        print(_summary(results))
    if worst(results) is State.PROBLEM:
        raise typer.Exit(1)


def _rows(results: Sequence[CheckResult]) -> Iterator[list[Cell]]:
    for result in results:
        yield [result.state.value, result.about, result.in_use or "", result.what]
        if result.remedy:
            yield ["", "", "", f"→ {result.remedy}"]


def _summary(results: Sequence[CheckResult]) -> str:
    """Returns the last line.

    >>> from streamgroups.doctor.check_results import problem, warning
    >>> broken, slow = problem("java", "", ""), warning("reader", "", "")
    >>> print(_summary([]), _summary([broken]), _summary([broken, slow, broken]), sep=" | ")
    No problems found. | 1 problem. | 2 problems, 1 warning.
    """
    counts = {word: sum(result.state.value == word for result in results) for word in ("problem", "warning")}
    words = [f"{n} {word}{'' if n == 1 else 's'}" for word, n in counts.items() if n]
    return f"{', '.join(words)}." if words else "No problems found."
