"""W14: Spark's ``dropDuplicatesWithinWatermark`` and the timers of ``transformWithState`` follow the watermark of this
library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import streamgroups as sg
from integration_tests.event_times import MINUTE_MS, START_MS, wait_until_read
from integration_tests.tiers import LONG
from streamgroups.monitoring.query_progress import read_time_ms
from streamgroups_spark.bridge.punctuation_options import SPARK_LATE_MS
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.waits import wait_until

#: The delay of a record's timer, in minutes of event time.
TIMER_MIN = 5


def alarm_clock() -> StatefulProcessor:
    """Emits each record, and a timer some minutes of event time later. A local class, so that Spark pickles it by value
    for the workers.
    """

    class AlarmClock(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._handle = handle

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N803
            for row in rows:
                at_ms = int(row.timestamp.timestamp() * 1_000)
                self._handle.registerTimer(at_ms + TIMER_MIN * MINUTE_MS)
                yield Row(what="seen", key=key[0], at_ms=at_ms)

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N803
            yield Row(what="rings", key=key[0], at_ms=expiredTimerInfo.getExpiryTimeInMs())

        def close(self) -> None: ...

    return AlarmClock()


@LONG
def test_W14_duplicates_and_timers_wait_for_the_slow_partition(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, rocksdb: None
) -> None:
    topic = new_topic(2, retention_ms="-1")
    options = shared_options(bootstrap, group, topic, "consumer") | {"membership": "exclusive"}
    records = spark.readStream.format("streamgroups").options(**options).load()
    timed = sg.with_event_time(
        records.withColumn("key", F.col("key").cast("string")), "timestamp", watermark_delay="10 minutes"
    )
    once = timed.dropDuplicatesWithinWatermark(["key"])
    clock = once.groupBy("key").transformWithState(
        alarm_clock(), "what string, key string, at_ms long", outputMode="Append", timeMode="EventTime"
    )
    found: set[tuple[str, str, int]] = set()
    producer = ordered_producer(bootstrap)

    def keep(batch: DataFrame, _batch_id: int) -> None:
        found.update((r.what, r.key, (r.at_ms - START_MS) // MINUTE_MS) for r in batch.collect())

    def send(*records: tuple[str, int, int]) -> None:
        """Writes records with these keys, minutes and partitions."""
        for key, minute, partition in records:
            producer.produce(topic, key=key, partition=partition, timestamp=START_MS + minute * MINUTE_MS)
        assert producer.flush(30) == 0

    def wait_for_time(minute: int) -> None:
        """Waits for a batch with this watermark, which removes expired state."""

        def is_there() -> bool:
            assert query.exception() is None, query.exception()
            reported = [progress.eventTime["watermark"] for progress in query.recentProgress if progress.eventTime]
            return (
                max((read_time_ms(time) or 0 for time in reported), default=0)
                >= START_MS + minute * MINUTE_MS - SPARK_LATE_MS
            )

        wait_until(is_there, f"the watermark is at minute {minute}")

    query = clock.writeStream.foreachBatch(keep).outputMode("append").start()
    try:
        send(("x", 0, 0), ("y", 1, 1))
        # Spark's own watermark, the maximum, would be at minute 50; ours is at the minute of the slow partition.
        send(("fast", 60, 0))
        wait_until_read(bootstrap, topic, 2, group)
        send(("y", 3, 1), ("slow", 13, 1))
        wait_for_time(3)
        # Within ten minutes of the first records and not late: duplicates.
        send(("x", 8, 0), ("y", 9, 1))
        wait_until_read(bootstrap, topic, 2, group)
        assert found == {("seen", "x", 0), ("seen", "y", 1), ("seen", "fast", 60), ("seen", "slow", 13)}
        send(("later", 30, 1))
        wait_for_time(20)
        # The ten minutes of the first record have ended.
        send(("x", 25, 1))
        wait_until(lambda: ("seen", "x", 25) in found, f"it is no duplicate any more; {found}")
        assert {key for what, key, _ in found if what == "rings"} == {"x", "y", "slow"}
        assert {minute for what, _, minute in found if what == "rings"} == {5, 6, 18}
    finally:
        query.stop()
