"""A task that waits for Kafka ends when Spark cancels it, and leaves the workers usable."""

from __future__ import annotations

import threading
from collections.abc import Callable

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from streamgroups_testkit.waits import wait_until


def test_a_cancelled_job_ends_although_its_reader_waits(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    for i in range(10):
        producer.produce(topic, b"%d" % i, partition=0)
    producer.commit_transaction(30)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    # The last offset is a transaction marker: only the response to the next fetch shows that no record follows. The
    # options delay this response.
    slow = {"kafka.fetch.max.wait.ms": "50000", "kafka.fetch.min.bytes": "1000000"}
    waiting = spark.read.format("streamgroups").options(**options, **slow).load()
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
    assert "cancelled" in str(failures[0])
    assert spark.read.format("streamgroups").options(**options).load().count() == 10
