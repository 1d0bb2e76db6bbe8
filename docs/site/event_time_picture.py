"""Records ``docs/images/event-time.svg``, the picture of ``docs/event-time.rst``, from a run of a query::

    PYTHONPATH=connectors python docs/site/event_time_picture.py docs/images/event-time.svg

It starts a broker and a query. One second of the run is two minutes of event time. Partition 0 is ahead of partition 1.
Partition 2 stops, holds back the watermark until its idle timeout, and returns with records that are late by then. Source:
SEMANTICS W2, W3.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.spark_sessions import session_builder
from streamgroups_testkit.topics import create_topic

#: 2013-01-01T05:00:00Z, the departure of the first flights.
_START_MS = 1_357_016_400_000
_MINUTE_MS = 60_000
_TICK_S = 0.25
_TICKS = 180
#: The minutes of event time per second.
_SPEED = 2.0
#: Partition 2 has no records in this part of the run, in seconds.
_SILENT_S = (14.0, 30.0)


def _event_minute(partition: int, elapsed_s: float) -> float | None:
    """The event time of the record that a partition receives now, in minutes; ``None`` without a record."""
    if partition == 0:
        return _SPEED * elapsed_s + 12
    if partition == 1:
        return _SPEED * elapsed_s
    silent_from_s, silent_until_s = _SILENT_S
    if elapsed_s < silent_from_s:
        return _SPEED * elapsed_s + 5
    if elapsed_s < silent_until_s:
        return None
    # It continues where it stopped, and catches up.
    catching_up = _SPEED * silent_from_s + 5 + 6 * _SPEED * (elapsed_s - silent_until_s)
    return min(catching_up, _SPEED * elapsed_s + 5)


def main(path: Path) -> int:
    """Runs the query, and writes the picture."""
    spark = session_builder("event-time-picture").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    sg.register(spark)
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory() as checkpoint:
        # The records are old, and would expire at once.
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        create_topic(admin, "flights", 3, {"retention.ms": "-1"})
        flights = (
            spark.readStream.format("streamgroups")
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("group.id", "flight-board")
            .option("membership", "exclusive")
            .option("subscribe", "flights")
            .option("startingOffsets", "earliest")
            .load()
        )
        timed = sg.with_event_time(flights, "timestamp", watermark_delay="0s", partition_idle_timeout="6s")
        counts = timed.groupBy(F.window("timestamp", "5 minutes")).count()
        writer = counts.writeStream.format("noop").queryName("flight-board").option("checkpointLocation", checkpoint)
        query = writer.trigger(processingTime="500 milliseconds").start()
        with sg.reports.record_time(query, interval_s=0.25) as recorded:
            _produce(kafka.bootstrap_servers)
            query.processAllAvailable()
        query.stop()
        recorded.write_svg(path, clock="elapsed")
    spark.stop()
    return 0


def _produce(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    begun_s = time.monotonic()
    for tick in range(_TICKS):
        time.sleep(max(0.0, begun_s + tick * _TICK_S - time.monotonic()))
        for partition in range(3):
            minute = _event_minute(partition, tick * _TICK_S)
            if minute is not None:
                at_ms = _START_MS + round(minute * _MINUTE_MS)
                producer.produce("flights", value="departed", partition=partition, timestamp=at_ms)
        producer.poll(0)
    producer.flush(30)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
