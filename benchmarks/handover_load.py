"""How long a partition is not read during a handover, at rates of up to a million records per second.

``python -m benchmarks.handover_load``. Two streaming queries of one group share a topic, with the option
``targetBatchTime``. One of them is stopped and started again several times. A handover of a partition begins when this
query is stopped, or when the group revokes the partition from the other query for this one. It ends when a task of the
next owner receives the first record. Each handover of a partition is one sample.

Both queries run in one Spark application with two tasks at once, and share the machine with the broker and the producer.
At a rate that is too high for this machine, both queries read without a pause, with a growing backlog. The table shows
the rates that were reached.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

from benchmarks.bench import TASKS, environment, session
from benchmarks.figures import percentile
from benchmarks.moves import JOIN, LEAVE, Move, Read, moves
from benchmarks.rounds import NotHere, in_short
from benchmarks.workload import create, ends
from streamgroups.durations import parse_duration_ms
from streamgroups.groups.history import Kind
from streamgroups_broker import EmbeddedKafka
from streamgroups_kafka.membership.history_file import read_history

RATES = (1_000, 10_000, 100_000, 1_000_000)
#: The limit is the target of a batch and this.
_ALLOWED_S = 1.0
_TIMEOUT_S = 120.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run.

    Args:
        partitions: the number of partitions.
        rounds: how often the query is stopped and started again. Each round moves half of the partitions twice.
        steady_s: the seconds between two changes of the group.
        target: the option ``targetBatchTime``.
        protocol: the option ``kafka.group.protocol``.
    """

    partitions: int = 32
    rounds: int = 7
    steady_s: float = 3.0
    target: str = "500ms"
    protocol: str = "classic"


