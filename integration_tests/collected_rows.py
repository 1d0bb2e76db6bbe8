"""The rows of streaming queries, collected in memory.

Used by the tests of windows, whose queries run in the foreground or until their data is read.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from streamgroups_testkit.waits import wait_until

RowT = TypeVar("RowT", bound=tuple[Any, ...])


class CollectedRows(ABC, Generic[RowT]):
    """Runs queries and keeps their rows.

    Args:
        directory: the directory of the checkpoints.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._rows: list[RowT] = []

    @abstractmethod
    def read_batch(self, batch: DataFrame) -> list[RowT]:
        """The rows of a batch, in the form of the test. An error fails the batch."""

    @contextmanager
    def running(self, checkpoint: str, rows: DataFrame) -> Iterator[StreamingQuery]:
        writer = rows.writeStream.foreachBatch(self._collect).trigger(processingTime="100 milliseconds")
        query = writer.option("checkpointLocation", str(self.directory / checkpoint)).start()
        try:
            yield query
        finally:
            query.stop()

    def run(self, checkpoint: str, rows: DataFrame) -> None:
        writer = rows.writeStream.foreachBatch(self._collect).trigger(availableNow=True)
        assert writer.option("checkpointLocation", str(self.directory / checkpoint)).start().awaitTermination(120)

    def _collect(self, batch: DataFrame, _: int) -> None:
        found = self.read_batch(batch)
        with self._lock:
            self._rows += found

    @property
    def rows(self) -> list[RowT]:
        with self._lock:
            return sorted(self._rows)

    def wait(self, query: StreamingQuery, rows: list[RowT]) -> None:
        def are_there() -> bool:
            assert query.isActive, query.exception()
            return len(self.rows) >= len(rows)

        wait_until(are_there, f"the rows {rows}")
        assert self.rows == rows
