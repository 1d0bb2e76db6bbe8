"""Rows in blocks: the stage stores rows in the format of COPY, and the commit copies them to the table.

``sink`` decides whether a batch is staged in blocks, ``copy_to_stage`` encodes them in tasks, and ``merging`` writes them. A block
contains whole rows of one attempt, so blocks have no order. The server stores a block without reading its rows. In the
commit it reads each row once, and a COPY writes all rows of a page together. An ``INSERT ... SELECT`` writes them one by
one. The rows pass through the driver, with two connections: one process of the server reads while another one writes. The
server checks no row of a block in a task, so blocks contain only rows that it cannot reject for their values. Source:
PostgreSQL's documentation, "COPY" (binary format; rules do not apply, and row-level security is an error), "TOAST".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from streamgroups_sinks.postgres.column_types import Kind, RecordColumn, rejected, unwrapped
from streamgroups_sinks.postgres.connection import connected
from streamgroups_sinks.postgres.copy_binary import HEADER, TRAILER, binary_rows, copy_binary, is_binary
from streamgroups_sinks.postgres.stages import PostgresStage, StageColumn

#: A block of this size fits a page of the server. A larger row has a block of its own.
_BLOCK_BYTES = 8_000
#: The driver sends at least this number of bytes at once, except at the end.
_WRITTEN_BYTES = 1 << 17
_COLUMN = [(RecordColumn("rows", Kind.BINARY, "bytea"), "bytea")]
#: The types without a length, a precision or a constraint of a domain, by their names in ``pg_type``.
_PLAIN_TYPES = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "date": "date",
    "time": "time without time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
    "interval": "interval",
    "text": "text",
    "varchar": "character varying",
    "bytea": "bytea",
}


def are_storable(columns: Sequence[StageColumn]) -> bool:
    """Returns whether the table can store all values of these columns that ``encode_blocks`` accepts.

    >>> id_ = RecordColumn("id", Kind.INTEGER, "bigint")
    >>> gate = RecordColumn("gate", Kind.STRING, "text")
    >>> are_storable([StageColumn(id_, "bigint", True, "int8")])
    True
    >>> are_storable([StageColumn(gate, "character varying(3)", False, "varchar")])
    False
    """
    return all(
        is_binary(column.record, column.type_name)
        and column.type.partition(" COLLATE ")[0] == _PLAIN_TYPES.get(column.type_name)
        for column in columns
    )


def encode_blocks(
    records: pa.RecordBatch, columns: Sequence[StageColumn], *, before: Sequence[int | pa.Array], first_row: int
) -> pa.Buffer:
    """Encodes rows in blocks for a binary COPY to the stage.

    Args:
        records: a batch of the records of a task.
        columns: the columns to write, in order.
        before: the ``bigint`` fields before each block.
        first_row: the number of earlier records of the task, for errors.

    Raises:
        RecordRejected: if the table cannot store a value. The error contains column and row.

    >>> column = StageColumn(RecordColumn("id", Kind.INTEGER, "bigint"), "bigint", False, "int8")
    >>> encode_blocks(pa.record_batch({"id": [5]}), [column], before=[7], first_row=0).to_pybytes().hex(" ", 4)
    '00020000 00080000 00000000 00070000 000e0001 00000008 00000000 00000005'
    """
    for column in columns:
        values = unwrapped(records.column(column.record.name))
        if column.not_null and values.null_count:
            row = first_row + pc.index(pc.is_null(values), pa.scalar(True)).as_py()
            raise rejected(column.record, row, "it is NULL, and the column of the table is NOT NULL")
    typed = [(column.record, column.type_name) for column in columns]
    blocks = _blocks(binary_rows(records, typed, first_row=first_row))
    return copy_binary(pa.record_batch({"rows": blocks}), _COLUMN, before=before, first_row=0)


def _blocks(rows: pa.Array) -> pa.Array:
    """Joins adjacent rows to blocks."""
    _, offsets, data = rows.buffers()
    ends = np.frombuffer(offsets, np.int64)
    cuts = [0]
    while cuts[-1] < len(rows):
        last = int(np.searchsorted(ends, ends[cuts[-1]] + _BLOCK_BYTES, "right")) - 1
        cuts.append(max(last, cuts[-1] + 1))
    return pa.Array.from_buffers(pa.large_binary(), len(cuts) - 1, [None, pa.py_buffer(ends[cuts]), data])


def write_blocks(connection: psycopg.Connection, stage: PostgresStage, attempts: Sequence[int], conninfo: str) -> int:
    """Copies the staged rows of these attempts to the table.

    Args:
        connection: a connection in the transaction of the ledger.
        stage: the stage.
        attempts: the successful attempts.
        conninfo: the connection string for a second connection, which reads while the first one writes.

    Returns:
        The number of written rows.
    """
    stored = sql.SQL("COPY (SELECT rows FROM {} WHERE attempt = ANY ({})) TO STDOUT (FORMAT binary)").format(
        stage.name.identifier, sql.Literal(list(attempts))
    )
    copy = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
        stage.table.identifier, sql.SQL(", ").join(sql.Identifier(column.record.name) for column in stage.columns)
    )
    with (
        connected(conninfo, f"Reading the staged rows for {stage.table}") as other,
        other.cursor() as reading,
        connection.cursor() as writing,
    ):
        with reading.copy(stored) as blocks, writing.copy(copy) as rows:
            blocks.set_types(["bytea"])
            waiting = bytearray(HEADER)
            for (block,) in blocks.rows():
                waiting += block
                if len(waiting) >= _WRITTEN_BYTES:
                    rows.write(waiting)
                    waiting = bytearray()
            rows.write(waiting + TRAILER)
        return writing.rowcount
