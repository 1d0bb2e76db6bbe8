"""Tables for a terminal: columns that fit its width, and numbers and names that are never broken.

``streamgroups_cli.output`` calls it. Columns without any value are left out. If the others are too wide, the words of
headings are written below each other, and then the least important columns are left out, which a line below the table
names. A row that is still too wide overflows, as with Kafka's own tools: the terminal breaks it, and a copy of it is
whole.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from streamgroups.tables import Cell, Column, Table, cell_text

_GAP = 2
#: The minimum width of a column of prose.
_MIN_PROSE = 30


@dataclass(frozen=True, slots=True)
class _Shown:
    """A column that is shown, with the texts of its cells."""

    column: Column
    cells: Sequence[str]

    def title(self, *, is_split: bool) -> list[str]:
        return self.column.title.split("-") if is_split else [self.column.title]

    def width(self, *, is_split: bool) -> int:
        """The width of its longest cell or line of its heading."""
        cells = [_MIN_PROSE] if self.column.is_prose else map(cell_len, self.cells)
        return max(*map(cell_len, self.title(is_split=is_split)), *cells, 0)


def terminal_lines(table: Table, width: int) -> list[Text]:
    """Returns the lines of a table. Without prose, a line is wider than the terminal only if names need it.

    Args:
        table: the table. Its heading is left out.
        width: the width of the terminal.

    >>> lag = Table([Column("group"), Column("lag", right=True), Column("host", rank=1)], [["orders", 12, "10.0.0.1"]])
    >>> print(*terminal_lines(lag, 24), sep="\\n")
    GROUP   LAG  HOST
    ─────────────────────
    orders   12  10.0.0.1
    >>> print(*terminal_lines(lag, 12), sep="\\n")
    GROUP   LAG
    ───────────
    orders   12
    Too narrow for: HOST.
    """
    columns = [
        _Shown(column, [cell_text(row[i]) for row in table.rows])
        for i, column in enumerate(table.columns)
        if not table.rows or any(_has_value(row[i]) for row in table.rows)
    ]
    hidden: list[str] = []
    while _width(columns, is_split=True) > width:
        rank = max(it.column.rank for it in columns)
        if not rank:
            break
        hidden += [it.column.title for it in columns if it.column.rank == rank]
        columns = [it for it in columns if it.column.rank < rank]
    lines = list(_lines(columns, width, is_split=_width(columns, is_split=False) > width))
    return [*lines, Text(f"Too narrow for: {', '.join(hidden)}.", "bright_black")] if hidden else lines


def _has_value(cell: Cell) -> bool:
    return cell is not None and cell != ""


def _width(columns: Sequence[_Shown], *, is_split: bool) -> int:
    return sum(it.width(is_split=is_split) for it in columns) + _GAP * (len(columns) - 1)


def _lines(columns: Sequence[_Shown], width: int, *, is_split: bool) -> Iterator[Text]:
    widths = [it.width(is_split=is_split) for it in columns]
    spare = max(width - _width(columns, is_split=is_split), 0)
    for i, it in enumerate(columns):
        if it.column.is_prose:
            widths[i] += min(spare, max(0, *map(cell_len, it.cells)) - widths[i] if it.cells else 0)
    titles = [it.title(is_split=is_split) for it in columns]
    height = max(map(len, titles), default=0)
    for n in range(height):
        line = [title[n - height + len(title)] if n >= height - len(title) else "" for title in titles]
        yield _line(columns, line, widths, "bold")
    yield Text("─" * (sum(widths) + _GAP * (len(widths) - 1)), "bright_black")
    for cells in zip(*(it.cells for it in columns), strict=True):
        parts = [
            textwrap.wrap(cell, w, break_long_words=False, break_on_hyphens=False) or [""]
            if it.column.is_prose
            else [cell]
            for it, cell, w in zip(columns, cells, widths, strict=True)
        ]
        for n in range(max(map(len, parts), default=0)):
            yield _line(columns, [part[n] if n < len(part) else "" for part in parts], widths)


def _line(columns: Sequence[_Shown], cells: Sequence[str], widths: Sequence[int], style: str = "") -> Text:
    line = Text()
    for i, (it, cell, width) in enumerate(zip(columns, cells, widths, strict=True)):
        space = " " * (width - cell_len(cell))
        own = style or (it.column.style(cell) if it.column.style and cell else "")
        line.append(" " * (_GAP if i else 0) + (space if it.column.right else ""))
        line.append(cell, own)
        line.append("" if it.column.right else space)
    line.rstrip()
    return line
