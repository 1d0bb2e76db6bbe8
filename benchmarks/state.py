"""State that follows its partition: windows in a catch-up, small triggers, and the next owner.

Three families of ``benchmarks.command``. A count by key in windows of a minute, over 8 partitions with few and with many keys.
All Spark queries read with the source of this library, so the figures differ by the state only. Kafka Streams is a
program of its own. The counts of closed windows are checked, but for Kafka Streams only the number of records read.
Source: SEMANTICS S10; Spark's "Structured Streaming Programming Guide", RocksDB state store.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.bench import TASKS, Bench
from benchmarks.figures import MS, RECORDS_PER_S, Cell, Missing, Row, S, compare, median_of, percentile_of
from benchmarks.handover import WITHOUT_STATE, handover_with_state
from benchmarks.other_keys import other_keys
from benchmarks.rounds import WrongCount
from benchmarks.sources import STREAMGROUPS, stream_frame
from benchmarks.state_queries import (
    EXCLUSIVE,
    SPARK_WINDOWS,
    counted,
    rocksdb,
    spark_windows,
    triggers_s,
    until_all_is_read,
    windows,
)
from benchmarks.streams_peer import StreamsProgram, processed_s, restored_s
from benchmarks.timed_topics import BEGIN_MS, PARTITIONS, WINDOW_MS, TimedSpec, write_more, write_timed
from component_tests.object_store import ObjectStore

READING = "reading only"
DIRECTORY = "state in a local directory"
STREAMS = "Kafka Streams"
_DELAY = "10 seconds"
_LATENCY_MS = 50

Transform = Callable[[DataFrame], DataFrame]


def state(bench: Bench) -> Iterator[Row]:
    """Windows in a catch-up, first with few keys."""
    with rocksdb(bench.spark), ObjectStore(_LATENCY_MS) as store:
        for keys in bench.scale.state_keys:
            yield from _catch_ups(bench, keys, store)
            yield from other_keys(bench, keys)


def state_triggers(bench: Bench) -> Iterator[Row]:
    """Small triggers, first with few keys."""
    with ObjectStore(_LATENCY_MS) as store:
        for keys in bench.scale.state_keys:
            yield from _triggers(bench, keys, store)


def state_owners(bench: Bench) -> Iterator[Row]:
    """The next owner of partitions with many keys."""
    keys = max(bench.scale.state_keys)
    with ObjectStore(_LATENCY_MS) as store:
        yield from _next_owners(bench, keys, store)
    yield from handover_with_state(bench, keys)


# ---- queries ---------------------------------------------------------------------------------------------------------


#: The limit of an operator in Python: a function that returns its records.
_EMPTY_STEP = "with an empty mapInArrow"
_windows = partial(windows, by="key", delay=_DELAY)
_by_spark = partial(spark_windows, by="key", delay=_DELAY)


def _read(frame: DataFrame) -> DataFrame:
    return frame.withColumn("n", F.lit(1))


def _with_empty_step(frame: DataFrame) -> DataFrame:
    """The records behind a function of ``mapInArrow`` that returns them: the limit of each operator in Python."""

    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    rows = _read(frame)
    return rows.mapInArrow(step, rows.schema)


def _frame(bench: Bench, topic: str, location: str, **options: str) -> DataFrame:
    """The records of a topic, with the columns that windows need."""
    frame = stream_frame(bench, STREAMGROUPS, topic, stateLocation=location, **options)
    return frame.select("key", "timestamp", "partition", "offset")


# ---- catch-up --------------------------------------------------------------------------------------------------------


def _catch_ups(bench: Bench, keys: int, store: ObjectStore) -> Iterator[Row]:
    """The rate of a catch-up: records by the time of all triggers."""
    scale = bench.scale
    spec = TimedSpec(f"windows-{keys}", scale.state_windows, scale.state_window_records, keys)
    topic = bench.timed_topic(spec)
    what = f"windows by key, catch-up of {spec.records:,} records, {keys:,} keys in each of {PARTITIONS} partitions"
    runs: dict[str, Callable[[], float]] = {
        STREAMGROUPS: partial(_speed, bench, topic, spec, _windows),
        READING: partial(_speed, bench, topic, spec, _read, expected=spec.records),
        SPARK_WINDOWS: partial(_speed, bench, topic, spec, _by_spark, membership="exclusive"),
        EXCLUSIVE: partial(
            _speed,
            bench,
            topic,
            spec,
            partial(_windows, allowed_lateness="1 minute", time="query"),
            membership="exclusive",
        ),
        STREAMS: partial(_streams_speed, bench, topic, spec),
        "store": partial(_speed, bench, topic, spec, _windows, location=store.location(uuid.uuid4().hex)),
    }
    found = bench.race(what, runs, scale.state_rounds)
    figures = {name: cell if isinstance(cell, Missing) else median_of(cell) for name, cell in found.items()}
    remote = figures.pop("store")
    yield from compare(what, RECORDS_PER_S, figures, own=STREAMGROUPS)
    yield from _beside_directory(what, RECORDS_PER_S, remote, figures[STREAMGROUPS])


def _beside_directory(what: str, unit: Any, remote: Cell, local: Cell) -> list[Row]:
    title = f"{what}, state on an object store with {_LATENCY_MS} ms"
    return compare(title, unit, {STREAMGROUPS: remote, DIRECTORY: local}, own=STREAMGROUPS)


def _speed(
    bench: Bench,
    topic: str,
    spec: TimedSpec,
    transform: Transform,
    *,
    expected: int | None = None,
    location: str | None = None,
    **options: str,
) -> float:
    """Reads a topic in large batches; returns the records per second."""
    directory = bench.directory / uuid.uuid4().hex
    where = location or str(directory / "state")
    frame = _frame(bench, topic, where, maxOffsetsPerTrigger=str(bench.scale.state_batch), **options)
    progress = until_all_is_read(transform(frame), directory / "checkpoint")
    expected = spec.closed_records if expected is None else expected
    if counted(progress) != expected:
        raise WrongCount(f"{counted(progress)} were counted where {expected} should")
    return spec.records / triggers_s(progress)


def _streams(bench: Bench, topic: str, spec: TimedSpec, application: str) -> StreamsProgram:
    return StreamsProgram(bench.directory, bench.bootstrap, topic, application, threads=TASKS, records=spec.records)


def _streams_speed(bench: Bench, topic: str, spec: TimedSpec) -> float:
    with _streams(bench, topic, spec, f"windows-{uuid.uuid4().hex}") as program:
        return spec.records / program.wait_for(processed_s)


# ---- small triggers --------------------------------------------------------------------------------------------------


def _triggers(bench: Bench, keys: int, store: ObjectStore) -> Iterator[Row]:
    """Small micro-batches with and without state."""
    scale = bench.scale
    batches = scale.batches + scale.warm_up_batches
    # A window closes in every tenth trigger.
    windows, rest = divmod(batches, 10)
    spec = TimedSpec(f"triggers-{keys}", windows + bool(rest), scale.state_trigger * 10, keys)
    topic = bench.timed_topic(spec)
    what = f"trigger of {scale.state_trigger:,} records, {keys:,} keys in each partition"
    runs: dict[str, Callable[[], list[float]]] = {
        STREAMGROUPS: partial(_durations, bench, topic, _windows),
        WITHOUT_STATE: partial(_durations, bench, topic, _read),
        _EMPTY_STEP: partial(_durations, bench, topic, _with_empty_step),
        "store": partial(_durations, bench, topic, _windows, location=store.location(uuid.uuid4().hex)),
    }
    found = bench.race(what, runs, scale.state_rounds)
    for percent in (50, 99):
        figures = {n: c if isinstance(c, Missing) else percentile_of(c, percent) for n, c in found.items()}
        remote = figures.pop("store")
        yield from compare(f"{what}, p{percent}", MS, figures, own=STREAMGROUPS, limits=(_EMPTY_STEP,))
        yield from _beside_directory(f"{what}, p{percent}", MS, remote, figures[STREAMGROUPS])


def _durations(bench: Bench, topic: str, transform: Transform, location: str | None = None) -> list[float]:
    """The durations of small triggers after the warm-up, in milliseconds."""
    directory = bench.directory / uuid.uuid4().hex
    where = location or str(directory / "state")
    frame = _frame(bench, topic, where, maxOffsetsPerTrigger=str(bench.scale.state_trigger))
    progress = until_all_is_read(transform(frame), directory / "checkpoint")
    read = [float(it.durationMs["triggerExecution"]) for it in progress if it.numInputRows]
    return read[bench.scale.warm_up_batches :]


# ---- the next owner --------------------------------------------------------------------------------------------------


def _next_owners(bench: Bench, keys: int, store: ObjectStore) -> Iterator[Row]:
    """The first trigger of a query that continues with the states of another one."""
    spec = TimedSpec(f"owners-{keys}", 1, keys * PARTITIONS, keys)
    topic = bench.timed_topic(spec)
    what = f"next owner, {keys:,} open keys in each partition"
    runs: dict[str, Callable[[], float]] = {
        STREAMGROUPS: partial(_first_trigger, bench, topic, spec, _windows),
        WITHOUT_STATE: partial(_first_trigger, bench, topic, spec, _read),
        f"{STREAMS}, restoration": partial(_restoration, bench, topic, spec),
        "store": partial(_first_trigger, bench, topic, spec, _windows, location=store.location(uuid.uuid4().hex)),
        "closing": partial(_closing_trigger, bench, spec, _windows),
        "closing, without state": partial(_closing_trigger, bench, spec, _read),
    }
    found = bench.race(what, runs, bench.scale.state_rounds)
    figures = {n: c if isinstance(c, Missing) else median_of(c) for n, c in found.items()}
    remote, closing, stateless = (figures.pop(it) for it in ("store", "closing", "closing, without state"))
    yield from compare(f"{what}: its first trigger", S, figures, own=STREAMGROUPS)
    yield from _beside_directory(f"{what}: its first trigger", S, remote, figures[STREAMGROUPS])
    yield from compare(
        f"{what}: its first trigger, which closes all windows",
        S,
        {STREAMGROUPS: closing, WITHOUT_STATE: stateless},
        own=STREAMGROUPS,
    )


def _closing_trigger(bench: Bench, spec: TimedSpec, transform: Transform) -> float:
    topic = write_timed(bench.bootstrap, replace(spec, name=uuid.uuid4().hex))
    return _first_trigger(bench, topic, spec, transform, time_ms=BEGIN_MS + 3 * WINDOW_MS)


def _first_trigger(
    bench: Bench,
    topic: str,
    spec: TimedSpec,
    transform: Transform,
    *,
    location: str | None = None,
    time_ms: int = BEGIN_MS,
) -> float:
    """The seconds of the first trigger of a query with a new checkpoint, after another query of its group.

    Args:
        bench: the environment.
        topic: the topic. The records of the trigger are added to it.
        spec: its specification.
        transform: the query.
        location: the state location.
        time_ms: the timestamp of the records of the trigger.
    """
    directory, group, records = bench.directory / uuid.uuid4().hex, uuid.uuid4().hex, bench.scale.state_trigger
    options = {"group.id": group, "maxOffsetsPerTrigger": str(bench.scale.state_batch)}
    location = location or str(directory / "state")
    until_all_is_read(transform(_frame(bench, topic, location, **options)), directory / "first")
    write_more(bench.bootstrap, topic, records=records, keys=spec.keys, time_ms=time_ms)
    progress = until_all_is_read(transform(_frame(bench, topic, location, **options)), directory / "next")
    read = [it for it in progress if it.numInputRows]
    if sum(it.numInputRows for it in read) != records:
        raise WrongCount(f"the next owner read {sum(it.numInputRows for it in read)} records")
    return triggers_s(read[:1])


def _restoration(bench: Bench, topic: str, spec: TimedSpec) -> float:
    """The seconds in which Kafka Streams restores all stores from the changelog, after a kill, on a new machine."""
    application = f"owners-{uuid.uuid4().hex}"
    with _streams(bench, topic, spec, application) as program:
        # All of it is in the changelog after the next commit, which follows within a second.
        program.wait_for(processed_s)
        time.sleep(3)
    with _streams(bench, topic, spec, application) as program:
        return program.wait_for(partial(restored_s, stores=PARTITIONS))
