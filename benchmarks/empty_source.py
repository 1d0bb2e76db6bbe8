"""A source in Python that reads nothing from anywhere: the limit of each source that Spark runs in Python.

Spark calls it as it calls the source of this library, and its tasks return the same number of rows, as one Arrow batch each. The
difference to it is the cost of a source. The families ``small-batches`` and ``restart`` use it. Each process of Spark imports
this module by its name. Source: Spark's "Python Data Source API".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.starting_program import EMPTY_FORMAT

_VALUE = b"x" * 100


class EmptySource(DataSource):
    """The data source. Options: ``rows`` of a batch, ``tasks`` of a batch, and ``batches``, after which none follows."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return EMPTY_FORMAT

    def schema(self) -> str:
        """The columns."""
        return "value binary"

    def streamReader(self, schema: StructType) -> EmptyReader:
        """The reader."""
        return EmptyReader(*(int(self.options[name]) for name in ("rows", "tasks", "batches")))


class EmptyReader(DataSourceStreamReader):
    """Plans batches of equal sizes.

    Args:
        rows: the rows of a batch.
        tasks: the tasks of a batch.
        batches: the number of batches.
    """

    def __init__(self, rows: int, tasks: int, batches: int) -> None:
        self._rows, self._tasks, self._batches = rows, tasks, batches
        self._planned = 0

    def initialOffset(self) -> dict[str, Any]:
        """The begin."""
        return {"n": 0}

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # all versions accept the signature of 4.0
        """The end of the next batch."""
        self._planned = min(self._planned + 1, self._batches)
        return {"n": self._planned}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch."""
        self._planned = max(self._planned, end["n"])
        rows = self._rows if end["n"] > start["n"] else 0
        return [InputPartition(rows // self._tasks + (n < rows % self._tasks)) for n in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task."""
        if partition.value:
            yield pa.record_batch({"value": pa.array([_VALUE] * partition.value, pa.binary())})
