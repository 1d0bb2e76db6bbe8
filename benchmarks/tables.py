"""The table for a terminal and as reStructuredText. Pure functions from rows to text.

Used by ``benchmarks.command``. ``docs/benchmarks.rst`` includes the file of the option ``--out``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.table import Table

from benchmarks.figures import Cell, Missing, Row

TITLE = "streamgroups beside others; a ratio above 1 means that streamgroups is faster"
_HEADER = ("measured", "unit", "ours", "spread", "peer", "peer's", "spread", "ratio")
_RIGHT = {"ours", "peer's", "ratio", "spread"}
_WIDTHS = (28, 8, 10, 12, 18, 10, 12, 6)


def number(value: float) -> str:
    """A number with at least three digits.

    >>> [number(value) for value in (1_451_234.0, 207.4, 20.74, 2.074, 0.0)]
    ['1,451,234', '207', '20.7', '2.07', '0.00']
    """
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def value_text(cell: Cell) -> str:
    """The number of a figure; a dash for a missing one.

    >>> value_text(Missing("it cannot", is_failure=False)), value_text(Missing("it broke"))
    ('—', 'failed')
    """
    if isinstance(cell, Missing):
        return "failed" if cell.is_failure else "—"
    return number(cell.value)


def spread_text(cell: Cell) -> str:
    """The range from the lowest to the highest round.

    >>> from benchmarks.figures import Figure
    >>> spread_text(Figure(2.0, 1.0, 3.0, 3)), spread_text(Figure(2.0, 2.0, 2.0, 1))
    ('1.00 to 3.00', '1 round')
    """
    if isinstance(cell, Missing):
        return ""
    return f"{number(cell.low)} to {number(cell.high)}" if cell.rounds > 1 else "1 round"


def cells(row: Row) -> tuple[str, ...]:
    """The texts of a row, in the order of the columns."""
    return (
        row.what,
        row.unit.name,
        value_text(row.own),
        spread_text(row.own),
        row.peer,
        value_text(row.other),
        spread_text(row.other),
        "" if row.ratio is None else f"{row.ratio:.2f}",
    )


def remarks(rows: Iterable[Row]) -> list[str]:
    """The reasons of missing figures, each once, in the order of the table. A failure includes the name of its
    measurement.
    """
    missing = [(r.what, c) for r in rows for c in (r.own, r.other) if isinstance(c, Missing) and c.why]
    return list(dict.fromkeys(f"{what}: {c.why}" if c.is_failure else c.why for what, c in missing))


def terminal_table(rows: Sequence[Row]) -> Table:
    """The table for a terminal. Ratios of at least 1 are green, others red."""
    table = Table(title=TITLE)
    for name in _HEADER:
        table.add_column(name, justify="right" if name in _RIGHT else "left", overflow="fold")
    before = ""
    for row in rows:
        what, *others, shown = cells(row)
        if row.ratio is not None:
            shown = f"[{'green' if row.ratio >= 1 else 'red'}]{shown}[/]"
        if what == before:
            # The same measurement with another peer does not repeat our figure.
            others[:3] = "", "", ""
            what = ""
        elif before:
            table.add_section()
        table.add_row(what, *others, shown)
        before = row.what
    return table


def rst(rows: Sequence[Row], machine: Mapping[str, str], footnotes: Sequence[str]) -> str:
    """The table for the documentation.

    Args:
        rows: the rows of the table.
        machine: the machine and the versions, by name.
        footnotes: the sentences below the table.

    Returns:
        a document with one table.
    """
    lines = [
        ".. Made by python -m benchmarks --out; not to be edited.",
        "",
        "Benchmark table",
        "===============",
        "",
        f".. list-table:: {TITLE}",
        "   :header-rows: 1",
        f"   :widths: {' '.join(map(str, _WIDTHS))}",
        "",
    ]
    for texts in (_HEADER, *map(cells, rows)):
        for i, text in enumerate(texts):
            marker = "   * - " if i == 0 else "     - "
            lines.append(f"{marker}{_escaped(text)}".rstrip())
    lines.append("")
    for footnote in (*footnotes, *remarks(rows)):
        lines += [f"* {_escaped(footnote)}"]
    lines += ["", "It ran on:", ""]
    lines += [f"* {_escaped(name)}: {_escaped(value)}" for name, value in machine.items()]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """Escaped text for reStructuredText, in one line.

    >>> _escaped("a*b` |c_\\nd")
    'a\\\\*b\\\\` \\\\|c\\\\_ d'
    """
    return "".join(f"\\{c}" if c in "\\*`|_" else c for c in " ".join(text.split()))
