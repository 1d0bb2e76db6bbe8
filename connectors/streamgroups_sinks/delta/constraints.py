"""Checks the rows of a task against the constraints of the table, before they are staged.

Called by ``data_files`` in tasks. deltalake evaluates the constraints: it writes the rows to a temporary table with the same
constraints. So single rows can become dead letters, and rows that a later row replaces are checked too. A constraint with
columns that the records do not have is checked only by the commit. Source: SEMANTICS P4; Delta's protocol, "CHECK
Constraints".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.exceptions import DeltaError

from streamgroups.errors import RecordRejected
from streamgroups_sinks.delta.schema_conversion import nullable
from streamgroups_sinks.delta.stages import Stage
from streamgroups_sinks.delta.store_errors import is_violation


@contextmanager
def checking(stage: Stage) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Returns a function that checks rows with the schema of the stage, except those that only delete.

    It raises ``RecordRejected`` if a row violates a constraint.
    """
    if not stage.conditions:
        yield lambda rows: None
        return
    stored = nullable(pa.schema([field for field in stage.schema if field.name != stage.delete_marker]))
    with TemporaryDirectory(prefix="streamgroups-") as directory:
        table = DeltaTable.create(directory, Schema.from_arrow(stored))
        for name, condition in stage.conditions:
            with suppress(DeltaError):
                table.alter.add_constraint({name: condition})

        def check(rows: pa.RecordBatch) -> None:
            if stage.delete_marker is not None:
                rows = rows.filter(pc.invert(pc.fill_null(rows.column(stage.delete_marker), False)))
            if rows.num_rows:
                _check(table, rows.select(stored.names), stage)
                for file in Path(directory).glob("*.parquet"):
                    file.unlink()

        yield check


def _check(table: DeltaTable, rows: pa.RecordBatch, stage: Stage) -> None:
    try:
        write_deltalake(table, pa.Table.from_batches([rows]), mode="overwrite")
    except DeltaError as e:
        if not is_violation(str(e)):
            raise
        # The text of the error contains whole rows.
        rules = ", ".join(f"{name} ({condition})" for name, condition in stage.conditions)
        raise RecordRejected(
            f"A row violates a constraint of the table: {rules}.",
            remedy="Filter out such rows, or change the constraint.",
        ) from None
