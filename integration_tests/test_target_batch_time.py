"""With ``targetBatchTime`` the size of batches follows the speed of the sink."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streamgroups.query.batch_time import MeasuredBatch, after_batch, first_size
from streamgroups_testkit.producing import produce
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.waits import wait_until

RECORDS = 200
ROW_MS, TARGET_MS = 4, 1_000


def test_a_slow_sink_receives_batches_within_the_target(
    spark: SparkSession, bootstrap: str, group: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(4)
    produce(bootstrap, topic, RECORDS, partitions=4)
    sizes: list[int] = []

    def write(batch: DataFrame, _: int) -> None:
        count = batch.count()
        # The cost of this sink.
        time.sleep(count * ROW_MS / 1_000)
        sizes.append(count)

    options = shared_options(bootstrap, group, topic, "consumer") | {"targetBatchTime": f"{TARGET_MS}ms"}
    frame = spark.readStream.format("streamgroups").options(**options).load()
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path))
    # The wait for the trigger does not count. If it did, the batches would be reduced to nothing.
    query = writer.trigger(processingTime="1200 milliseconds").start()
    try:
        wait_until(lambda: sum(sizes) == RECORDS, "all records are read")
        wait_until(lambda: len(batches(query)) == len([it for it in sizes if it]), "all batches are reported")
    finally:
        query.stop()
    found = batches(query)
    size = first_size(TARGET_MS)
    for batch in found[:-1]:
        assert batch.offsets == size.max_offsets, "the limit follows from the durations that Spark reports"
        size = after_batch(size, batch, TARGET_MS)
    assert found[-1].offsets <= size.max_offsets
    # From the second batch on, a limit takes at most 80 % of the target by the cost of its rows alone.
    assert all(batch.offsets * ROW_MS <= 0.8 * TARGET_MS for batch in found[1:])


def batches(query: Any) -> list[MeasuredBatch]:
    """The batches with records in Spark's progress, from their plan to their end."""
    return [
        MeasuredBatch(it["numInputRows"], it["durationMs"]["triggerExecution"] - it["durationMs"]["latestOffset"])
        for it in query.recentProgress
        if it["numInputRows"]
    ]
