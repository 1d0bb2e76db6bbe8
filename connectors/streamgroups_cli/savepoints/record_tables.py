"""Shows the commit record and the operator records of a savepoint. ``create`` and ``show`` use it. Source: SEMANTICS C1."""

from __future__ import annotations

from typing import Any

from streamgroups.savepoints.checkpoint_record import CheckpointRecord
from streamgroups.savepoints.commit_record import CommitRecord
from streamgroups.savepoints.cut import state_of
from streamgroups.savepoints.output_record import OutputRecord
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
_LEDGER = Column("ledger", right=True)
_OUTPUT = (Column("output"), Column("table_version", right=True), Column("positions", right=True))
_CHECKPOINT = (Column("checkpoint_batch", right=True), Column("files", right=True), Column("bytes", right=True))
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
        *([Table(_OUTPUT, [_output_cells(record.output)])] if record.output is not None else []),
        *([Table(_CHECKPOINT, [_checkpoint_cells(record.checkpoint)])] if record.checkpoint is not None else []),
        Table(_position_columns(record), _position_cells(record)),
    ]


def savepoint_document(record: CommitRecord) -> dict[str, Any]:
    """The same as a document."""

    def named(columns: tuple[Column, ...], row: list[Cell]) -> dict[str, Cell]:
        return dict(zip((column.name for column in columns), row, strict=True))

    return {
        "savepoint": named(_RECORD, record_cells(record)),
        "operators": [named(_OPERATORS, row) for row in _operator_cells(record)],
        "output": None if record.output is None else named(_OUTPUT, _output_cells(record.output)),
        "checkpoint": None if record.checkpoint is None else named(_CHECKPOINT, _checkpoint_cells(record.checkpoint)),
        "positions": [named(_position_columns(record), row) for row in _position_cells(record)],
    }


def _operator_cells(record: CommitRecord) -> list[list[Cell]]:
    return [
        [it.name, it.states, it.rows, len(it.files), it.n_bytes, utc(it.watermark_ms), it.form]
        for it in record.operators
    ]


def _output_cells(output: OutputRecord) -> list[Cell]:
    return [output.name, output.table_version, len(output.positions)]


def _checkpoint_cells(checkpoint: CheckpointRecord) -> list[Cell]:
    return [checkpoint.batch_id, len(checkpoint.files), checkpoint.n_bytes]


def _position_columns(record: CommitRecord) -> tuple[Column, ...]:
    return _POSITIONS if record.output is None else (*_POSITIONS, _LEDGER)


def _position_cells(record: CommitRecord) -> list[list[Cell]]:
    return [
        [
            tp.topic,
            tp.partition,
            it.next_offset,
            _state(state_of(it.metadata)),
            utc(it.before_ms),
            *([] if record.output is None else [record.output.positions.get(tp)]),
        ]
        for tp, it in sorted(record.positions.items())
    ]


def _state(origin: StateOrigin) -> str | None:
    match origin:
        case Named(file=file) | Earlier(file=file):
            return str(file)
        case New():
            return "empty"
    return None
