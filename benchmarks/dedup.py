"""Duplicates of producers: ``sg.dedup`` beside ``dropDuplicates`` and ``dropDuplicatesWithinWatermark``.

A family of ``benchmarks.command``. A share of the ids in a topic is repeated: at random among all
earlier ids of the partition, which is harder than the retries of a producer, whose ids are recent. No id expires during
a run, so the state contains all of them at its end. All queries read with the source of this library. The number of
records that each of them returns is checked. Source: SEMANTICS X5.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from benchmarks.bench import Bench
from benchmarks.figures import RECORDS_PER_S, Cell, Missing, Row, Unit, compare, median_of
from benchmarks.rounds import WrongCount
from benchmarks.sources import STREAMGROUPS, stream_frame
from benchmarks.state_queries import counted, rocksdb, triggers_s, until_all_is_read
from benchmarks.workload import create
from streamgroups.monitoring.query_progress import DedupCounts, read_progress
from streamgroups_operators.inspection import inspect
from streamgroups_operators.locations import directories_at, files_below

DROP, WITHIN = "dropDuplicates, RocksDB", "dropDuplicatesWithinWatermark, RocksDB"
PARTITIONS = 8
_MB = Unit("MB", more_is_better=False)
_PER_MILLION = Unit("of a million", more_is_better=False)
#: The records of a topic cover an hour, and ids are seen for longer.
_COVERED_MS, _HORIZON = 3_600_000, "2 hours"
_CHUNK = 50_000
_RATE = 1e-5

Transform = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True)
class DedupRun:
    """The figures of one query.

    Args:
        records_per_s: the records by the time of all triggers.
        state_bytes: the bytes of its state at its end.
        counts: the counts of ``sg.dedup``.
    """

    records_per_s: float
    state_bytes: float
    counts: DedupCounts


def dedup(bench: Bench) -> Iterator[Row]:
    """Catch-ups with few and with many duplicates."""
    with rocksdb(bench.spark):
        for percent in (1, 50):
            yield from _catch_up(bench, percent)


def ids_of(partition: int, ids: int, percent: int) -> Iterator[str]:
    """The ids of the records of a partition, in their order.

    Args:
        partition: the partition.
        ids: the number of different ids.
        percent: the share of records whose id is repeated, in percent.

    >>> found = list(ids_of(0, 100, 50))
    >>> len(set(found)), 150 < len(found) < 260
    (100, True)
    """
    choose, new = random.Random(partition), 0
    while new < ids:
        if new and choose.random() * 100 < percent:
            yield _id(partition, choose.randrange(new))
        else:
            yield _id(partition, new)
            new += 1


def _id(partition: int, n: int) -> str:
    # As random as the ids of applications, which do not compress.
    return f"{partition}-{n * 0x9E3779B97F4A7C15 % 2**64:016x}"


def write_ids(bench: Bench, topic: str, percent: int) -> int:
    """Creates and fills a topic. Returns the number of its records."""
    bench.report_step(f"writing {bench.scale.dedup_ids:,} ids with {percent}% duplicates")
    create(bench.bootstrap, topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": bench.bootstrap, "linger.ms": 20, "acks": 1, "log_level": 0})
    ids = bench.scale.dedup_ids // PARTITIONS
    begin_ms, step_ms = int(time.time() * 1000) - _COVERED_MS, _COVERED_MS / (ids / (1 - percent / 100) * 1.1)
    written = 0
    for partition in range(PARTITIONS):
        for n, id_ in enumerate(ids_of(partition, ids, percent)):
            producer.produce(topic, b"x", id_, partition, timestamp=begin_ms + int(n * step_ms))
            written += 1
            if not written % _CHUNK:
                producer.flush(60)
    producer.flush(60)
    return written


# ---- queries ---------------------------------------------------------------------------------------------------------


def _own(frame: DataFrame) -> DataFrame:
    return sg.dedup(frame, id="key", horizon=_HORIZON, false_positive_rate=_RATE)


def _drop(frame: DataFrame) -> DataFrame:
    return frame.dropDuplicates(["key"])


def _within(frame: DataFrame) -> DataFrame:
    return frame.withWatermark("timestamp", _HORIZON).dropDuplicatesWithinWatermark(["key"])


def _catch_up(bench: Bench, percent: int) -> Iterator[Row]:
    topic = f"ids-{percent}"
    records = write_ids(bench, topic, percent)
    what = f"dedup, {bench.scale.dedup_ids:,} ids, {percent}% duplicates"
    runs: dict[str, Callable[[], DedupRun]] = {
        STREAMGROUPS: partial(_run, bench, topic, records, _own),
        DROP: partial(_run, bench, topic, records, _drop, membership="exclusive"),
        WITHIN: partial(_run, bench, topic, records, _within, membership="exclusive"),
    }
    found = bench.race(what, runs, bench.scale.dedup_rounds)
    yield from compare(f"{what}: catch-up", RECORDS_PER_S, _each(found, lambda it: it.records_per_s), own=STREAMGROUPS)
    yield from compare(f"{what}: state", _MB, _each(found, lambda it: it.state_bytes / 1e6), own=STREAMGROUPS)
    measured = _each({STREAMGROUPS: found[STREAMGROUPS]}, _false_positives)[STREAMGROUPS]
    setting = median_of([_RATE * 1e6])
    yield Row(f"{what}: false positives", _PER_MILLION, measured, "the setting", setting, None)


def _each(found: dict[str, list[DedupRun] | Missing], figure: Callable[[DedupRun], float]) -> dict[str, Cell]:
    return {
        name: it if isinstance(it, Missing) else median_of([figure(run) for run in it]) for name, it in found.items()
    }


def _false_positives(run: DedupRun) -> float:
    unseen = run.counts.filtered + run.counts.false_positives
    return run.counts.false_positives / unseen * 1e6


def _run(bench: Bench, topic: str, records: int, transform: Transform, **options: str) -> DedupRun:
    """Reads a topic in large batches."""
    directory = bench.directory / uuid.uuid4().hex
    states = str(directory / "state")
    batch = str(bench.scale.dedup_batch)
    frame = stream_frame(bench, STREAMGROUPS, topic, stateLocation=states, maxOffsetsPerTrigger=batch, **options)
    rows = transform(frame.select("key", "timestamp", "partition", "offset")).withColumn("n", F.lit(1))
    progress = until_all_is_read(rows, directory / "checkpoint")
    ids = bench.scale.dedup_ids // PARTITIONS * PARTITIONS
    if counted(progress) != ids:
        raise WrongCount(f"{counted(progress)} records were returned where {ids} should be")
    counts = sum((read_progress(it.json).dedup for it in progress), DedupCounts())
    return DedupRun(records / triggers_s(progress), _state_bytes(states, progress), counts)


def _state_bytes(location: str, progress: list[Any]) -> float:
    """The bytes of the latest state: the rows of all partitions, or the tables of RocksDB."""
    groups = directories_at(location)
    if not groups:
        [operator] = progress[-1].stateOperators
        return float(operator.customMetrics["rocksdbSstFileSize"])
    [group] = groups
    found = inspect(files_below(location, group, "dedup"))
    return float(sum(found.state_sizes[it.topic_partition, it.next_offset].row_bytes for _, it in found.latest()))
