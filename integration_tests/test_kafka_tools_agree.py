"""S1, S2: Kafka's own ``kafka-consumer-groups.sh`` shows the members, their partitions, and their lag."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from integration_tests.tiers import LONG
from streamgroups_testkit.broker import Broker
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_offsets, describe_group
from streamgroups_testkit.session_queries import QueryInSession
from streamgroups_testkit.waits import wait_until


@LONG
def test_describe(
    kafka: Broker,
    bootstrap: str,
    new_topic: Callable[..., str],
    group: str,
    tmp_path: Path,
    spark: SparkSession,
) -> None:
    topic = new_topic(4)
    produce(bootstrap, topic, 40, partitions=4)
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "group.id": group,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    carol, dave = (QueryInSession(tmp_path, name, options).start(spark) for name in ("carol", "dave"))

    def shared() -> bool:
        owners = [row["CLIENT-ID"] for row in describe_group(kafka, group)]
        return owners.count("carol") == 2 and owners.count("dave") == 2

    try:
        wait_until(lambda: committed_offsets(bootstrap, group, topic) == dict.fromkeys(range(4), 10), "all is read")
        wait_until(shared, "the tool shows two partitions each", 90, interval_s=1)
        assert [(row["CURRENT-OFFSET"], row["LAG"]) for row in describe_group(kafka, group)] == [("10", "0")] * 4
        carol.stop()
        dave.stop()
        produce(bootstrap, topic, 8, partitions=4)
        assert [row["LAG"] for row in describe_group(kafka, group)] == ["2"] * 4
    finally:
        carol.stop()
        dave.stop()
