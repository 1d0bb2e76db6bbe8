"""A data source of three rows and its sink, which record how Spark runs them. For the tests of private facts of Spark.

Each process of Spark imports this module by its name, so it imports PySpark and the library only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from streamgroups_spark.internals.private_spark import main_module
from streamgroups_spark.internals.python_worker import exit_on_sigterm

NAME = "tiny"
COLUMNS = "key binary, partition int, offset bigint, timestamp timestamp"
ROWS = 3


def attempt_id() -> int:
    """The id of the attempt of the task that this process runs."""
    context = TaskContext.get()
    assert context is not None
    return int(context.taskAttemptId())


class TinySource(DataSource):
    """The data source. Its option ``directory`` is a directory for records about its processes."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return NAME

    def schema(self) -> str:
        """The columns."""
        return COLUMNS

    def streamReader(self, schema: StructType) -> TinyReader:
        """The reader."""
        return TinyReader(Path(self.options["directory"]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> TinyWriter:
        """The writer."""
        return TinyWriter(Path(self.options["directory"]), Path(self.options["checkpointlocation"]))


class TinyReader(DataSourceStreamReader):
    """Reads all rows in one batch."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def initialOffset(self) -> dict[str, Any]:
        """The first call in the process of the source."""
        exit_on_sigterm()
        process = {"ids": [os.getpid(), os.getppid()], "main": main_module()}
        (self._directory / "source.json").write_text(json.dumps(process), encoding="utf-8")
        return {"next": 0}

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # all versions accept the signature of 4.0
        """The end of the rows."""
        return {"next": ROWS}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One task."""
        return [InputPartition(end["next"] - start["next"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Reads the rows. The column ``offset`` contains the attempt of the reader."""
        for _ in range(partition.value):
            yield b"k", 0, attempt_id(), None

    def stop(self) -> None:
        """The last call in the process of the source."""
        (self._directory / "stopped").touch()


class TinyWriter(DataSourceStreamWriter):
    """Records when Spark pickles it."""

    def __init__(self, directory: Path, checkpoint: Path) -> None:
        self._directory, self._checkpoint = directory, checkpoint

    def __getstate__(self) -> dict[str, Any]:
        """Records the batch that Spark has logged."""
        logs = [(self._checkpoint / log / "0").exists() for log in ("offsets", "commits")]
        with (self._directory / "pickled").open("a", encoding="utf-8") as file:
            file.write(json.dumps([main_module(), *logs]) + "\n")
        return self.__dict__

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Takes the rows."""
        rows = [row.asDict() for row in iterator]
        lines = [json.dumps([row["offset"], row["attempt"], row["main"]]) for row in rows]
        (self._directory / "rows").write_text("\n".join(lines), encoding="utf-8")
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """The batch is written."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """The batch is not written."""
