"""How long a micro-batch takes: this source and Spark's own, in one session, in turns.

Run as ``python -m benchmarks.small_batches`` or by ``python -m benchmarks``. Both sources read the same records of the same
topic under the same ``maxOffsetsPerTrigger`` into the sink ``noop``; what is compared is ``durationMs.triggerExecution`` of
Spark's progress reports. Short runs alternate, so that both see the same machine; the first batches of each run, which start
processes and compile code, do not count. Source: Spark's "Structured Streaming Programming Guide", Monitoring.

Spark's source is measured twice. At the end of a partition it waits for ``fetch.max.wait.ms``, 500 ms unless set, where our
reader sets 20 ms: a topic of a size that is read in seconds is then mostly waiting. Ratios are to Spark's source with our
setting, so that they compare the sources; the row with its defaults says what a user gets who sets nothing. The bulk read's
ratio is one of speeds: there more is better. Until there is a native reader every record is a Python object on its way to Arrow.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

import streamgroups as sg
from integration_tests.spark_kafka import spark_kafka_jars
from streamgroups_broker import EmbeddedKafka

PARTITIONS = 8
RECORD_BYTES = 100
OURS = "streamgroups"
#: Spark's source with the one setting that our reader has by default: what ratios refer to.
EQUAL = "kafka, as ours"
#: What is measured: the name in the tables, the format, and options beside the common ones.
SOURCES: dict[str, tuple[str, dict[str, str]]] = {
    "kafka": ("kafka", {}),
    EQUAL: ("kafka", {"kafka.fetch.max.wait.ms": "20"}),
    OURS: ("streamgroups", {}),
}
#: Where a trigger's time goes, in Spark's words, in the order of a micro-batch.
PHASES = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets")

_ROOT = Path(__file__).parent.parent


@dataclass
class Measured:
    """The warm batches of one size from one source."""

    triggers_ms: list[float] = field(default_factory=list)
    phases_ms: dict[str, list[float]] = field(default_factory=dict)

    def add(self, durations_ms: Mapping[str, float]) -> None:
        self.triggers_ms.append(durations_ms["triggerExecution"])
        for phase in PHASES:
            self.phases_ms.setdefault(phase, []).append(durations_ms.get(phase, 0))

    def percentile(self, percent: int) -> float:
        if len(self.triggers_ms) < 2:
            return self.triggers_ms[0]
        return statistics.quantiles(self.triggers_ms, n=100, method="inclusive")[percent - 1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_batches", description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, nargs="*", default=[100, 800, 10_000], help="records per micro-batch")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each source")
    parser.add_argument("--batches", type=int, default=14, help="micro-batches per run that count")
    parser.add_argument("--warm-up", type=int, default=6, help="micro-batches per run before them")
    parser.add_argument("--bulk", type=int, default=2_000_000, help="records of the bulk read; 0 leaves it out")
    parser.add_argument("--only", choices=SOURCES, help="measure one source (to profile it)")
    asked = parser.parse_args(arguments)
    console = Console()
    jars = spark_kafka_jars()
    if not jars.paths:
        console.print(jars.why_not)
        return 1
    formats = (asked.only,) if asked.only else tuple(SOURCES)
    with tempfile.TemporaryDirectory(prefix="streamgroups-bench-") as directory, EmbeddedKafka(jvm_options=()) as kafka:
        spark = _session(jars.option)
        bench = _Bench(spark, kafka.bootstrap_servers, Path(directory))
        table = _table()
        phases = _phases_table()
        for records in asked.records:
            found = bench.micro_batches(formats, records, asked.rounds, asked.batches, asked.warm_up)
            _add_rows(table, phases, records, found)
        console.print(table)
        console.print(phases)
        if asked.bulk:
            console.print(_bulk_table(bench.bulk(formats, asked.bulk, asked.rounds), asked.bulk))
        spark.stop()
    return 0


class _Bench:
    """A session, a broker and a place for checkpoints."""

    def __init__(self, spark: SparkSession, bootstrap: str, directory: Path) -> None:
        self._spark, self._bootstrap, self._directory = spark, bootstrap, directory
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log.connection.close": False})

    def micro_batches(
        self, formats: Sequence[str], records: int, rounds: int, batches: int, warm_up: int
    ) -> dict[str, Measured]:
        """The sources in turns; a first round does not count at all."""
        topic = self._topic(records * (batches + warm_up))
        found = {name: Measured() for name in formats}
        for turn in range(rounds + 1):
            for name in formats:
                progress = self._run(name, topic, records)
                # Offsets are shared between partitions in whole numbers, by each source in its own way.
                full = [p for p in progress if abs(p[0] - records) <= PARTITIONS][warm_up:]
                for _, durations_ms in full if turn else ():
                    found[name].add(durations_ms)
        return found

    def _run(self, name: str, topic: str, records: int) -> list[tuple[int, dict[str, float]]]:
        run = uuid.uuid4().hex
        source, extra = SOURCES[name]
        query = (
            self._spark.readStream.format(source)
            .options(**self._options(topic), startingOffsets="earliest", maxOffsetsPerTrigger=str(records), **extra)
            .options(**({"group.id": f"bench-{run}"} if name == OURS else {}))
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(self._directory / run))
            .start()
        )
        try:
            query.processAllAvailable()
            return [(p.numInputRows, dict(p.durationMs)) for p in query.recentProgress]
        finally:
            query.stop()

    def bulk(self, formats: Sequence[str], records: int, rounds: int) -> dict[str, list[float]]:
        """Records per second of reading a whole topic; a first round does not count, but checks that all is read."""
        topic = self._topic(records)
        for name in formats:
            counted = self._frame(name, topic).count()
            if counted != records:
                raise RuntimeError(f"{name} read {counted} of {records} records")
        found: dict[str, list[float]] = {name: [] for name in formats}
        for turn in range(rounds + 1):
            for name in formats:
                started_s = time.perf_counter()
                self._frame(name, topic).write.format("noop").mode("overwrite").save()
                if turn:
                    found[name].append(records / (time.perf_counter() - started_s))
        return found

    def _frame(self, name: str, topic: str) -> DataFrame:
        source, extra = SOURCES[name]
        return self._spark.read.format(source).options(**self._options(topic), **extra).load()

    def _options(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._bootstrap, "subscribe": topic}

    def _topic(self, records: int) -> str:
        topic = f"bench-{uuid.uuid4().hex[:8]}"
        self._admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 20, "log_level": 3})
        value = os.urandom(RECORD_BYTES)
        for i in range(records):
            while True:
                try:
                    producer.produce(topic, key=b"%d" % i, value=value, partition=i % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        if producer.flush(120):
            raise RuntimeError("not all records could be written")
        return topic


def _session(jars: str) -> SparkSession:
    # Workers import what this process imports, installed or not.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(_ROOT), str(_ROOT / "connectors"), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("streamgroups-benchmark")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.jars", jars)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    sg.register(spark)
    return spark


def _table() -> Table:
    table = Table(title=f"Trigger time of a micro-batch from {PARTITIONS} partitions, milliseconds")
    table.add_column("records")
    table.add_column("source")
    for name in ("batches", "min", "p50", "p99", "ratio of p50"):
        table.add_column(name, justify="right")
    return table


def _phases_table() -> Table:
    table = Table(title="Where the time goes: medians, milliseconds")
    table.add_column("records")
    table.add_column("source")
    for name in PHASES:
        table.add_column(name, justify="right")
    return table


def _add_rows(table: Table, phases: Table, records: int, found: Mapping[str, Measured]) -> None:
    for name, measured in found.items():
        p50 = measured.percentile(50)
        ratio = f"{p50 / found[EQUAL].percentile(50):.2f}" if EQUAL in found else ""
        table.add_row(
            f"{records:,}",
            name,
            str(len(measured.triggers_ms)),
            f"{min(measured.triggers_ms):.0f}",
            f"{p50:.0f}",
            f"{measured.percentile(99):.0f}",
            ratio,
        )
        phases.add_row(f"{records:,}", name, *(f"{statistics.median(measured.phases_ms[p]):.0f}" for p in PHASES))


def _bulk_table(found: Mapping[str, Sequence[float]], records: int) -> Table:
    table = Table(title=f"Bulk read of {records:,} records of {RECORD_BYTES} bytes")
    for name in ("source", "records/s, median", "ratio"):
        table.add_column(name, justify="left" if name == "source" else "right")
    for name, speeds in found.items():
        median = statistics.median(speeds)
        ratio = f"{median / statistics.median(found[EQUAL]):.2f}" if EQUAL in found else ""
        table.add_row(name, f"{median:,.0f}", ratio)
    return table


if __name__ == "__main__":
    sys.exit(main())
