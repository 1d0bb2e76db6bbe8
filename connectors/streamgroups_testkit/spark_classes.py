"""Creates an archive of the classes that Spark loads: ``python -m streamgroups_testkit.spark_classes FILE``.

Called by ``spark_sessions``, once per PySpark and Java. The archive reduces the start of a test session to a third.
Source: JEP 350 (dynamic archives).
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.functions import window

from streamgroups_testkit.spark_sessions import JVM, builder


class _Numbers(DataSource):
    """A streaming source in Python, as ours is one."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "value binary, offset long, timestamp timestamp"

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
        return _NumbersReader()


class _NumbersReader(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"next": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        return iter(()), {"next": min(start["next"] + 1, 3)}


def _load_classes(spark: SparkSession) -> None:
    """Runs a small example of every operation that the tests use."""
    rows = spark.createDataFrame([(b"1", 1), (b"2", 2)], "value binary, offset long")
    rows.filter("offset > 0").groupBy("value").count().orderBy("value").toArrow()
    spark.dataSource.register(_Numbers)
    stream = spark.readStream.format("numbers").load()
    windows = stream.withWatermark("timestamp", "1 minute").groupBy(window("timestamp", "1 minute")).count()

    def write(batch: DataFrame, _: int) -> None:
        batch.toArrow()

    with tempfile.TemporaryDirectory() as checkpoints:
        for i, (frame, mode) in enumerate([(stream, "append"), (windows, "append")]):
            writer = frame.writeStream.foreachBatch(write).outputMode(mode).trigger(availableNow=True)
            writer.option("checkpointLocation", f"{checkpoints}/{i}").start().awaitTermination()
            memory = frame.writeStream.format("memory").queryName(f"memory{i}").outputMode(mode).trigger(once=True)
            memory.option("checkpointLocation", f"{checkpoints}/memory{i}").start().awaitTermination()


def main(archive: str) -> int:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = builder("streamgroups-classes", f"{JVM} -XX:ArchiveClassesAtExit={archive}").getOrCreate()
    _load_classes(spark)
    spark.stop()
    # The JVM writes the archive at its end, which exceeds the time that this process would wait.
    gateway = SparkContext._gateway
    assert gateway is not None
    jvm = gateway.proc
    jvm.stdin.close()
    jvm.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
