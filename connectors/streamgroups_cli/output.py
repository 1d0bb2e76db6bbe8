"""How results are printed: as tables for people, as JSON, YAML or CSV for programs.

Used by every command that has ``--output``. Tables are rich ones on a terminal and plain columns elsewhere: a pipe gets whole
lines, whatever their length, without colours and frames. A table too long to be read is plain too, for it is printed at once.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise, takewhile
from typing import Annotated, Any, TypeAlias

import typer

from streamgroups.printable import printable

#: Of every JSON and YAML document: raised when a field is removed or changes its meaning.
SCHEMA_VERSION = 1

_MAX_FRAMED_ROWS = 500

Cell: TypeAlias = str | int | None


class Output(str, Enum):
    """How a result is printed."""

    table = "table"
    json = "json"
    yaml = "yaml"
    csv = "csv"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]
_NAMES_JSON = re.compile(r"(--output=|-v?o)json", re.IGNORECASE)
_NAMES_OUTPUT = re.compile(r"--output|-v?o")


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for JSON, read before it is parsed: errors of parsing are printed as JSON too.

    >>> wants_json(["groups", "list", "-o", "json"]), wants_json(["--output=json"]), wants_json(["list", "--", "-ojson"])
    (True, True, False)
    """
    options = list(takewhile(lambda argument: argument != "--", arguments))
    pairs = pairwise(options)
    return any(map(_NAMES_JSON.fullmatch, options)) or any(
        _NAMES_OUTPUT.fullmatch(name) and value.lower() == "json" for name, value in pairs
    )


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Args:
        name: its name in CSV; tables show it in capitals.
        right: whether its cells are numbers.
        style: the colour of a cell on a terminal, by its text.
    """

    name: str
    right: bool = False
    style: Callable[[str], str] | None = None

    @property
    def title(self) -> str:
        """What tables show above it."""
        return self.name.upper().replace("_", "-")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns; an unknown cell is ``None``.

    Args:
        columns: what they are.
        rows: one cell for each column.
        heading: a line above the table.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    heading: str = ""


def emit(
    output: Output,
    *,
    document: Callable[[], Mapping[str, Any]],
    tables: Callable[[], Sequence[Table]],
    flat: Callable[[], Table] | None = None,
) -> None:
    """Print a result.

    Args:
        output: how.
        document: makes what JSON and YAML show.
        tables: makes what a table shows.
        flat: makes what CSV shows; the first of ``tables`` if left out.
    """
    if output is Output.json:
        # A program needs no indentation, and without it printing is five times as fast.
        indent = 2 if sys.stdout.isatty() else None
        print(json_text({"schema_version": SCHEMA_VERSION, **document()}, indent=indent))
    elif output is Output.yaml:
        import yaml

        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        whole = {"schema_version": SCHEMA_VERSION, **document()}
        yaml.dump(whole, sys.stdout, Dumper=dumper, sort_keys=False, allow_unicode=True)
    elif output is Output.csv:
        print_csv(flat() if flat is not None else tables()[0])
    else:
        print_tables(tables())


def json_text(document: Mapping[str, Any], *, indent: int | None = None) -> str:
    r"""JSON in which every unprintable character is an escape.

    >>> print(json_text({"group": "é\x9b2J"}))
    {"group": "é\u009b2J"}
    """
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def print_csv(table: Table, *, headed: bool = False) -> None:
    """One line of names (unless it was printed before), one line a row (RFC 4180, with line feeds)."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if not headed:
        writer.writerow(column.name for column in table.columns)
    # A program gets every cell as it is; a terminal must not obey it.
    rows: Iterable[Sequence[Cell]] = table.rows
    if sys.stdout.isatty():
        rows = [[printable(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    writer.writerows(rows)


def print_tables(tables: Sequence[Table]) -> None:
    """All tables, an empty line between them."""
    framed = sys.stdout.isatty() and sum(len(t.rows) for t in tables) <= _MAX_FRAMED_ROWS
    if not framed:
        print("\n\n".join("\n".join(plain_lines(table)) for table in tables))
        return
    from rich.console import Console

    console = Console(highlight=False)
    for table in tables:
        if table.heading:
            console.print(printable(table.heading), markup=False, style="bold")
        if table.rows or not table.heading:
            console.print(rich_table(table))


def plain_lines(table: Table) -> Iterable[str]:
    """The table as lines of text, two spaces between columns.

    >>> print(*plain_lines(Table([Column("group"), Column("lag", right=True)], [["orders", 12], ["x", None]])), sep="\\n")
    GROUP   LAG
    orders   12
    x         -
    """
    if table.heading:
        yield printable(table.heading)
        if not table.rows:
            return
    rows = [[_text(cell) for cell in row] for row in table.rows]
    titles = [column.title for column in table.columns]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    form = "  ".join(f"{{:{'>' if c.right else '<'}{w}}}" for c, w in zip(table.columns, widths, strict=True))
    yield form.format(*titles).rstrip()
    for row in rows:
        yield form.format(*row).rstrip()


def rich_table(table: Table) -> Any:
    """The table for a terminal."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    framed = RichTable(box=box.SIMPLE_HEAD)
    for column in table.columns:
        framed.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
    for row in table.rows:
        texts = (_text(cell) for cell in row)
        styled = (
            Text(text, style=column.style(text) if column.style else "")
            for column, text in zip(table.columns, texts, strict=True)
        )
        framed.add_row(*styled)
    return framed


def say(text: str) -> None:
    """A word to the person at the terminal, on standard error: warnings, file names, what happens next."""
    print(printable(text, keep="\n"), file=sys.stderr)


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    # What a client calls itself may hold anything; a terminal must not obey it.
    return printable(str(cell))
