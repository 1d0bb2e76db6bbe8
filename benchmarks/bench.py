"""What all families of measurements share: a broker, a Spark session, topics, and how much to measure.

Made once by ``command`` and given to each family. Everything that is compared runs in this one session, against this one broker.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

import streamgroups as sg
from benchmarks.figures import Missing
from benchmarks.jdbc import jdbc_driver
from benchmarks.rounds import NotHere, Rounds, interleave
from benchmarks.workload import TopicSpec, write
from integration_tests.spark_kafka import SparkKafkaJars, spark_kafka_jars

T = TypeVar("T")

ROOT = Path(__file__).parent.parent
#: Concurrent tasks. With more of them the limiting resource is unclear, because the broker runs on the same machine.
TASKS = 2

_ROUNDS = Rounds(3)
_SHAPE_ROUNDS = Rounds(4, budget_s=60, slow_s=25)
#: Members are new processes every time: there is nothing to warm up.
_HANDOVER_ROUNDS = Rounds(3, warm_up=0, budget_s=240)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much to measure.

    Args:
        bulk, catch_up, query: records of these families' topics.
        others: records that the slow peers read, whose figure is a speed.
        triggers: sizes of micro-batches, in records.
        batches, warm_up_batches: micro-batches of a run that count, and those before them that do not.
        partitions: numbers of partitions, and ``partition_records`` in all of them together.
        defaults_up_to_partitions: with more, Spark's source is not run with its defaults: it would take minutes.
        sizes_bytes: sizes of records; as many as make ``size_total_bytes``, and at most ``size_most_records``.
        codecs: compressions, as Kafka's producers call them, and ``compressed`` records for each.
        rounds: of what is quoted most.
        shape_rounds: of the costs by partitions, size and codec.
        handover_rounds: of handovers.
    """

    bulk: int = 5_000_000
    catch_up: int = 10_000_000
    query: int = 2_000_000
    others: int = 1_000_000
    triggers: tuple[int, ...] = (100, 1_000, 10_000)
    batches: int = 25
    warm_up_batches: int = 5
    partitions: tuple[int, ...] = (1, 8, 64, 512)
    partition_records: int = 1_000_000
    defaults_up_to_partitions: int = 64
    sizes_bytes: tuple[int, ...] = (20, 100, 1_000, 10_000, 100_000)
    size_total_bytes: int = 200_000_000
    size_most_records: int = 2_000_000
    codecs: tuple[str, ...] = ("none", "lz4", "zstd")
    compressed: int = 1_000_000
    rounds: Rounds = _ROUNDS
    shape_rounds: Rounds = _SHAPE_ROUNDS
    handover_rounds: Rounds = _HANDOVER_ROUNDS


#: Everything once, to see that it works; its figures mean nothing.
QUICK = Scale(
    bulk=50_000,
    catch_up=100_000,
    query=50_000,
    others=20_000,
    triggers=(100,),
    batches=3,
    warm_up_batches=1,
    partitions=(1, 16),
    partition_records=20_000,
    sizes_bytes=(100_000,),
    size_total_bytes=2_000_000,
    size_most_records=20_000,
    codecs=("zstd",),
    compressed=20_000,
    rounds=Rounds(1, warm_up=0),
    shape_rounds=Rounds(1, warm_up=0),
    handover_rounds=Rounds(1, warm_up=0),
)


class Bench:
    """A session, a broker, and topics on it.

    Args:
        spark: the session.
        bootstrap: the broker.
        directory: for checkpoints and the like.
        scale: how much to measure.
        quix_python: the Python of an environment with Quix Streams, if there is one.
        report_step: called with a description of each step.
    """

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str,
        directory: Path,
        scale: Scale,
        *,
        quix_python: Path | None = None,
        report_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.spark, self.bootstrap, self.directory, self.scale = spark, bootstrap, directory, scale
        self.quix_python, self._report_step = quix_python, report_step
        self._topics: dict[TopicSpec, str] = {}

    def topic(self, spec: TopicSpec) -> str:
        """A topic with these records. The first call writes it."""
        if spec not in self._topics:
            self._report_step(
                f"writing {spec.records:,} records of {spec.value_bytes:,} bytes to {spec.partitions} partitions"
            )
            self._topics[spec] = write(self.spark, self.bootstrap, spec)
        return self._topics[spec]

    def race(
        self, what: str, contestants: Mapping[str, Callable[[], T]], rounds: Rounds
    ) -> dict[str, list[T] | Missing]:
        """Runs the contestants in turn, and reports each turn."""
        return interleave(contestants, rounds, time.monotonic, lambda text: self._report_step(f"{what}: {text}"))


@contextmanager
def session(*, peers: bool = True) -> Iterator[SparkSession]:
    """The session, with our source and Spark's own.

    Args:
        peers: whether Spark's own is needed.

    Raises:
        NotHere: Spark's own source cannot be had.
    """
    jars = spark_kafka_jars() if peers else SparkKafkaJars(())
    if peers and not jars.paths:
        raise NotHere(jars.why_not)
    with suppress(NotHere):
        jars = SparkKafkaJars((*jars.paths, jdbc_driver())) if peers else jars
    os.environ.update(environment())
    spark = (
        SparkSession.builder.master(f"local[{TASKS}]")
        .appName("streamgroups-benchmark")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.shuffle.partitions", str(TASKS))
        .config("spark.jars", jars.option)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    sg.register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def environment() -> dict[str, str]:
    """For processes that are to import what this one does, installed or not."""
    found = [str(ROOT), str(ROOT / "connectors"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(found), "PYSPARK_PYTHON": sys.executable}
