"""The stage of a batch and the files of its tasks. These objects are pickled between processes.

Created by ``sink`` on the driver. A stage is a separate directory below that of the table. ``data_files`` writes to it.
``ledger`` adds its files to the log or merges them, and ``data_files`` removes the other files. Readers of the table
read only files in the log. Source: Delta's protocol, "Data Files".
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from streamgroups_sinks.delta.partition_values import Values


@dataclass(frozen=True, slots=True)
class Stage:
    """The stage for the output of one batch.

    Args:
        token: the unique name of the stage.
        table_id: the id of the table at the start of the batch.
        version: the version of the table at the start of the batch.
        schema: the schema of the staged records, in Delta's types.
        partition_by: the columns by which files are split.
        required: the columns of the records that reject null.
        delete_marker: the column that is true in rows to delete. They need only their key.
        key: the columns of the key of a merge.
        conditions: the conditions that each row must satisfy, by the names of the constraints.
        merge_partition_by: the partition columns of the table of a merge.
    """

    token: str
    table_id: str
    version: int
    schema: pa.Schema
    partition_by: tuple[str, ...]
    required: frozenset[str]
    delete_marker: str | None = None
    key: tuple[str, ...] = ()
    conditions: tuple[tuple[str, str], ...] = ()
    merge_partition_by: tuple[str, ...] = ()

    @property
    def directory(self) -> str:
        """The directory of the stage, relative to that of the table."""
        return f"batch-{self.token}"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One data file.

    Args:
        path: the path, relative to the directory of the table.
        size_bytes: the size in bytes.
        n_rows: the number of rows.
        values: the values of the partition columns, in the encoding of the log.
        statistics: the statistics, in the encoding of the log.
        modified_ms: the time of the write, in milliseconds since the epoch.
    """

    path: str
    size_bytes: int
    n_rows: int
    values: Values
    statistics: str
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Staged:
    """The result of one attempt of a task.

    Args:
        stage: the stage.
        attempt: the number of the attempt.
        files: the files in the order of the records. Empty without records.
    """

    stage: Stage
    attempt: int
    files: tuple[StagedFile, ...]
