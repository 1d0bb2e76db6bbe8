"""A task that waits for Kafka ends when Spark cancels it, and leaves the workers as they were."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from integration_tests.harness import produce, wait_until


def test_a_cancelled_job_ends_although_its_reader_waits(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 10, partitions=1)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    # Records that nobody writes: the reader would wait for two minutes.
    waiting = spark.read.format("streamgroups").options(**options, endingOffsets=f'{{"{topic}": {{"0": 1000}}}}').load()
    failures: list[Exception] = []

    def count() -> None:
        spark.sparkContext.setJobGroup(topic, "a read that waits", interruptOnCancel=True)
        try:
            waiting.count()
        except Exception as e:
            failures.append(e)

    job = threading.Thread(target=count)
    job.start()
    tracker = spark.sparkContext.statusTracker()

    def runs() -> bool:
        return any(
            (stage := tracker.getStageInfo(stage_id)) is not None and stage.numActiveTasks > 0
            for stage_id in tracker.getActiveStageIds()
        )

    wait_until(runs, "the task runs")
    spark.sparkContext.cancelJobGroup(topic)
    job.join(30)
    assert not job.is_alive()
    with pytest.raises(Exception, match="cancelled"):
        raise failures[0]
    assert spark.read.format("streamgroups").options(**options).load().count() == 10
