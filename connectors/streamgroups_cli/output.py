"""The output formats of results: tables for people, and JSON, YAML or CSV for programs.

Every command with ``--output`` uses it. On a terminal, tables have colours and frames. Elsewhere they are plain
columns, so that a pipe receives whole lines of any length. A table with too many rows to read is plain too, because it
prints at once.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from itertools import pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgroups.errors import InvalidOption
from streamgroups.json_values import write_json
from streamgroups.printable import printable
from streamgroups.tables import Cell, Table, csv_line, plain_lines
from streamgroups_cli import standard_output

if TYPE_CHECKING:
    from rich.text import Text as RichText

#: The version of all JSON and YAML documents. It increases when a field is removed or changes its meaning.
SCHEMA_VERSION = 1

_MAX_FRAMED_ROWS = 500


class Output(str, Enum):
    """The format of a result."""

    table = "table"
    json = "json"
    yaml = "yaml"
    csv = "csv"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]
_NAMES_JSON = re.compile(r"(--output=|-v?o)json", re.IGNORECASE)
_NAMES_OUTPUT = re.compile(r"--output|-v?o")


def is_json_requested(arguments: Sequence[str]) -> bool:
    """Returns whether a command line requests JSON, before it is parsed, because parse errors are printed as JSON too.

    >>> is_json_requested(["groups", "list", "-o", "json"]), is_json_requested(["--output=json"]), is_json_requested(["list", "--", "-ojson"])
    (True, True, False)
    """
    options = list(takewhile(lambda argument: argument != "--", arguments))
    pairs = pairwise(options)
    return any(map(_NAMES_JSON.fullmatch, options)) or any(
        _NAMES_OUTPUT.fullmatch(name) and value.lower() == "json" for name, value in pairs
    )


def emit(
    output: Output,
    *,
    document: Callable[[], Mapping[str, Any]],
    tables: Callable[[], Sequence[Table]],
    flat: Callable[[], Table] | None = None,
) -> None:
    """Prints a result.

    Args:
        output: the format.
        document: returns the content of JSON and YAML.
        tables: returns the content of tables.
        flat: returns the content of CSV. Default: the first of ``tables``.
    """
    if output is Output.json:
        # A program needs no indentation, and printing without it is five times as fast.
        indent = 2 if sys.stdout.isatty() else None
        print(json_text({"schema_version": SCHEMA_VERSION, **document()}, indent=indent))
    elif output is Output.yaml:
        print(yaml_text({"schema_version": SCHEMA_VERSION, **document()}), end="")
    elif output is Output.csv:
        print_csv(flat() if flat is not None else tables()[0])
    else:
        print_tables(tables())


def emit_rows(output: Output, name: str, table: Table, **facts: object) -> None:
    """Prints a table, whose rows are a list in the document for programs.

    Args:
        output: the format.
        name: the name of the list.
        table: the table.
        facts: the other values of the document.
    """
    emit(output, document=lambda: {**facts, name: table.documents}, tables=lambda: [table])


def json_text(document: Mapping[str, Any], *, indent: int | None = None) -> str:
    r"""Returns JSON in which every unprintable character is an escape, and ``NaN`` and infinite numbers are texts.

    If standard output is not Unicode, each character that is not ASCII is an escape too.

    >>> print(json_text({"group": "é\x9b2J"}))
    {"group": "é\u009b2J"}
    """
    text = write_json(document, indent=indent)
    is_unicode = standard_output.is_unicode()
    if text.isprintable() and (is_unicode or text.isascii()):
        return text
    return "".join(
        c if c == "\n" or (c.isprintable() and (is_unicode or c.isascii())) else json.dumps(c)[1:-1] for c in text
    )


def yaml_text(document: Mapping[str, Any]) -> str:
    r"""Returns YAML in which every unprintable character is an escape.

    >>> print(yaml_text({"group": "é"}) + yaml_text({"group": "é\u202e"}), end="")
    group: é
    group: "\xE9\u202E"
    """
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True)
    if text.replace("\n", "").isprintable():
        return text
    # PyYAML escapes control characters, but not those that change the direction of a text.
    escaped: str = yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=False)
    return escaped


def print_csv(table: Table, *, headed: bool = False) -> None:
    """Prints one line of names (unless it was printed before) and one line per row (RFC 4180, with line feeds)."""
    if not headed:
        print(csv_line(column.name for column in table.columns))
    print_csv_rows(table.rows)


def print_csv_rows(rows: Iterable[Sequence[Cell]]) -> None:
    """Prints one line of CSV per row.

    A program receives every cell unchanged. A terminal must not interpret control characters, so it receives escapes.

    Args:
        rows: the cells of each row.
    """
    if sys.stdout.isatty():
        rows = ([printable(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    sys.stdout.writelines(f"{csv_line(row)}\n" for row in rows)


def print_tables(tables: Sequence[Table]) -> None:
    """Prints all tables with an empty line between them."""
    if not tables:
        return
    framed = sys.stdout.isatty() and sum(len(t.rows) for t in tables) <= _MAX_FRAMED_ROWS
    if not framed:
        print("\n\n".join("\n".join(plain_lines(table)) for table in tables))
        return
    from rich.console import Console

    console = Console(highlight=False)
    for line in terminal_texts(tables, console.width):
        console.print(line, soft_wrap=True)


def terminal_texts(tables: Sequence[Table], width: int) -> Iterator[RichText]:
    """Returns the lines of tables for a terminal, with an empty line between them."""
    from rich.text import Text

    from streamgroups_cli.terminal_tables import terminal_lines

    for number, table in enumerate(tables):
        if number:
            yield Text()
        if table.heading:
            yield Text(printable(table.heading), "bold")
        if table.rows or not table.heading:
            yield from terminal_lines(table, width)


def print_message(text: str) -> None:
    """Prints a line for people on standard error: a warning, a file name, or the next step."""
    print(printable(text, keep="\n"), file=sys.stderr)


@contextmanager
def page_file(file: Path) -> Iterator[None]:
    """Names the file of a page or an image that the ``with`` block cannot write.

    Raises:
        InvalidOption: if the block raises an ``OSError``.
    """
    try:
        yield
    except OSError as e:
        raise InvalidOption(f"{file} cannot be written: {e.strerror}.", remedy="Use another file.") from e
