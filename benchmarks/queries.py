"""Reading with processing: one column, JSON parsed and filtered, and a count by window. Streaming, in one micro-batch.

A family of ``benchmarks.command``. The figure is the speed of the trigger, without the start and the stop of the query.
The result is compared with the expected number of records after the filter, and the expected sum of the counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.bench import Bench
from benchmarks.figures import RECORDS_PER_S, Row
from benchmarks.rounds import WrongCount
from benchmarks.sources import SOURCES, STREAMGROUPS, Transform, stream_read, stream_rows
from benchmarks.workload import DELAYED, JSON_SCHEMA, TopicSpec, delayed


def queries(bench: Bench) -> Iterator[Row]:
    """Queries that need some columns, each over the whole topic. Our source reads these columns only."""
    spec = TopicSpec(bench.scale.query)
    topic = bench.topic(spec)

    def speed(name: str, columns: str, transform: Transform, expected: int) -> float:
        has_state = transform is _counted_by_window
        options = {"columns": columns} if name == STREAMGROUPS else {}
        run = stream_read(bench, name, topic, spec.records, transform, has_state=has_state, **options)
        if run.observed.get("n") != expected:
            raise WrongCount(f"{run.observed.get('n')} came out where {expected} should")
        return run.records / run.trigger_s

    passing = delayed(bench.spark, spec)
    for what, columns, transform, expected in (
        ("stream, value only", "value", _values, spec.records),
        ("stream, from_json + filter", "value", _parsed_and_filtered, passing),
        ("stream, window count", "timestamp", _counted_by_window, spec.records),
    ):
        runs = {name: partial(speed, name, columns, transform, expected) for name in SOURCES}
        title = f"{what}, {spec.records:,} of 100 B"
        yield from stream_rows(bench, title, RECORDS_PER_S, runs, bench.scale.rounds)


def _values(frame: DataFrame) -> DataFrame:
    return frame.select("value").observe("check", F.count(F.lit(1)).alias("n"))


def _parsed_and_filtered(frame: DataFrame) -> DataFrame:
    parsed = frame.select(F.from_json(F.col("value").cast("string"), JSON_SCHEMA).alias("flight")).select("flight.*")
    return parsed.where(DELAYED).observe("check", F.count(F.lit(1)).alias("n"))


def _counted_by_window(frame: DataFrame) -> DataFrame:
    counted = frame.groupBy(F.window("timestamp", "1 second")).count()
    return counted.observe("check", F.sum("count").alias("n"))
