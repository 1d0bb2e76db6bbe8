"""Rows in blocks: the stage stores rows in the format of COPY, and the commit copies them to the table.

``sink`` decides whether a batch is staged in blocks, ``copy_to_stage`` encodes them in tasks, and ``merging`` writes them. A block
contains whole rows of one attempt, so blocks have no order. The server stores a block without reading its rows. In the
commit it reads each row once, and a COPY writes all rows of a page together. An ``INSERT ... SELECT`` writes them one by
one. The rows pass through the driver, with two connections: one process of the server reads while another one writes. If the
server or a pooler provides only one connection, the driver reads and writes by turns. The server checks no row of a block in
a task, so blocks contain only rows that it cannot reject for their values. Source: PostgreSQL's documentation, "COPY" (binary
format; rules do not apply, and row-level security is an error), "TOAST"; PgBouncer's ``pool_mode`` and ``query_wait_timeout``.
"""

from __future__ import annotations

import logging
import selectors
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from psycopg.pq import TransactionStatus

from streamgroups.errors import SinkUnreachable
from streamgroups_sinks.postgres.column_types import Kind, RecordColumn, rejected, unwrapped
from streamgroups_sinks.postgres.connection import connected
from streamgroups_sinks.postgres.copy_binary import HEADER, TRAILER, binary_rows, copy_binary, is_binary
from streamgroups_sinks.postgres.stages import PostgresStage, StageColumn

logger = logging.getLogger(__name__)

#: A block of this size fits a page of the server. A larger row has a block of its own.
_BLOCK_BYTES = 8_000
#: The driver sends at least this number of bytes at once, except at the end.
_WRITTEN_BYTES = 1 << 17
#: How long the commit waits for a second connection. The session of the first one must not become idle for too long.
_SERVED_WITHIN_S = 5.0
#: With one connection, the driver fetches this number of blocks at once.
_FETCHED_BLOCKS = 64
_CURSOR = "streamgroups_blocks"
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
        conninfo: the connection string for a second connection, which reads while the first one writes. Without one the first
            connection does both by turns.

    Returns:
        The number of written rows.
    """
    stored = sql.SQL("SELECT rows FROM {} WHERE attempt = ANY ({})").format(
        stage.name.identifier, sql.Literal(list(attempts))
    )
    copy = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
        stage.table.identifier, sql.SQL(", ").join(sql.Identifier(column.record.name) for column in stage.columns)
    )
    with second_connection(conninfo, f"Reading the staged rows for {stage.table}") as other:
        if other is None:
            return _write_by_turns(connection, stored, copy)
        return _write_at_once(connection, other, stored, copy)


def _write_at_once(
    connection: psycopg.Connection, other: psycopg.Connection, stored: sql.Composed, copy: sql.Composed
) -> int:
    reads = sql.SQL("COPY ({}) TO STDOUT (FORMAT binary)").format(stored)
    with other.cursor() as reading, connection.cursor() as writing:
        with reading.copy(reads) as blocks, writing.copy(copy) as rows:
            blocks.set_types(["bytea"])
            waiting = bytearray(HEADER)
            for (block,) in blocks.rows():
                waiting += block
                if len(waiting) >= _WRITTEN_BYTES:
                    rows.write(waiting)
                    waiting = bytearray()
            rows.write(waiting + TRAILER)
        return writing.rowcount


def _write_by_turns(connection: psycopg.Connection, stored: sql.Composed, copy: sql.Composed) -> int:
    n_rows, fetch = 0, f"FETCH FORWARD {_FETCHED_BLOCKS} FROM {_CURSOR}"
    connection.execute(sql.SQL("DECLARE {} NO SCROLL CURSOR FOR {}").format(sql.SQL(_CURSOR), stored))
    with connection.cursor(binary=True) as reading, connection.cursor() as writing:
        while blocks := reading.execute(fetch).fetchall():
            with writing.copy(copy) as rows:
                rows.write(b"".join([HEADER, *(block for (block,) in blocks), TRAILER]))
            n_rows += writing.rowcount
    connection.execute(f"CLOSE {_CURSOR}")
    return n_rows


@contextmanager
def second_connection(conninfo: str, doing: str) -> Iterator[psycopg.Connection | None]:
    """Returns another connection, in a transaction, for the duration of the block. ``None`` if no session of the server is free.

    Without a timeout, drivers that hold all sessions of a pool would wait for each other.

    Args:
        conninfo: the connection string.
        doing: the purpose of the connection, for the log.
    """
    with ExitStack() as stack:
        try:
            other = stack.enter_context(connected(conninfo, doing))
            is_served = _begins(other)
        except (SinkUnreachable, psycopg.OperationalError) as e:
            logger.info("%s: the second connection has failed: %s", doing, e)
            is_served = False
        if not is_served:
            # Otherwise a pooler would reserve its next free session for this connection.
            stack.close()
            logger.warning(
                "%s: the server provides no second connection, so one connection reads and writes by turns. Set the limits "
                "of the server, the user and the pooler to at least two connections for each driver that commits at the same time.",
                doing,
            )
            yield None
            return
        yield other
        # A pooler closes a session whose client leaves within a transaction.
        with suppress(psycopg.Error):
            other.rollback()


def _begins(connection: psycopg.Connection) -> bool:
    """Begins a transaction, and returns whether the server has done so in time.

    A pooler accepts a connection at once, and its first statement waits for a session. psycopg's calls have no timeout.
    """
    pgconn, deadline_s = connection.pgconn, time.monotonic() + _SERVED_WITHIN_S
    pgconn.send_query(b"BEGIN")
    pgconn.flush()
    with selectors.DefaultSelector() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ)
        while pgconn.is_busy():
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0 or not selector.select(remaining_s):
                return False
            pgconn.consume_input()
    while pgconn.get_result() is not None:
        pass
    return pgconn.transaction_status == TransactionStatus.INTRANS
