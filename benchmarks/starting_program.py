"""A query as a user writes it, as a program. Started by ``starts``.

It writes a line of JSON with the time of each event to its output: ``trigger`` in its first batch, and ``rows`` at its first rows. It ends when its standard input ends.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

#: The name in ``empty_source``, which imports more than a program needs.
EMPTY_FORMAT = "empty-of-benchmark"

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(config: dict[str, Any]) -> None:
    """Runs the query.

    Args:
        config: ``format`` and ``options`` of the source, ``checkpoint``, and ``spark``, the settings of the session.
    """
    builder = SparkSession.builder
    for name, value in config["spark"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if config["format"] == "streamgroups":
        import streamgroups as sg

        sg.register(spark)
    elif config["format"] == EMPTY_FORMAT:
        from benchmarks.empty_source import EmptySource

        spark.dataSource.register(EmptySource)
    has_rows = False

    def write(batch: DataFrame, batch_id: int) -> None:
        nonlocal has_rows
        if batch_id == 0:
            _report("trigger")
        if not has_rows and batch.count():
            has_rows = True
            _report("rows")

    frame = spark.readStream.format(config["format"]).options(**config["options"]).load()
    query = frame.writeStream.foreachBatch(write).option("checkpointLocation", config["checkpoint"]).start()
    sys.stdin.read()
    query.stop()
    spark.stop()


def _report(what: str) -> None:
    print(json.dumps({"at_s": time.time(), "what": what}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
