"""Tables: as lines of text and as HTML for people, and as CSV for programs.

The command line (``streamgroups_cli.output``) and the results of ``sg.event_time.explain_time`` and ``sg.groups.describe_group`` use it.
Source: IPython's rich display (``_repr_html_``).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from xml.etree.ElementTree import Element, SubElement, tostring

from streamgroups.printable import printable

Cell: TypeAlias = str | int | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Args:
        name: its name in CSV; tables show it in capitals.
        right: whether its cells are numbers, aligned to the right.
        style: returns the colour of a cell on a terminal from its text.
        rank: on a terminal that is too narrow, columns with the highest rank are left out first, and those with 0 never.
        is_prose: whether its cells are sentences, whose words a terminal can write on several lines.
    """

    name: str
    right: bool = False
    style: Callable[[str], str] | None = None
    rank: int = 0
    is_prose: bool = False

    @property
    def title(self) -> str:
        """The heading in tables."""
        return self.name.upper().replace("_", "-")


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a result.

    Args:
        columns: its columns.
        rows: its rows, with a cell for each column; ``None`` is an unknown value.
        heading: a line above it.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    heading: str = ""

    @property
    def documents(self) -> list[dict[str, Cell]]:
        """The rows for programs, by the names of the columns.

        >>> Table([Column("group"), Column("lag", right=True)], [["orders", 12]]).documents
        [{'group': 'orders', 'lag': 12}]
        """
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


def plain_lines(table: Table) -> Iterable[str]:
    """Returns the table as lines of text, with two spaces between columns.

    >>> print(*plain_lines(Table([Column("group"), Column("lag", right=True)], [["orders", 12], ["x", None]])), sep="\\n")
    GROUP   LAG
    orders   12
    x         -
    """
    if table.heading:
        yield printable(table.heading)
        if not table.rows:
            return
    rows = [[cell_text(cell) for cell in row] for row in table.rows]
    titles = [column.title for column in table.columns]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    form = "  ".join(f"{{:{'>' if c.right else '<'}{w}}}" for c, w in zip(table.columns, widths, strict=True))
    yield form.format(*titles).rstrip()
    for row in rows:
        yield form.format(*row).rstrip()


def html(table: Table) -> str:
    """Returns the table as HTML. All texts are escaped.

    >>> html(Table([Column("group"), Column("lag", right=True)], [["<orders>", 12]], "Two & three"))
    '<table><caption style="text-align: left">Two &amp; three</caption><thead><tr><th style="text-align: left">GROUP</th>\
<th style="text-align: right">LAG</th></tr></thead><tbody><tr><td style="text-align: left">&lt;orders&gt;</td>\
<td style="text-align: right">12</td></tr></tbody></table>'
    """
    element = Element("table")
    if table.heading:
        SubElement(element, "caption", style="text-align: left").text = printable(table.heading)
    head = SubElement(SubElement(element, "thead"), "tr")
    styles = [f"text-align: {'right' if column.right else 'left'}" for column in table.columns]
    for column, style in zip(table.columns, styles, strict=True):
        SubElement(head, "th", style=style).text = column.title
    body = SubElement(element, "tbody")
    for row in table.rows:
        line = SubElement(body, "tr")
        for cell, style in zip(row, styles, strict=True):
            SubElement(line, "td", style=style).text = cell_text(cell)
    return tostring(element, encoding="unicode", method="html")


def cell_text(cell: Cell) -> str:
    """Returns a cell as text, without control characters: names of clients can contain them.

    >>> cell_text(None), cell_text(12), cell_text("bell\\a")
    ('-', '12', 'bell\\\\x07')
    """
    return "-" if cell is None else printable(str(cell))


def csv_line(cells: Iterable[object]) -> str:
    r"""Returns a line of CSV without its end (RFC 4180).

    A cell with a carriage return or a line feed is quoted. Python quotes a carriage return only if it is part of the line
    terminator (before 3.13).

    Args:
        cells: the cells. ``None`` is an empty cell.

    >>> csv_line(["a", None, 7, "b,c", "d\re"])
    'a,,7,"b,c","d\re"'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n")
