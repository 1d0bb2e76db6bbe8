"""Reading with processing: JSON parsed and filtered, and a count by window. Streaming, in one micro-batch.

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
from benchmarks.sources import SOURCES, Transform, stream_read, stream_rows
from benchmarks.workload import DELAYED, JSON_SCHEMA, TopicSpec, delayed


def queries(bench: Bench) -> Iterator[Row]:
    """Two queries, each over the whole topic."""
    spec = TopicSpec(bench.scale.query)
    topic = bench.topic(spec)

    def speed(name: str, transform: Transform, expected: int) -> float:
        has_state = transform is _counted_by_window
        run = stream_read(bench, name, topic, spec.records, transform, has_state=has_state)
        if run.observed.get("n") != expected:
            raise WrongCount(f"{run.observed.get('n')} came out where {expected} should")
        return run.records / run.trigger_s

    passing = delayed(bench.spark, spec)
    for what, transform, expected in (
        ("stream, from_json + filter", _parsed_and_filtered, passing),
        ("stream, window count", _counted_by_window, spec.records),
    ):
        runs = {name: partial(speed, name, transform, expected) for name in SOURCES}
        title = f"{what}, {spec.records:,} of 100 B"
        yield from stream_rows(bench, title, RECORDS_PER_S, runs, bench.scale.rounds)


def _parsed_and_filtered(frame: DataFrame) -> DataFrame:
    parsed = frame.select(F.from_json(F.col("value").cast("string"), JSON_SCHEMA).alias("flight")).select("flight.*")
    return parsed.where(DELAYED).observe("check", F.count(F.lit(1)).alias("n"))


def _counted_by_window(frame: DataFrame) -> DataFrame:
    counted = frame.groupBy(F.window("timestamp", "1 second")).count()
    return counted.observe("check", F.sum("count").alias("n"))
