"""How often a batch reads the checkpoint: on an object store each read is a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import streamgroups as sg
from integration_tests.counted_reads import counting_source
from integration_tests.test_kafka_sink_is_exactly_once import Query
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import read_committed

_BATCHES = 4


@pytest.fixture
def reads(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[], list[str]]]:
    """The reads of the checkpoint by the sinks of this session."""
    counts = tmp_path / "reads"
    counts.touch()
    spark.dataSource.register(counting_source(counts))
    yield lambda: counts.read_text().splitlines()
    sg.register(spark)


def test_X1_a_batch_with_records_reads_the_checkpoint_three_times(
    spark: SparkSession,
    bootstrap: str,
    new_topic: Callable[..., str],
    group: str,
    tmp_path: Path,
    reads: Callable[[], list[str]],
) -> None:
    topic, board, checkpoint = new_topic(2), new_topic(2), tmp_path / "checkpoint"
    query = Query(spark, bootstrap, topic, group, checkpoint)
    running = query.exactly_once(query.source().select("key", "value"), board).start()
    try:
        for _ in range(_BATCHES):
            produce(bootstrap, topic, 10, partitions=2)
            running.processAllAvailable()
    finally:
        running.stop()
    assert len(read_committed(bootstrap, board)) == 10 * _BATCHES
    # A batch can begin while its records are produced.
    batches = [it for it in (checkpoint / "commits").iterdir() if it.name.isdigit()]
    assert len(batches) >= _BATCHES
    assert 0 < len(reads()) <= 3 * len(batches)
