"""S2, S5: with Spark's asynchronous progress tracking the group has the position of each finished batch.

Spark writes the files of the checkpoint beside the batches, and leaves most of them out. After a kill its own source
reads all batches since the last file again.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import streamgroups as sg
from integration_tests.programs import running
from integration_tests.tiers import LONG
from streamgroups.errors import InvalidOption
from streamgroups_testkit.producing import ordered_producer, produce
from streamgroups_testkit.reading import committed_offsets
from streamgroups_testkit.waits import wait_until

PARTITIONS = 2
PER_BATCH = 20
KILLS = 3


def options(bootstrap: str, topic: str, group: str, **others: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "group.id": group,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(PER_BATCH),
        **others,
    }


def test_S2_each_batch_is_committed_and_few_are_logged(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic = new_topic(PARTITIONS)
    produce(bootstrap, topic, 300, partitions=PARTITIONS)
    rows = spark.readStream.format("streamgroups").options(**options(bootstrap, topic, group)).load()

    def run() -> list[int]:
        writer = rows.writeStream.format("noop").option("asyncProgressTrackingEnabled", "true")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            query.processAllAvailable()
            return [p.numInputRows for p in query.recentProgress if p.numInputRows]
        finally:
            query.stop()

    assert run() == [PER_BATCH] * 15
    assert committed_offsets(bootstrap, group, topic) == {0: 150, 1: 150}
    logged = [path for path in (tmp_path / "checkpoint" / "offsets").iterdir() if path.name.isdigit()]
    assert len(logged) < 15
    produce(bootstrap, topic, 2 * PER_BATCH, partitions=PARTITIONS)
    # The log has an earlier position, whose records are not read again.
    assert run() == [PER_BATCH] * 2
    assert committed_offsets(bootstrap, group, topic) == {0: 170, 1: 170}


def test_X2_a_writer_with_exactly_once_output_rejects_it(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    rows = spark.readStream.format("streamgroups").options(**options(bootstrap, "flights", "copy")).load()
    topic = new_topic(1)
    sink = sg.KafkaSink(bootstrap_servers=bootstrap, topic=topic)
    writer = sg.exactly_once(rows.select("value"), sink=sink, checkpoint=str(tmp_path))
    with pytest.raises(InvalidOption, match=r"'asyncProgressTrackingEnabled'.* exactly once"):
        writer.option("asyncProgressTrackingEnabled", "true")
    assert not any(tmp_path.iterdir())


class Killed:
    """A query that is killed in the middle, and started again."""

    def __init__(self, config: dict[str, Any], directory: Path) -> None:
        self.output, self.log = directory / "output", directory / "log"
        self.output.mkdir()
        self.config = {**config, "output": str(self.output), "checkpoint": str(directory / "checkpoint")}

    def run_and_kill(self, batches: int) -> None:
        before = self._batches()
        with running("asynchronous_query", self.config, self.log) as program:

            def has_written() -> bool:
                program.check()
                return self._batches() >= before + batches

            wait_until(has_written, "batches are written", 120)
            program.kill()

    def rows(self) -> Counter[tuple[int, ...]]:
        files = self.output.glob("*.json")
        return Counter(tuple(row) for path in files for row in json.loads(path.read_text()))

    def _batches(self) -> int:
        return sum(1 for _ in self.output.glob("*.json"))


@LONG
@pytest.mark.parametrize("windows", [False, True], ids=["records", "windows"])
def test_S5_a_kill_repeats_one_batch_at_most(
    bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path, windows: bool
) -> None:
    topic = new_topic(PARTITIONS)
    # An old topic would lose its records by retention.
    first_ms = time.time_ns() // 10_000_000 * 10
    with ordered_producer(bootstrap) as producer:
        for i in range(20_000):
            producer.produce(topic, b"x", partition=i % PARTITIONS, timestamp=first_ms + i // PARTITIONS)
    state = {"stateLocation": str(tmp_path / "state")} if windows else {}
    killed = Killed({"options": options(bootstrap, topic, group, **state), "windows": windows}, tmp_path)
    for _ in range(KILLS):
        killed.run_and_kill(batches=30)
    found = killed.rows()
    size = 10 if windows else 1
    for partition in range(PARTITIONS):
        offsets = sorted(row[1] for row in found if row[0] == partition)
        assert offsets == list(range(0, size * len(offsets), size)), "none is missing"
        assert len(offsets) > 0
    assert all(row[2:] in ((), (size,)) for row in found), "each window has all of its records"
    assert sum(found.values()) - len(found) <= KILLS * PER_BATCH // size
