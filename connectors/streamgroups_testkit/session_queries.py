"""Streaming queries in the Spark session of the test, and the records that they have read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamgroups_spark.bridge.checkpoint_log import CommitLog
from streamgroups_testkit.queries import Query
from streamgroups_testkit.query_program import start_query
from streamgroups_testkit.waits import wait_until


class RunningQuery:
    """A running query, and the (topic, partition, offset) of the records that it has read."""

    def __init__(self) -> None:
        self.records: list[tuple[str, int, int]] = []
        self.query: StreamingQuery | None = None

    def write(self, batch: DataFrame, _batch_id: int) -> None:
        rows = batch.select("topic", "partition", "offset").collect()
        self.records += [(r.topic, r.partition, r.offset) for r in rows]


@contextmanager
def running_query(spark: SparkSession, options: dict[str, str]) -> Iterator[RunningQuery]:
    """Runs a query on the source ``streamgroups`` during the ``with`` block."""
    sink = RunningQuery()
    reader = spark.readStream.format("streamgroups").options(**options)
    sink.query = reader.load().writeStream.foreachBatch(sink.write).start()
    try:
        yield sink
    finally:
        sink.query.stop()


@dataclass
class QueryInSession(Query):
    """A query like ``QueryProcess`` at a tenth of its cost, for tests that kill no query."""

    query: StreamingQuery | None = None

    def start(self, spark: SparkSession) -> QueryInSession:
        """Starts it without waiting."""
        self.query = start_query(spark, self.config())
        return self

    def stop(self) -> None:
        """Stops it at any point of a batch."""
        if self.query is not None:
            self.query.stop()

    def log(self) -> str:
        """The error of a failed query; empty otherwise."""
        return str(self.query and self.query.exception())

    def check(self) -> None:
        """Fails if the query has failed."""
        assert self.query is not None
        assert self.query.isActive, f"{self.name} died:\n{self.log()}"


def stop_between_batches(query: StreamingQuery, checkpoint: Path) -> None:
    """Stops a query outside of the interval between its output and Spark's entry in the commit log, which would run the
    batch again.
    """
    log = CommitLog(str(checkpoint))

    def is_resting() -> bool:
        newest = log.newest()
        return newest is None or log.is_done(newest) or not query.isActive

    wait_until(is_resting, "no batch is running")
    query.stop()
