"""Timed and counted reads through Spark, by our source and by Spark's own.

Used by every family that compares sources. Spark's source is measured twice. At the last records of a partition it
waits for ``fetch.max.wait.ms``, 500 ms by default, whereas our reader sets 20 ms. So one row uses its defaults and one
our setting, and the ratio uses the faster one. Each read is counted: a reader that is fast because it reads too little
is an error. Source: Spark's "Structured Streaming Programming Guide", Monitoring.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.bench import TASKS, Bench
from benchmarks.empty_source import EmptySource
from benchmarks.figures import Missing, Row, Unit, compare, median_of
from benchmarks.rounds import Rounds, WrongCount
from benchmarks.starting_program import EMPTY_FORMAT

STREAMGROUPS = "streamgroups"
SPARK = "Spark kafka"
#: With ``fetch.max.wait.ms=20``.
SPARK_20 = "Spark kafka, 20 ms"
#: The format and the options of each contestant.
SOURCES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    STREAMGROUPS: ("streamgroups", {}),
    SPARK: ("kafka", {}),
    SPARK_20: ("kafka", {"kafka.fetch.max.wait.ms": "20"}),
}
SPARKS = (SPARK, SPARK_20)
#: The limit of each source in Python: :mod:`benchmarks.empty_source`.
EMPTY = "empty Python source"

Transform = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True)
class StreamRun:
    """A finished streaming query that has read all available records.

    Args:
        wall_s: the seconds from ``start()`` to its end.
        trigger_s: the seconds of the triggers that read records, without start, stop and no-data batches.
        records: the number of records that it read.
        observed: the sums of the metrics of ``observe("check", ...)``, by name.
    """

    wall_s: float
    trigger_s: float
    records: int
    observed: Mapping[str, int] = field(default_factory=dict)


def batch_read(bench: Bench, name: str, topic: str, expected: int, options: Mapping[str, str]) -> float:
    """Reads a topic with ``spark.read`` into the sink ``noop``.

    Args:
        bench: the environment.
        name: a name of `SOURCES`.
        topic: the topic to read.
        expected: the number of records in the topic.
        options: additional options.

    Returns:
        the duration in seconds.

    Raises:
        WrongCount: if another number of records arrived at the sink.
    """
    source, extra = SOURCES[name]
    seen = _executions(bench)
    started_s = time.perf_counter()
    frame = bench.spark.read.format(source).options(**_usual(bench, topic), **extra, **options).load()
    frame.write.format("noop").mode("overwrite").save()
    took_s = time.perf_counter() - started_s
    arrived = _written(bench, seen)
    if arrived != expected:
        raise WrongCount(f"{arrived} of {expected} records arrived")
    return took_s


def stream_read(
    bench: Bench,
    name: str,
    topic: str,
    expected: int,
    transform: Transform = lambda df: df,
    *,
    has_state: bool = False,
    **options: str,
) -> StreamRun:
    """Reads a topic from its earliest offset with a streaming query that ends by itself (``availableNow``).

    Args:
        bench: the environment.
        name: a name of `SOURCES`.
        topic: the topic to read.
        expected: the number of records in the topic.
        transform: the processing of the records.
        has_state: whether the processing is stateful.
        options: additional options.

    Raises:
        WrongCount: if it read another number of records.
    """
    checkpoint = bench.directory / uuid.uuid4().hex
    if has_state and name == STREAMGROUPS:
        options["membership"] = "exclusive"
    frame = transform(stream_frame(bench, name, topic, **options))
    started_s = time.perf_counter()
    query = (
        frame.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    progress = until_end(query)
    wall_s = time.perf_counter() - started_s
    read = [p for p in progress if _records(p)]
    records = sum(_records(p) for p in read)
    if records != expected:
        raise WrongCount(f"{records} of {expected} records were read")
    trigger_s = sum(p.durationMs["triggerExecution"] for p in read) / 1000
    observed: dict[str, int] = {}
    for p in read:
        row = p.observedMetrics.get("check")
        for key, value in (row.asDict() if row else {}).items():
            observed[key] = observed.get(key, 0) + (value or 0)
    return StreamRun(wall_s, trigger_s, records, observed)


def _records(progress: Any) -> int:
    """The records of a batch, without the punctuations of ``sg.with_event_time``."""
    return sum(source.numInputRows for source in progress.sources if "streamgroups-time" not in str(source.endOffset))


def micro_batches(
    bench: Bench,
    name: str,
    topic: str,
    records: int,
    batches: int,
    writer: Mapping[str, str] = MappingProxyType({}),
) -> list[Any]:
    """Reads a topic in micro-batches of this number of records; returns Spark's progress reports in order.

    Args:
        bench: the environment.
        name: a name of `SOURCES`, or `EMPTY`.
        topic: the topic to read.
        records: the number of records of a batch.
        batches: the number of batches in the topic.
        writer: additional options of the writer.
    """
    frame = (
        empty_frame(bench, records, batches)
        if name == EMPTY
        else stream_frame(bench, name, topic, maxOffsetsPerTrigger=str(records))
    )
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(bench.directory / uuid.uuid4().hex))
        .options(**writer)
        .start()
    )
    try:
        query.processAllAvailable()
        return list(query.recentProgress)
    finally:
        query.stop()


def empty_frame(bench: Bench, rows: int, batches: int) -> DataFrame:
    """A stream from the empty source.

    Args:
        bench: the environment.
        rows: the rows of a batch.
        batches: the number of batches.
    """
    bench.spark.dataSource.register(EmptySource)
    options = {"rows": str(rows), "tasks": str(TASKS), "batches": str(batches)}
    return bench.spark.readStream.format(EMPTY_FORMAT).options(**options).load()


def stream_rows(
    bench: Bench,
    what: str,
    unit: Unit,
    runs: Mapping[str, Callable[[], float]],
    rounds: Rounds,
    limits: Collection[str] = (EMPTY,),
) -> list[Row]:
    """Runs contestants in turn; returns the rows of the table. Each turn returns one number."""
    found = bench.race(what, runs, rounds)
    figures = {name: cell if isinstance(cell, Missing) else median_of(cell) for name, cell in found.items()}
    return compare(what, unit, figures, own=STREAMGROUPS, alternatives=SPARKS, limits=limits)


def stream_frame(bench: Bench, name: str, topic: str, **options: str) -> DataFrame:
    """A topic as a stream from its earliest offset."""
    source, extra = SOURCES[name]
    own = (
        {"group.id": f"bench-{uuid.uuid4().hex}", "startingOffsets": "earliest"}
        if name == STREAMGROUPS
        else {"startingOffsets": "earliest"}
    )
    return bench.spark.readStream.format(source).options(**{**_usual(bench, topic), **extra, **own, **options}).load()


def until_end(query: StreamingQuery) -> list[Any]:
    """The progress reports of a query that ends by itself."""
    try:
        query.awaitTermination()
        return list(query.recentProgress)
    finally:
        query.stop()


def _usual(bench: Bench, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bench.bootstrap, "subscribe": topic}


def _executions(bench: Bench) -> int:
    """The number of queries that Spark has run. Spark has no public API for the output of one of them; its status page
    uses this.
    """
    _settle(bench)
    return int(_status(bench).executionsCount())


def _written(bench: Bench, seen: int) -> int:
    """The number of records that arrived at the sink of the one query since then."""
    _settle(bench)
    status = _status(bench)
    executions = status.executionsList(seen, int(status.executionsCount()) - seen)
    for i in range(executions.size()):
        number = executions.apply(i).executionId()
        values, nodes = status.executionMetrics(number), status.planGraph(number).allNodes()
        for j in range(nodes.size()):
            if nodes.apply(j).name().startswith("OverwriteByExpression"):
                metric = nodes.apply(j).metrics().apply(0)
                found = values.get(metric.accumulatorId())
                return int(found.get().replace(",", "")) if found.isDefined() else 0
    raise WrongCount("Spark does not report how many records arrived")


def _status(bench: Bench) -> Any:
    return bench.spark._jsparkSession.sharedState().statusStore()


def _settle(bench: Bench) -> None:
    """Waits until Spark has updated its metrics."""
    bench.spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
