"""Where the tasks of a batch put its files, and what they have put there: what crosses processes.

A stage is a directory of its own in the table's, made by ``sink`` on the driver; ``data_files`` fills it, ``ledger`` names its files in the log or
merges them, ``leftovers`` removes what was not. Readers of the table see only what the log names.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from streamgroups_delta.partition_values import Values


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the output of one batch is put.

    Args:
        token: names the stage; no other has it.
        table_id: the table's id when the batch began.
        version: the table's version then.
        schema: of the staged records, in Delta's types.
        partition_by: what the files are split by.
        required: columns of the records that may not be null.
    """

    token: str
    table_id: str
    version: int
    schema: pa.Schema
    partition_by: tuple[str, ...]
    required: frozenset[str]

    @property
    def directory(self) -> str:
        """The stage's directory, below the table's."""
        return f"batch-{self.token}"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One data file.

    Args:
        path: below the table's directory.
        size_bytes: its size.
        n_rows: its number of rows.
        values: of the stage's partition columns, as the log has them.
        statistics: as the log has them.
        modified_ms: when it was written, in milliseconds since the epoch.
    """

    path: str
    size_bytes: int
    n_rows: int
    values: Values
    statistics: str
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Staged:
    """What one attempt of a task has staged.

    Args:
        stage: where.
        attempt: the attempt's number.
        files: in the order of the records; none if there were no records.
    """

    stage: Stage
    attempt: int
    files: tuple[StagedFile, ...]
