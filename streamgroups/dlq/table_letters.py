"""Dead letters as rows of a table, and which of them a purge deletes.

Called by the commands ``streamgroups dlq`` with the rows of ``streamgroups_sinks.postgres.letters``. Any client can write to the
table, so a row is checked like a record. Source: SEMANTICS P4, P5; :data:`streamgroups.dlq.letter.LETTER`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from streamgroups.dlq.letter import DeadLetter, Origin
from streamgroups.dlq.record_headers import origin_of, valid_attempt
from streamgroups.dlq.redrive import State
from streamgroups.dlq.stored_letters import Foreign, StoredLetter, TableLetter, check_facts
from streamgroups.json_values import read_json

#: A row of a table of dead letters, by its columns. ``failed_at_ms`` and ``timestamp_ms`` are in milliseconds since the
#: epoch, ``details`` and ``headers`` are JSON texts.
Row: TypeAlias = Mapping[str, Any]
_Value = TypeVar("_Value")
_TOPIC_PART = re.compile("[A-Za-z0-9_-]+")
#: Kafka's limit is 249 characters, and the topic of redriven ids has a suffix.
_NAME_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class ForeignRow:
    """A row that is no dead letter of this library.

    Args:
        table: the table, with its schema.
        problem: the malformed column.
    """

    table: str
    problem: str

    @property
    def place(self) -> str:
        """The table."""
        return f"a row of table {self.table}"


#: A record or a row that is no dead letter.
AnyForeign: TypeAlias = Foreign | ForeignRow
#: A dead letter in a topic or in a table.
AnyLetter: TypeAlias = StoredLetter | TableLetter


class LetterTable(Protocol):
    """A table of dead letters."""

    @property
    def table(self) -> str:
        """Its name, with its schema."""

    @property
    def queue(self) -> str:
        """The name of the queue: see :func:`queue_name`."""

    def rows(self, ids: Collection[str] = ()) -> Iterator[Row]:
        """Reads the rows, those of the earliest failure first.

        Args:
            ids: only letters with these ids. Empty: all.

        Raises:
            StreamGroupsError: if the table cannot be read.
        """

    def delete(self, letters: Sequence[tuple[str, int]]) -> int:
        """Deletes letters in one transaction. A letter that was written again since it was read remains.

        Args:
            letters: the id of each letter, and the time of its failure in milliseconds since the epoch.

        Returns:
            The number of deleted rows.

        Raises:
            StreamGroupsError: if nothing was deleted, or if the result is unknown.
        """


def queue_name(database: str, schema: str, table: str) -> str:
    """Returns the name of the queue of a table. The topic of redriven ids and the transactional id contain it.

    A name with characters that a topic cannot contain has a hash instead of them.

    >>> queue_name("airport", "public", "letters")
    'airport.public.letters'
    >>> queue_name("airport", "public", "dead letters")
    'airport.public.dead_letters.33444542c1b350a0'
    """
    parts = (database, schema, table)
    name = ".".join(parts)
    if all(map(_TOPIC_PART.fullmatch, parts)) and len(name) <= _NAME_CHARACTERS:
        return name
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    # A hash distinguishes names that are equal after the replacement.
    return f"{re.sub('[^A-Za-z0-9._-]', '_', name)[: _NAME_CHARACTERS - 17]}.{digest}"


def letter_of(row: Row, table: str) -> TableLetter | ForeignRow:
    """Returns the letter of a row.

    Args:
        row: the row.
        table: the table, with its schema.

    >>> letter_of({"id": None}, "public.letters").problem
    "column 'id' is null"
    """
    try:
        letter = DeadLetter(
            id=_text(row, "id"),
            group_id=_text(row, "group_id"),
            query=_text(row, "query"),
            failed_at_ms=_number(row, "failed_at_ms"),
            attempt=valid_attempt(_number(row, "attempt")),
            step=_text(row, "step"),
            error_class=_text(row, "error_class"),
            error=_text(row, "error"),
            details=read_json(row["details"]) if row["details"] is not None else {},
            origin=_origin(row),
            key=_bytes(row, "key"),
            value=_bytes(row, "value"),
            headers=tuple(_headers(row["headers"])),
        )
        check_facts(letter)
    except (ValueError, RecursionError) as e:
        return ForeignRow(table, str(e))
    return TableLetter(table, letter)


@dataclass(frozen=True, slots=True)
class TablePurge:
    """The letters that are deleted from a table.

    Args:
        letters: the id of each letter, and the time of its failure in milliseconds since the epoch.
        deleted: the number of letters by their states.
    """

    letters: Sequence[tuple[str, int]]
    deleted: Mapping[State, int]


def plan_table_purge(
    letters: Iterable[tuple[DeadLetter, State]], *, before_ms: int | None = None, include_waiting: bool = False
) -> TablePurge:
    """Returns which letters of a table are deleted.

    Args:
        letters: all letters of the table with their states.
        before_ms: only letters that failed before this time are deleted. ``None``: all.
        include_waiting: whether letters that were not redriven are deleted too.
    """
    due = [
        (letter.id, letter.failed_at_ms, state)
        for letter, state in letters
        if (before_ms is None or letter.failed_at_ms < before_ms) and (include_waiting or state is State.REDRIVEN)
    ]
    return TablePurge([(identity, failed_at_ms) for identity, failed_at_ms, _ in due], Counter(it[2] for it in due))


def _origin(row: Row) -> Origin | None:
    if row["topic"] is None or row["partition"] is None or row["offset"] is None:
        return None
    return origin_of(_text(row, "topic"), _number(row, "partition"), _number(row, "offset"), row["timestamp_ms"])


def _headers(text: str | None) -> Iterator[tuple[str, bytes | None]]:
    headers = [] if text is None else read_json(text)
    if not isinstance(headers, list):
        raise ValueError("column 'headers' is no array")
    for header in headers:
        if not isinstance(header, dict) or not isinstance(header.get("key"), str):
            raise ValueError("column 'headers' contains an element without a key")
        value = header.get("value")
        if not isinstance(value, str | None):
            raise ValueError("column 'headers' contains a value that is no text")
        yield header["key"], None if value is None else base64.b64decode(value, validate=True)


def _text(row: Row, column: str) -> str:
    return _of_type(row, column, str)


def _number(row: Row, column: str) -> int:
    return _of_type(row, column, int)


def _bytes(row: Row, column: str) -> bytes | None:
    return None if row[column] is None else _of_type(row, column, bytes)


def _of_type(row: Row, column: str, of: type[_Value]) -> _Value:
    value = row[column]
    if value is None:
        raise ValueError(f"column '{column}' is null")
    if not isinstance(value, of):
        raise ValueError(f"column '{column}' has a value of type {type(value).__name__}")
    return value
