"""A member of a group as a program: a streaming query of this library, also with state, or a plain confluent-kafka consumer. Started by
``handover``.

It writes a line of JSON with the time for each event: it joins, it reads records of partitions, it leaves. A record
counts as read when user code receives it: in ``foreachBatch``, or as a result of ``consume``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Set by a signal handler. A flag instead of an exception, because an exception during a call to Java breaks the
# connection.
_STOP = threading.Event()
_POLL_S = 0.05


class Diary:
    """The event log of a member.

    Args:
        path: a separate file.
    """

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def entry(self, what: str, partitions: Iterable[int] = ()) -> None:
        """Appends one line, in one write."""
        line = json.dumps({"at_s": time.time(), "what": what, "partitions": sorted(set(partitions))})
        os.write(self._fd, f"{line}\n".encode())


def query(config: dict[str, Any], diary: Diary) -> None:
    """A streaming query, until it is stopped."""
    from pyspark.sql import SparkSession

    import streamgroups as sg

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    sg.register(spark)

    def write(batch: DataFrame, _batch_id: int) -> None:
        partitions = batch.select("partition").toArrow().column(0).unique().to_pylist()
        if partitions:
            diary.entry("read", partitions)

    reader = spark.readStream.format("streamgroups").options(**config["options"], historyDir=config["history"])
    rows = counted(reader.load()) if config["has_state"] else reader.load()
    running = rows.writeStream.foreachBatch(write).option("checkpointLocation", config["checkpoint"]).start()
    while not _STOP.is_set() and not running.awaitTermination(_POLL_S):  # type: ignore[arg-type]
        pass
    diary.entry("leaving")
    running.stop()
    spark.stop()


def counted(frame: DataFrame) -> DataFrame:
    """The number of records of each key, as state. The output is the partition of each batch with records."""
    import pyarrow as pa

    import streamgroups as sg

    def count(state: pa.Table, records: pa.Table, _time: sg.event_time.BatchTime) -> tuple[pa.Table, pa.Table]:
        new = records.group_by("key").aggregate([([], "count_all")]).rename_columns(["key", "n"])
        sums = pa.concat_tables([state, new]).group_by("key").aggregate([("n", "sum")])
        return sums.rename_columns(["key", "n"]), records.select(["partition"]).slice(0, 1)

    records = frame.select("key", "partition", "offset")
    return sg.stateful(records, count, by=["key"], state="n bigint", output="partition int", name="counts")


def consumer(config: dict[str, Any], diary: Diary) -> None:
    """A plain consumer that commits its records, until it is stopped."""
    from confluent_kafka import Consumer, TopicPartition

    member = Consumer({**config["settings"], "log_level": 0})
    diary.entry("joining")

    def on_assign(_member: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            diary.entry("assigned", (tp.partition for tp in partitions))

    member.subscribe([config["topic"]], on_assign=on_assign)
    while not _STOP.is_set():
        messages = [m for m in member.consume(1_000, _POLL_S) if m.error() is None]
        if messages:
            diary.entry("read", (m.partition() or 0 for m in messages))
            member.commit(asynchronous=True)
    diary.entry("leaving")
    member.close()


def _die_with_the_benchmark() -> None:
    """Ends with the benchmark: standard input is a pipe from it, and its end means that the benchmark has ended."""

    def wait() -> None:
        os.read(0, 1)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=wait, name="benchmark-watch", daemon=True).start()


def main(kind: str, config: dict[str, Any]) -> int:
    """Runs a member of this kind."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: _STOP.set())
    _die_with_the_benchmark()
    (consumer if kind == "consumer" else query)(config, Diary(config["diary"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2])))
