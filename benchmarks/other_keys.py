"""Windows by a column that is not the record key: a topic with other keys, or a shuffle in one query.

A part of the family ``state``. All ways count records by place in windows of a minute. The records of a place are in all
partitions of the input. The time with a topic is that of two queries, which write the new topic and read it. The peer does the
same with Spark's source and sink, at least once. Queries with a shuffle write no topic, so they are limits.
Source: SEMANTICS S12; docs/state.rst, "Other keys".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from benchmarks.bench import Bench
from benchmarks.figures import RECORDS_PER_S, Missing, Row, compare, median_of
from benchmarks.rounds import WrongCount
from benchmarks.sources import SPARK_20, STREAMGROUPS, stream_frame, until_end
from benchmarks.state_queries import (
    EXCLUSIVE,
    SPARK_WINDOWS,
    counted,
    spark_windows,
    triggers_s,
    until_all_is_read,
    windows,
)
from benchmarks.timed_topics import PARTITIONS, TimedSpec
from benchmarks.workload import create

_SPARK_TOPIC = "Spark kafka and its windows, through a topic"

_COLUMNS = "timestamp timestamp, place string"
#: The records of a batch come from all partitions, and are written out of order by up to a batch.
_DELAY = "1 minute"


def other_keys(bench: Bench, keys: int) -> Iterator[Row]:
    """The rate of a catch-up: records by the time of all triggers.

    Args:
        bench: the environment.
        keys: the number of places.
    """
    # The delay leaves the last two windows open.
    spec = TimedSpec(f"places-{keys}", 3, bench.scale.state_window_records, keys)
    topic = bench.timed_topic(spec)
    what = f"windows by another column, catch-up of {spec.records:,} records, {keys:,} keys"
    runs: dict[str, Callable[[], float]] = {
        STREAMGROUPS: partial(_by_topic, bench, topic, spec),
        _SPARK_TOPIC: partial(_by_topic_of_spark, bench, topic, spec),
        EXCLUSIVE: partial(_in_one_query, bench, topic, spec, partial(_windows, allowed_lateness="1 s", time="query")),
        SPARK_WINDOWS: partial(_in_one_query, bench, topic, spec, partial(_windows, time="query")),
    }
    found = bench.race(what, runs, bench.scale.state_rounds)
    figures = {name: cell if isinstance(cell, Missing) else median_of(cell) for name, cell in found.items()}
    yield from compare(what, RECORDS_PER_S, figures, own=STREAMGROUPS, limits=(EXCLUSIVE, SPARK_WINDOWS))


_windows = partial(windows, by="place", delay=_DELAY)


def _places(bench: Bench, topic: str, source: str = STREAMGROUPS, **options: str) -> DataFrame:
    frame = stream_frame(bench, source, topic, maxOffsetsPerTrigger=str(bench.scale.state_batch), **options)
    return frame.select("timestamp", F.substring_index(F.col("key").cast("string"), "-", -1).alias("place"))


def _in_one_query(bench: Bench, topic: str, spec: TimedSpec, transform: Callable[[DataFrame], DataFrame]) -> float:
    frame = _places(bench, topic, membership="exclusive")
    progress = until_all_is_read(transform(frame), bench.directory / uuid.uuid4().hex)
    return _rate(spec, progress, triggers_s(progress))


def _by_topic(bench: Bench, topic: str, spec: TimedSpec) -> float:
    directory, new_topic = bench.directory / uuid.uuid4().hex, uuid.uuid4().hex
    writing = sg.repartition(
        _places(bench, topic),
        by=["place"],
        topic=new_topic,
        partitions=PARTITIONS,
        checkpoint=str(directory / "writing"),
    )
    written = until_end(writing.trigger(availableNow=True).start())
    options = {
        "kafka.bootstrap.servers": bench.bootstrap,
        "group.id": new_topic,
        "maxOffsetsPerTrigger": str(bench.scale.state_batch),
        "stateLocation": str(directory / "state"),
    }
    frame = sg.read_repartitioned(bench.spark, topic=new_topic, by=["place"], columns=_COLUMNS, options=options)
    read = until_all_is_read(_windows(frame), directory / "reading")
    return _rate(spec, read, triggers_s(written) + triggers_s(read))


def _by_topic_of_spark(bench: Bench, topic: str, spec: TimedSpec) -> float:
    directory, new_topic = bench.directory / uuid.uuid4().hex, uuid.uuid4().hex
    create(bench.bootstrap, new_topic, PARTITIONS)
    places = _places(bench, topic, SPARK_20)
    records = places.select(F.col("place").alias("key"), F.to_json(F.struct("timestamp", "place")).alias("value"))
    writing = records.writeStream.format("kafka").option("kafka.bootstrap.servers", bench.bootstrap)
    writing = writing.option("topic", new_topic).option("checkpointLocation", str(directory / "writing"))
    written = until_end(writing.trigger(availableNow=True).start())
    frame = stream_frame(bench, SPARK_20, new_topic, maxOffsetsPerTrigger=str(bench.scale.state_batch))
    rows = frame.select(F.from_json(F.col("value").cast("string"), _COLUMNS).alias("row")).select("row.*")
    read = until_all_is_read(spark_windows(rows, by="place", delay=_DELAY), directory / "reading")
    return _rate(spec, read, triggers_s(written) + triggers_s(read))


def _rate(spec: TimedSpec, progress: list[Any], time_s: float) -> float:
    if counted(progress) != spec.window_records:
        raise WrongCount(f"{counted(progress)} were counted where {spec.window_records} should")
    return spec.records / time_s
