"""Prints records and messages for ``topics tail`` and ``cursors get``.

Values that are not text are printed as hexadecimal digits, and no output can move the cursor of a terminal. A stream
has no end, so ``json`` prints one object a line, ``yaml`` one document a record.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from enum import Enum
from typing import Annotated, Any

import typer

from streamgroups.message import Message
from streamgroups.tables import csv_line
from streamgroups.times import utc
from streamgroups_cli.output import Output, json_text, print_csv_rows, yaml_text

_COLUMNS = ("time", "topic", "partition", "offset", "key", "value")
_CHARACTERS_SHOWN = 200


class Show(str, Enum):
    """The format of keys and values."""

    auto = "auto"
    text = "text"
    hex = "hex"


ShowOption = Annotated[
    Show,
    typer.Option(
        help="Format of keys and values: auto prints printable UTF-8 as text, and other bytes as hexadecimal."
    ),
]
FullOption = Annotated[bool, typer.Option("--full", help="Do not truncate long values in tables.")]


class RecordPrinter:
    """Prints records one by one, as they arrive.

    Args:
        output: the format.
        show: the format of keys and values.
        full: whether tables contain long values in full.
    """

    def __init__(self, output: Output, show: Show, full: bool) -> None:
        self._output, self._show, self._full = output, show, full
        self._headed = False

    def print(self, records: Iterable[Message]) -> None:
        """Prints each record when it arrives. It can be called again with more records."""
        if self._output is Output.csv and not self._headed:
            print(csv_line(_COLUMNS))
            self._headed = True
        for record in records:
            self._one(record)
            # With --follow, each record must be visible when it arrives.
            sys.stdout.flush()

    def document(self, record: Message) -> dict[str, Any]:
        """Returns a record as an object of a JSON or YAML document."""
        headers = [[name, self._words(value)] for name, value in record.headers]
        key, value = self._words(record.key), self._words(record.value)
        return {**dict(zip(_COLUMNS, [*self._place(record), key, value], strict=True)), "headers": headers}

    def _one(self, record: Message) -> None:
        if self._output is Output.json:
            print(json_text(self.document(record)))
        elif self._output is Output.yaml:
            print("---")
            print(yaml_text(self.document(record)), end="")
        elif self._output is Output.csv:
            print_csv_rows([[*self._place(record), self._words(record.key), self._words(record.value)]])
        else:
            key, value = (self._cut(self._words(field)) for field in (record.key, record.value))
            print(f"{utc(record.timestamp_ms) or '-'} {record.topic_partition}@{record.offset} {key} {value}")

    def _place(self, record: Message) -> list[str | int | None]:
        tp = record.topic_partition
        return [utc(record.timestamp_ms), tp.topic, tp.partition, record.offset]

    def _words(self, field: bytes | None) -> str | None:
        return None if field is None else words_of(field, self._show)

    def _cut(self, text: str | None) -> str:
        if text is None:
            return "null"
        safe = text if text.isprintable() else json.dumps(text, ensure_ascii=True)
        if self._full or len(safe) <= _CHARACTERS_SHOWN:
            return safe
        return f"{safe[:_CHARACTERS_SHOWN]}… ({len(safe)} characters)"


def words_of(field: bytes, show: Show) -> str:
    """Returns a key or value as text or as hexadecimal digits.

    >>> words_of(b"BOS", Show.auto), words_of(b"\\xff\\x00", Show.auto), words_of(b"BOS", Show.hex)
    ('BOS', '0xff00', '0x424f53')
    >>> words_of(b"\\x1b[2J", Show.auto)  # would clear a terminal
    '0x1b5b324a'
    >>> words_of(b"\\xff!", Show.text)
    '�!'
    """
    if show is Show.text:
        return field.decode(errors="replace")
    if show is Show.auto:
        try:
            text = field.decode()
        except UnicodeDecodeError:
            text = "\0"
        if all(c.isprintable() or c in "\t\r\n" for c in text):
            return text
    return f"0x{field.hex()}"
