"""Ten minutes of small batches, to detect memory growth: ``python -m benchmarks.soak --minutes 10``.

A streaming query reads a steady load with several triggers a second. The benchmark samples the resident memory of
Spark's processes: the stream runner (with the member of the group), the Python workers (which read), and the JVM. After
the warm-up, the first third, Python processes may grow by 0.25 MiB a minute. With more growth the exit code is 1.

The reason for the limit: allocators reserve memory in steps of up to a MiB. One step in the last two thirds of ten
minutes appears as at most 0.22 MiB a minute. At four triggers a second the limit is one KiB a trigger, less than any
leaked batch, connection or consumer.

The JVM is shown without a limit, because its heap grows until a garbage collection. A run of less than five minutes has
no limit either, because steps appear as growth; it only tests the benchmark.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.bench import session
from benchmarks.memory import MIB, Growth, Sample, growths, objections
from benchmarks.rounds import NotHere
from benchmarks.workload import SteadyLoad, create
from streamgroups_broker import EmbeddedKafka

LIMIT_MIB_PER_MIN = 0.25
MIN_MINUTES = 5
RUNNER, WORKER, DAEMON, JVM = "stream runner", "Python worker", "Python daemon", "JVM"
#: The processes that must not grow. Spark's JVM has a heap of its own.
_JUDGED = (RUNNER, WORKER, DAEMON)
_TOPIC, _PARTITIONS = "soak", 8
_SAMPLE_S = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark and prints the results. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description="Does anything grow?")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--records", type=int, default=2_000, help="per second")
    parser.add_argument("--trace", type=Path, help="a file for all samples: seconds, role, pid, MiB")
    requested = parser.parse_args(arguments)
    console = Console()
    with (
        tempfile.TemporaryDirectory(prefix="streamgroups-soak-") as directory,
        EmbeddedKafka(data_dir=Path(directory) / "kafka", jvm_options=()) as kafka,
    ):
        try:
            with session(peers=False) as spark:
                samples, triggers = _soak(
                    spark, kafka.bootstrap_servers, directory, requested.minutes * 60, requested.records
                )
        except NotHere as e:
            console.print(str(e), markup=False)
            return 1
    if requested.trace:
        requested.trace.write_text(
            "".join(f"{s.at_s:.0f}\t{s.role}\t{s.pid}\t{s.rss_bytes / MIB:.2f}\n" for s in samples)
        )
    end_s = requested.minutes * 60
    found = growths(samples, end_s / 3, end_s)
    console.print(_table(found, triggers, requested.minutes))
    wrong = objections(found, _JUDGED, LIMIT_MIB_PER_MIN)
    for text in wrong:
        console.print(text, style="red", highlight=False)
    if requested.minutes < MIN_MINUTES:
        console.print(f"Less than {MIN_MINUTES} minutes: not judged.")
        return 0
    console.print(_summary(found, triggers, requested.minutes), highlight=False)
    return 1 if wrong else 0


def _soak(spark: SparkSession, bootstrap: str, directory: str, seconds: float, per_s: int) -> tuple[list[Sample], int]:
    """The samples of all processes, and the number of triggers."""
    create(bootstrap, _TOPIC, _PARTITIONS)
    with SteadyLoad(bootstrap, _TOPIC, partitions=_PARTITIONS, per_s=per_s):
        query = (
            spark.readStream.format("streamgroups")
            .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": _TOPIC, "group.id": "soak"})
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", f"{directory}/checkpoint")
            .start()
        )
        try:
            began_s = time.monotonic()
            samples: list[Sample] = []
            while (at_s := time.monotonic() - began_s) < seconds:
                # If the query fails, the benchmark ends with the error of the query.
                if query.awaitTermination(_SAMPLE_S):  # type: ignore[arg-type]
                    raise RuntimeError("the query ended by itself")
                samples += [Sample(at_s, p.pid, role, rss_bytes) for p, role, rss_bytes in spark_processes()]
            progress = query.lastProgress
            if progress is None or not progress.numInputRows:
                raise RuntimeError("the query reads nothing")
            return samples, int(progress.batchId) + 1
        finally:
            query.stop()


def spark_processes() -> Iterator[tuple[psutil.Process, str, int]]:
    """Spark's processes below this one, with their roles and their memory."""
    for process in psutil.Process().children(recursive=True):
        try:
            role = _role(process)
            if role:
                yield process, role, process.memory_info().rss
        except psutil.NoSuchProcess:
            continue


def _role(process: psutil.Process) -> str:
    command = " ".join(process.cmdline())
    if "org.apache.spark" in command:
        return JVM
    if "python_streaming_source_runner" in command:
        return RUNNER
    if "pyspark.daemon" in command:
        # The daemon forks, and its children have the same command line.
        parent = process.parent()
        return WORKER if parent is not None and "pyspark.daemon" in " ".join(parent.cmdline()) else DAEMON
    return ""


def _table(found: Sequence[Growth], triggers: int, minutes: float) -> Table:
    table = Table(title=f"Memory after the warm-up; {triggers:,} triggers in {minutes:g} minutes")
    for name in ("process", "pid", "MiB, first", "MiB, last", "MiB a minute"):
        table.add_column(name, justify="left" if name == "process" else "right")
    for g in found:
        slope = "too young" if g.mib_per_min is None else f"{g.mib_per_min:+.2f}"
        table.add_row(g.role, str(g.pid), f"{g.first_mib:.1f}", f"{g.last_mib:.1f}", slope)
    return table


def _summary(found: Sequence[Growth], triggers: int, minutes: float) -> str:
    """The last line: the result of the run."""
    slopes = [it.mib_per_min for it in found if it.role in _JUDGED and it.mib_per_min is not None]
    fastest = f"{max(slopes):+.2f} MiB a minute" if slopes else "none was measured"
    return f"{triggers:,} triggers in {minutes:g} minutes, fastest growth of a Python process: {fastest}"


if __name__ == "__main__":
    sys.exit(main())
