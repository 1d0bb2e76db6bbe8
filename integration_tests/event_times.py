"""Flights with event times for tests, and windows of five minutes over them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.reading import committed_offsets, end_offsets
from streamgroups_testkit.session_queries import stop_between_batches
from streamgroups_testkit.waits import wait_until

#: 2013-01-01T05:00:00Z, the departure of the first flights.
START_MS = 1_357_016_400_000
MINUTE_MS = 60_000


def depart(bootstrap: str, topic: str, minutes: Mapping[int, Iterable[int]], *, stamped: bool = True) -> None:
    """Writes one flight for each minute, by partition. The event time is a header, JSON in the value and, optionally,
    the timestamp of the record.
    """
    producer = ordered_producer(bootstrap)
    for partition, of in minutes.items():
        for minute in of:
            at_ms = START_MS + minute * MINUTE_MS
            value = f'{{"carrier": "UA", "dep_ms": {at_ms}}}'
            headers: dict[str, str | bytes | None] = {"dep_ms": str(at_ms)}
            timestamp = at_ms if stamped else time.time_ns() // 1_000_000
            producer.produce(topic, value=value, partition=partition, timestamp=timestamp, headers=headers)
    assert producer.flush(30) == 0


def departures(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """The flights as the source returns them."""
    return spark.readStream.format("streamgroups").options(**options).load()


def by_departure(flights: DataFrame) -> DataFrame:
    """The flights with the event time of the payload."""
    departure_ms = F.get_json_object(F.col("value").cast("string"), "$.dep_ms").cast("long")
    return flights.withColumn("departure", F.timestamp_millis(departure_ms))


def minute_of(time: datetime) -> int:
    """The minute of the test for a timestamp of Spark."""
    return (round(time.timestamp() * 1_000) - START_MS) // MINUTE_MS


def windows(df: DataFrame, column: str = "timestamp") -> DataFrame:
    """The number of departures in each window of five minutes."""
    return df.groupBy(F.window(column, "5 minutes")).agg(F.count("*").alias("flights"))


class Closed:
    """The windows that a running query has closed."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.query: StreamingQuery | None = None

    def write(self, batch: DataFrame, _batch_id: int) -> None:
        self.rows += batch.collect()

    @property
    def flights(self) -> dict[int, int]:
        """The number of flights in each closed window, by the minute at which it begins."""
        return {minute_of(row.window.start): row.flights for row in self.rows}


@contextmanager
def closing(windowed: DataFrame, checkpoint: Path | None = None) -> Iterator[Closed]:
    """Runs a query during the ``with`` block."""
    closed = Closed()
    writer = windowed.writeStream.outputMode("append").foreachBatch(closed.write)
    closed.query = (writer if checkpoint is None else writer.option("checkpointLocation", str(checkpoint))).start()
    try:
        yield closed
    finally:
        if checkpoint is None:
            closed.query.stop()
        else:
            stop_between_batches(closed.query, checkpoint)


def wait_until_read(bootstrap: str, topic: str, partitions: int, *groups: str) -> None:
    """Waits until groups have read and committed all records."""
    ends = {p: end for p, end in end_offsets(bootstrap, topic, partitions).items() if end}

    def is_read() -> bool:
        return all(ends.items() <= committed_offsets(bootstrap, group, topic).items() for group in groups)

    wait_until(is_read, f"{groups} have read {ends}", timeout_s=60)


def wait_until_closed(closed: Closed, last: int, *, timeout_s: float = 60) -> float:
    """Waits until the window that begins at a minute is closed; returns the elapsed seconds."""
    began_s = time.monotonic()

    def is_closed() -> bool:
        assert closed.query is not None
        if (failure := closed.query.exception()) is not None:
            raise failure
        return last in closed.flights

    wait_until(is_closed, f"the window at minute {last} is closed, of {sorted(closed.flights)}", timeout_s=timeout_s)
    return time.monotonic() - began_s
