"""The speed of reading a whole topic: batch read, streaming catch-up, and readers without Spark.

A family of ``benchmarks.command``. The peers without Spark run in separate processes (``loop``, ``quix``) and measure
their own time: from the creation of the consumer to the last record. Spark's time is that of the whole job.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.bench import Bench, environment
from benchmarks.figures import RECORDS_PER_S, Missing, Row, S, compare, median_of
from benchmarks.rounds import NotHere, WrongCount
from benchmarks.sources import SOURCES, SPARKS, STREAMGROUPS, StreamRun, batch_read, stream_read, stream_rows
from benchmarks.workload import TopicSpec

LOOP = "confluent-kafka loop"
QUIX = "Quix Streams"
PARTITIONS = 8


def bulk(bench: Bench) -> Iterator[Row]:
    """Batch read of the first half of the catch-up topic, so one topic serves both families."""
    records = bench.scale.bulk
    topic = bench.topic(TopicSpec(bench.scale.catch_up, PARTITIONS))
    ends = json.dumps({topic: {str(p): records // PARTITIONS for p in range(PARTITIONS)}})
    expected = records // PARTITIONS * PARTITIONS

    def speed(name: str) -> float:
        return expected / batch_read(bench, name, topic, expected, {"endingOffsets": ends})

    others = bench.scale.others
    runs: dict[str, Callable[[], float]] = {name: partial(speed, name) for name in SOURCES}
    runs[LOOP] = lambda: _program(bench, Path(sys.executable), "benchmarks.loop", topic, others)
    runs[QUIX] = lambda: _program(bench, _quix(bench), "benchmarks.quix", topic, others)
    yield from stream_rows(bench, f"batch read to noop, {records:,} of 100 B", RECORDS_PER_S, runs, bench.scale.rounds)


def catch_up(bench: Bench) -> Iterator[Row]:
    """A streaming query that reads a whole topic: its duration from start to end, and its speed while it reads."""
    records = bench.scale.catch_up
    topic = bench.topic(TopicSpec(records, PARTITIONS))
    what = f"catch-up, {records:,} of 100 B"
    runs: dict[str, Callable[[], StreamRun]] = {
        name: partial(stream_read, bench, name, topic, records) for name in SOURCES
    }
    found = bench.race(what, runs, bench.scale.rounds)
    walls = {n: c if isinstance(c, Missing) else median_of([r.wall_s for r in c]) for n, c in found.items()}
    yield from compare(f"{what}: start to end", S, walls, own=STREAMGROUPS, alternatives=SPARKS)
    speeds = {
        n: c if isinstance(c, Missing) else median_of([r.records / r.trigger_s for r in c]) for n, c in found.items()
    }
    yield from compare(f"{what}: its trigger", RECORDS_PER_S, speeds, own=STREAMGROUPS, alternatives=SPARKS)


def _quix(bench: Bench) -> Path:
    if bench.quix_python is None:
        raise NotHere("not requested; --quix-python names the Python of an environment with it")
    if not bench.quix_python.exists():
        raise NotHere("not installed")
    return bench.quix_python


def _program(bench: Bench, python: Path, module: str, topic: str, records: int) -> float:
    """Runs the program of a peer; returns the records per second that it reports.

    Raises:
        RuntimeError: if it failed.
        WrongCount: if it read another number of records.
    """
    command = [str(python), "-m", module, bench.bootstrap, topic, str(records)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=bench.directory,
        env={**os.environ, **environment()},
    )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1])
    text = json.loads(done.stdout.splitlines()[-1])
    if text["records"] < records:
        raise WrongCount(f"{text['records']} of {records} records were read")
    return float(text["records"] / text["seconds"])
