"""The staged rows of a batch in order, and their division into statements. Pure functions.

Used by ``merging`` and ``bad_row_search``. Rows have positions: the rows of the first task, then those of the second one, and so
on. Source: PostgreSQL's documentation, "INSERT" (ON CONFLICT: a statement must not write a row twice), "WITH Queries"
(a statement does not see its own changes).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from streamgroups_sinks.postgres.stages import PostgresStaged


@dataclass(frozen=True, slots=True)
class TaskRows:
    """Adjacent staged rows of one attempt of a task.

    Args:
        attempt: the number of the attempt.
        first: the number of the first row.
        end: the number after that of the last row.
    """

    attempt: int
    first: int
    end: int


#: Rows that are written together, in order.
Piece: TypeAlias = tuple[TaskRows, ...]


@dataclass(frozen=True, slots=True)
class Break:
    """A position where a statement may have to end.

    Args:
        position: the position of the row.
        previous: the position of the previous row with the same key. ``None`` if it has none.
        deletes: whether the row only deletes.
    """

    position: int
    previous: int | None
    deletes: bool


@dataclass(frozen=True, slots=True)
class Run:
    """Adjacent rows that one statement can write as if they were written one by one.

    Args:
        first: the position of the first row.
        end: the position after that of the last row.
        deletes: whether all rows only delete. Otherwise none does.
    """

    first: int
    end: int
    deletes: bool


def rows_of(tasks: Iterable[PostgresStaged]) -> Piece:
    """Returns all rows of the tasks, in order."""
    return tuple(TaskRows(task.attempt, 0, task.n_rows) for task in tasks if task.n_rows)


def count(piece: Piece) -> int:
    """Returns the number of rows of a piece."""
    return sum(it.end - it.first for it in piece)


def cut(piece: Piece, first: int, end: int) -> Piece:
    """Returns the rows of a piece with these positions.

    Args:
        piece: the rows.
        first: the position of the first row.
        end: the position after that of the last row.

    >>> cut((TaskRows(7, 0, 3), TaskRows(9, 5, 8)), 2, 5)
    (TaskRows(attempt=7, first=2, end=3), TaskRows(attempt=9, first=5, end=7))
    """
    found, before = [], 0
    for rows in piece:
        n_rows = rows.end - rows.first
        here = TaskRows(rows.attempt, rows.first + max(first - before, 0), rows.first + min(end - before, n_rows))
        if here.first < here.end:
            found.append(here)
        before += n_rows
    return tuple(found)


def runs(n_rows: int, breaks: Sequence[Break]) -> list[Run]:
    """Divides rows into as few statements as possible. The rows of a statement have different keys.

    Args:
        n_rows: the number of rows.
        breaks: in order: the first row, each row that deletes if the row before does not or the reverse, and each row
            whose key a row before has.

    >>> runs(4, [Break(0, None, False), Break(2, 0, False), Break(3, None, True)])
    [Run(first=0, end=2, deletes=False), Run(first=2, end=3, deletes=False), Run(first=3, end=4, deletes=True)]
    """
    found: list[Run] = []
    first, deletes = 0, breaks[0].deletes if breaks else False
    for it in breaks[1:]:
        if it.deletes != deletes or (it.previous is not None and it.previous >= first):
            found.append(Run(first, it.position, deletes))
            first, deletes = it.position, it.deletes
    return [*found, Run(first, n_rows, deletes)]
