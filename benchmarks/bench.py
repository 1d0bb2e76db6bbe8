"""The shared environment of all benchmark families: a broker, a Spark session, topics, and the scale.

``benchmarks.command`` creates it once and passes it to each family. All contestants use this one session and this one
broker.
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
from benchmarks.timed_topics import TimedSpec, write_timed
from benchmarks.workload import TopicSpec, write
from integration_tests.spark_kafka import SparkKafkaJars, spark_kafka_jars

T = TypeVar("T")

ROOT = Path(__file__).parent.parent
#: Concurrent tasks. With more of them the limiting resource is unclear, because the broker runs on the same machine.
TASKS = 2

_ROUNDS = Rounds(3)
_SHAPE_ROUNDS = Rounds(4, budget_s=60, slow_s=25)
#: Members are new processes in every round, so there is no warm-up.
_HANDOVER_ROUNDS = Rounds(3, warm_up=0, budget_s=400, slow_s=120)
_STATE_ROUNDS = Rounds(2, budget_s=150, slow_s=40)
#: A round takes minutes.
_DEDUP_ROUNDS = Rounds(1, warm_up=0)


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale of the measurements.

    Args:
        bulk, catch_up, query: the number of records in the topics of these families.
        others: the number of records for slow peers, which are measured by speed.
        triggers: the sizes of micro-batches, in records.
        batches, warm_up_batches: the number of measured micro-batches of a run, and of earlier ones that are ignored.
        partitions: the numbers of partitions, with ``partition_records`` as the total number of records.
        defaults_up_to_partitions: the limit for Spark's source with its defaults, which takes minutes with more
            partitions.
        sizes_bytes: the sizes of records. Each topic has ``size_total_bytes``, but at most ``size_most_records``
            records.
        codecs: the compression types of Kafka's producers, with ``compressed`` records for each.
        rounds: the rounds of the main measurements.
        shape_rounds: the rounds of the measurements by partitions, size and codec.
        handover_rounds: the rounds of handovers.
        state_windows, state_window_records: the number of windows in a topic for state, and the records of each.
        state_batch: the number of records of a micro-batch during a catch-up with state.
        state_trigger: the number of records of a small micro-batch with state.
        state_keys: the numbers of keys of each partition.
        state_rounds: the rounds of the measurements of state.
        dedup_ids: the number of ids in a topic with duplicates.
        dedup_batch: the number of records of a micro-batch that drops duplicates.
        dedup_rounds: the rounds of these measurements.
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
    state_windows: int = 2
    state_window_records: int = 960_000
    state_batch: int = 480_000
    state_trigger: int = 8_000
    state_keys: tuple[int, ...] = (1_000, 100_000)
    state_rounds: Rounds = _STATE_ROUNDS
    dedup_ids: int = 10_000_000
    dedup_batch: int = 480_000
    dedup_rounds: Rounds = _DEDUP_ROUNDS


#: A minimal run of everything as a test; its figures have no meaning.
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
    state_window_records=8_000,
    state_batch=8_000,
    state_trigger=800,
    state_keys=(100,),
    state_rounds=Rounds(1, warm_up=0),
    dedup_ids=20_000,
    dedup_batch=8_000,
)


class Bench:
    """A session, a broker, and its topics.

    Args:
        spark: the Spark session.
        bootstrap: the bootstrap servers.
        directory: the directory of checkpoints and other files.
        scale: the scale of the measurements.
        quix_python: the Python of an environment with Quix Streams, or ``None``.
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
        self.quix_python, self.report_step = quix_python, report_step
        self._topics: dict[TopicSpec | TimedSpec, str] = {}

    def topic(self, spec: TopicSpec) -> str:
        """The name of a topic with these records. The first call writes it."""
        if spec not in self._topics:
            self.report_step(
                f"writing {spec.records:,} records of {spec.value_bytes:,} bytes to {spec.partitions} partitions"
            )
            self._topics[spec] = write(self.spark, self.bootstrap, spec)
        return self._topics[spec]

    def timed_topic(self, spec: TimedSpec) -> str:
        """The name of a topic whose records have keys and timestamps. The first call writes it."""
        if spec not in self._topics:
            self.report_step(f"writing {spec.records:,} records with {spec.keys:,} keys in each partition")
            self._topics[spec] = write_timed(self.bootstrap, spec)
        return self._topics[spec]

    def race(
        self, what: str, contestants: Mapping[str, Callable[[], T]], rounds: Rounds
    ) -> dict[str, list[T] | Missing]:
        """Runs the contestants in turn, and reports each turn."""
        return interleave(contestants, rounds, time.monotonic, lambda text: self.report_step(f"{what}: {text}"))


@contextmanager
def session(*, peers: bool = True) -> Iterator[SparkSession]:
    """The session with our source and, on request, Spark's own.

    Args:
        peers: whether Spark's own source is required.

    Raises:
        NotHere: if Spark's own source is unavailable.
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
    """The environment of processes that import the same packages as this one, installed or not."""
    found = [str(ROOT), str(ROOT / "connectors"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(found), "PYSPARK_PYTHON": sys.executable}
