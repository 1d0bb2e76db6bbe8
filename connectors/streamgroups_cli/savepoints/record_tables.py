"""Shows the commit record and the operator records of a savepoint. ``create`` and ``show`` use it. Source: SEMANTICS C1."""

from __future__ import annotations

from typing import Any

from streamgroups.savepoints.commit_record import CommitRecord
from streamgroups.savepoints.cut import state_of
from streamgroups.state.origins import Earlier, Named, New, StateOrigin
from streamgroups.tables import Cell, Column, Table
from streamgroups.times import utc

_RECORD = (
    Column("id"),
    Column("group"),
    Column("created"),
    Column("version"),
    Column("partitions", right=True),
    Column("operators", right=True),
    Column("files", right=True),
    Column("bytes", right=True),
)
_POSITIONS = (
    Column("topic"),
    Column("partition", right=True),
    Column("offset", right=True),
    Column("state"),
    Column("time"),
)
_OPERATORS = (
    Column("operator"),
    Column("states", right=True),
    Column("rows", right=True),
    Column("files", right=True),
    Column("bytes", right=True),
    Column("watermark"),
    Column("form", is_prose=True),
)


def record_columns() -> tuple[Column, ...]:
    """The columns of :func:`record_cells`."""
    return _RECORD


def record_cells(record: CommitRecord) -> list[Cell]:
    """One line about a savepoint."""
    return [
        record.id,
        record.group_id,
        utc(record.made_ms),
        record.made_by,
        len(record.positions),
        len(record.operators),
        sum(len(it.files) for it in record.operators),
        sum(it.n_bytes for it in record.operators),
    ]


def savepoint_tables(record: CommitRecord) -> list[Table]:
    """The commit record, the operator records, and the positions."""
    return [
        Table(_RECORD, [record_cells(record)]),
        *([Table(_OPERATORS, _operator_cells(record))] if record.operators else []),
        Table(_POSITIONS, _position_cells(record)),
    ]


def savepoint_document(record: CommitRecord) -> dict[str, Any]:
    """The same as a document."""

    def named(columns: tuple[Column, ...], row: list[Cell]) -> dict[str, Cell]:
        return dict(zip((column.name for column in columns), row, strict=True))

    return {
        "savepoint": named(_RECORD, record_cells(record)),
        "operators": [named(_OPERATORS, row) for row in _operator_cells(record)],
        "positions": [named(_POSITIONS, row) for row in _position_cells(record)],
    }


def _operator_cells(record: CommitRecord) -> list[list[Cell]]:
    return [
        [it.name, it.states, it.rows, len(it.files), it.n_bytes, utc(it.watermark_ms), it.form]
        for it in record.operators
    ]


def _position_cells(record: CommitRecord) -> list[list[Cell]]:
    return [
        [tp.topic, tp.partition, it.next_offset, _state(state_of(it.metadata)), utc(it.before_ms)]
        for tp, it in sorted(record.positions.items())
    ]


def _state(origin: StateOrigin) -> str | None:
    match origin:
        case Named(file=file) | Earlier(file=file):
            return str(file)
        case New():
            return "empty"
    return None
