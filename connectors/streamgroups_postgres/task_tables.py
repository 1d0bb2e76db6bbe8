"""The table of one task in a stage, whose rows are frozen.

Called by ``stages``. A task with many rows of an append copies them into a table of its own, which inherits from the stage.
So statements that read the stage also read these rows, and a drop of the stage drops the table. ``COPY`` can write frozen
rows only into a table of its own transaction. Without them, the transaction of the ledger looks up and marks the state of
each row that it reads, which takes a third of its time. Tasks with few rows use the stage itself, because a table costs
three statements. Source: PostgreSQL's documentation, "COPY" (FREEZE), "Inheritance".
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import chain

import psycopg
import pyarrow as pa
from psycopg import sql

from streamgroups_postgres.names import TableName

#: From this number of rows on, a table saves more time than it costs.
MANY_ROWS = 20_000
_UNIQUE_LENGTH = 8


def has_many(batches: Iterator[pa.RecordBatch]) -> tuple[bool, Iterator[pa.RecordBatch]]:
    """Returns whether batches have many rows, and all of the batches again.

    Args:
        batches: the batches of a task.

    >>> batch = pa.record_batch({"delay": [5, 12]})
    >>> is_many, batches = has_many(iter([batch, batch]))
    >>> is_many, len(list(batches))
    (False, 2)
    """
    first, n_rows = [], 0
    for batch in batches:
        first.append(batch)
        n_rows += len(batch)
        if n_rows >= MANY_ROWS:
            return True, chain(first, batches)
    return False, iter(first)


def make_task_table(connection: psycopg.Connection, stage: TableName) -> TableName:
    """Creates the table of a task in a transaction of its own, which locks the stage only briefly.

    Args:
        connection: a connection in a transaction.
        stage: the name of the stage.

    Raises:
        psycopg.errors.UndefinedTable: if the stage no longer exists.
    """
    # Two attempts can have the same number.
    table = TableName(stage.schema, f"{stage.name}_{uuid.uuid4().hex[:_UNIQUE_LENGTH]}")
    connection.execute(
        sql.SQL("CREATE UNLOGGED TABLE {} () INHERITS ({}) WITH (autovacuum_enabled = false)").format(
            table.identifier, stage.identifier
        )
    )
    return table


def empty(connection: psycopg.Connection, table: TableName) -> None:
    """Empties the table of a task in the transaction that then copies frozen rows into it."""
    connection.execute(sql.SQL("TRUNCATE {}").format(table.identifier))
