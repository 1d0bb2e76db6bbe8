"""A Python worker that has read before has few objects to traverse when Spark collects garbage in it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from streamgroups_testkit.producing import produce

PARTITIONS = 8


def test_modules_are_set_aside(spark: SparkSession, bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(PARTITIONS)
    produce(bootstrap, topic, 80, partitions=PARTITIONS)
    records = (
        spark.read.format("streamgroups")
        .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "maxRecordsPerPartition": "1"})
        .load()
    )
    assert records.count() == 80

    def set_aside(_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([[gc.get_freeze_count()]], names=["n"])

    # Spark assigns the next task to the worker that ended one last, and that worker has read many ranges.
    found = spark.range(0, 10, numPartitions=1).mapInArrow(set_aside, "n bigint").collect()
    assert found[0].n > 10_000