@dataclass(frozen=True, slots=True)
class Result:
    """The handovers at one rate.

    Args:
        per_s: the rate that was requested.
        written_per_s: the rate that was written.
        read_per_s: the rate that both queries have read together.
        moves: the handovers.
    """

    per_s: int
    written_per_s: float
    read_per_s: float
    moves: tuple[Move, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark and prints the table. Returns the exit code."""
    requested = _parser().parse_args(arguments)
    settings = Settings(requested.partitions, requested.rounds, target=requested.target, protocol=requested.protocol)
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, 130))
    results = []
    with (
        tempfile.TemporaryDirectory(prefix="streamgroups-handover-", dir=requested.directory) as directory,
        EmbeddedKafka(data_dir=Path(directory) / "kafka", jvm_options=(), heap_mb=1024) as kafka,
    ):
        try:
            with session(peers=False) as spark:
                for per_s in requested.rates:
                    began_s = time.monotonic()
                    run = Run(spark, kafka.bootstrap_servers, Path(directory), per_s, settings)
                    try:
                        results.append(run.measure())
                        outcome = f"{time.monotonic() - began_s:.0f} s"
                    except Exception as e:
                        outcome = f"failed: {in_short(e)}"
                    console.print(f"{per_s:,} records/s: {outcome}", markup=False, highlight=False)
        except NotHere as e:
            console.print(str(e), markup=False)
            return 1
    console.print(table(results, settings))
    return 0 if len(results) == len(requested.rates) else 1


def _parser() -> argparse.ArgumentParser:
    defaults = Settings()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.handover_load", description="Handovers under load.")
    parser.add_argument("--rates", type=int, nargs="+", default=RATES, metavar="N", help="records per second")
    parser.add_argument("--rounds", type=int, default=defaults.rounds)
    parser.add_argument("--partitions", type=int, default=defaults.partitions)
    parser.add_argument("--target", default=defaults.target, help="the option targetBatchTime")
    parser.add_argument("--protocol", default=defaults.protocol, choices=("classic", "consumer"))
    parser.add_argument("--directory", type=Path, help="for the broker's logs, on a disk with 10 GB free")
    return parser


# ---- one rate --------------------------------------------------------------------------------------------------------


class Run:
    """The handovers at one rate.

    Args:
        spark: the session.
        bootstrap: the bootstrap servers.
        directory: the directory for files.
        per_s: the rate, in records per second.
        settings: the settings.
    """

    def __init__(self, spark: SparkSession, bootstrap: str, directory: Path, per_s: int, settings: Settings) -> None:
        self._spark, self._bootstrap, self._per_s, self._settings = spark, bootstrap, per_s, settings
        self._topic = f"load-{per_s}-{uuid.uuid4().hex[:6]}"
        self._directory = directory / self._topic
        self._directory.mkdir()
        self._stopped_s: dict[str, float] = {}
        self._queries: dict[str, StreamingQuery] = {}
        #: The reads so far, and how far the file of each member has been parsed. Polls must not cost the queries time.
        self._reads: list[Read] = []
        self._latest_s: dict[tuple[str, int], float] = {}
        self._parsed: dict[str, int] = {}

    def measure(self) -> Result:
        """Measures.

        Raises:
            RuntimeError: if a query fails.
            TimeoutError: if a partition is not read in time.
        """
        settings = self._settings
        create(self._bootstrap, self._topic, settings.partitions)
        with _producer(self._bootstrap, self._topic, settings.partitions, self._per_s):
            try:
                self._start("stays")
                self._wait_until_read("stays", settings.partitions, time.time())
                began_s, before = time.time(), self._written()
                self._join("turn-0")
                for turn in range(settings.rounds):
                    self._leave(f"turn-{turn}")
                    self._join(f"turn-{turn + 1}")
                seconds, written = time.time() - began_s, self._written() - before
            finally:
                for query in self._queries.values():
                    query.stop()
        history = read_history(self._directory / "history")
        planned = (e for e in history if e.kind is Kind.PLANNED and e.time_ms / 1_000 >= began_s)
        read = sum(len(r) for e in planned if e.time_ms / 1_000 <= began_s + seconds for r in e.ranges)
        found = moves(history, self._reads, self._stopped_s)
        within = [it for it in found if began_s <= it.begun_s and it.read_s <= began_s + seconds]
        return Result(self._per_s, written / seconds, read / seconds, tuple(within))

    def _join(self, name: str) -> None:
        self._start(name)
        self._wait_until_read(name, self._settings.partitions // 2, time.time())
        self._steady()

    def _leave(self, name: str) -> None:
        stopped_s = self._stopped_s[name] = time.time()
        self._queries.pop(name).stop()
        self._wait_until_read("stays", self._settings.partitions, stopped_s)
        self._steady()

    def _start(self, name: str) -> None:
        options = {
            "kafka.bootstrap.servers": self._bootstrap,
            "kafka.client.id": name,
            "kafka.group.protocol": self._settings.protocol,
            "group.id": self._topic,
            "subscribe": self._topic,
            "historyDir": str(self._directory / "history"),
            "targetBatchTime": self._settings.target,
        }
        # Every record of a thousand per second and partition, so that this function does not limit the rate.
        every = max(1, self._per_s // (self._settings.partitions * 1_000))
        records = self._spark.readStream.format("streamgroups").options(**options).load()
        rows = records.where(f"offset % {every} = 0").select("partition")
        writer = rows.mapInArrow(recording(str(self._directory / f"{name}.reads")), "partition int").writeStream
        checkpoint = self._directory / f"checkpoint-{name}"
        self._queries[name] = writer.format("noop").option("checkpointLocation", str(checkpoint)).start()

    def _wait_until_read(self, name: str, partitions: int, after_s: float) -> None:
        """Waits until this number of partitions has been read by a member since a time."""

        def is_read() -> bool:
            self._parse(name)
            read = [p for (member, p), at_s in self._latest_s.items() if member == name and at_s >= after_s]
            return len(read) >= partitions

        self._wait(is_read, f"{name} reads {partitions} partitions")

    def _steady(self) -> None:
        end_s = time.monotonic() + self._settings.steady_s
        self._wait(lambda: time.monotonic() >= end_s, "")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + _TIMEOUT_S
        while not condition():
            for name, query in self._queries.items():
                if not query.isActive:
                    raise RuntimeError(f"{name} ended: {query.exception()}")
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not within {_TIMEOUT_S:g} s: {what}")
            time.sleep(_POLL_S)

    def _written(self) -> int:
        return sum(ends(self._bootstrap, self._topic, self._settings.partitions).values())

    def _parse(self, name: str) -> None:
        path = self._directory / f"{name}.reads"
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._parsed.get(name, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._parsed[name] = self._parsed.get(name, 0) + len(line)
                at_s, partitions = json.loads(line)
                self._reads += [Read(at_s, name, partition) for partition in partitions]
                self._latest_s |= {(name, partition): at_s for partition in partitions}


def recording(path: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function of ``mapInArrow`` that records when a task receives the first record of each partition.

    Args:
        path: the file, to which each line is appended in one write.
    """

    def entry(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known: set[int] = set()
        for batch in batches:
            new = set(pc.unique(batch.column("partition")).to_pylist()) - known
            if new:
                known |= new
                with open(path, "a", encoding="utf-8") as file:
                    file.write(json.dumps([time.time(), sorted(new)]) + "\n")
            yield batch.slice(0, 0)

    return entry


@contextmanager
def _producer(bootstrap: str, topic: str, partitions: int, per_s: int) -> Iterator[None]:
    """Writes records in the background."""
    config = {"bootstrap": bootstrap, "topic": topic, "partitions": partitions, "per_s": per_s}
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.paced_producer", json.dumps(config)],
        stdin=subprocess.PIPE,
        env={**os.environ, **environment()},
    ) as process:
        try:
            yield
            if process.poll() is not None:
                raise RuntimeError(f"the producer has ended with exit code {process.returncode}")
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


# ---- the table -------------------------------------------------------------------------------------------------------


def table(results: Sequence[Result], settings: Settings) -> Table:
    """The table for a terminal."""
    limit_s = parse_duration_ms(settings.target, option="target") / 1_000 + _ALLOWED_S
    found = Table(
        title=f"Seconds in which a partition is not read; {settings.partitions} partitions, targetBatchTime="
        f"{settings.target}, protocol {settings.protocol}, {TASKS} tasks at once; limit of p99: {limit_s:g} s"
    )
    names = ("requested/s", "written/s", "read/s", "cause", "n", "median", "p90", "p99", "max", "limit")
    for name in (*names, "released", "assigned", "read"):
        found.add_column(name, justify="left" if name == "cause" else "right")
    for result in results:
        for cause in (LEAVE, JOIN, "both"):
            found.add_row(*_cells(result, cause, limit_s))
        found.add_section()
    found.caption = "The last three columns are medians of the phases: until it is released, assigned, and read."
    return found


def _cells(result: Result, cause: str, limit_s: float) -> tuple[str, ...]:
    chosen = [it for it in result.moves if cause in (it.cause, "both")]
    rates = (f"{result.per_s:,}", f"{result.written_per_s:,.0f}", f"{result.read_per_s:,.0f}")
    if not chosen:
        return (*rates, cause, "0")
    seconds = [it.seconds for it in chosen]
    p99 = percentile(seconds, 99)
    figures = (statistics.median(seconds), percentile(seconds, 90), p99, max(seconds))
    phases = [statistics.median(of_phase) for of_phase in zip(*(it.phases for it in chosen), strict=True)]
    verdict = "met" if p99 < limit_s else "missed"
    return (
        *rates,
        cause,
        str(len(chosen)),
        *(f"{it:.2f}" for it in figures),
        verdict,
        *(f"{it:.2f}" for it in phases),
    )


if __name__ == "__main__":
    sys.exit(main())
