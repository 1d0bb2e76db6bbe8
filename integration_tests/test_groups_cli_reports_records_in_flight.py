"""O3: ``groups describe`` shows which part of the lag of a group is in flight."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import streamgroups as sg
from integration_tests.command_line import streamgroups
from streamgroups_testkit.producing import produce
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.waits import wait_until


def in_flight(bootstrap: str, group: str) -> dict[int, tuple[int, int]]:
    """The lag and its part in flight, by partition."""
    result = streamgroups("groups", "describe", group, "-o", "json", "-b", bootstrap)
    groups: list[dict[str, Any]] = json.loads(result.stdout)["groups"] if result.stdout else []
    return {p["partition"]: (p["lag"], p["in_flight"]) for g in groups for p in g["partitions"]}


def test_O3_the_batch_in_flight_of_a_query(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, 60, partitions=2)
    may_finish = threading.Event()

    def hold(_batch: DataFrame, _batch_id: int) -> None:
        assert may_finish.wait(120)

    options = {**shared_options(bootstrap, group, topic, "classic"), "maxOffsetsPerTrigger": "20"}
    reader = spark.readStream.format("streamgroups").options(**options)
    query = reader.load().writeStream.foreachBatch(hold).start()
    try:
        wait_until(lambda: in_flight(bootstrap, group) == {0: (30, 10), 1: (30, 10)}, "20 of 60 are in flight")
        may_finish.set()
        wait_until(lambda: in_flight(bootstrap, group) == {0: (0, 0), 1: (0, 0)}, "all records are read")
    finally:
        may_finish.set()
        query.stop()


def test_O3_what_an_instance_was_given_and_has_not_committed(
    bootstrap: str, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 30, partitions=1)
    with sg.cursors.GroupCursors(bootstrap) as cursors:
        cursor = cursors.create_group_cursor(topic, group, "worker", sg.cursors.TRIM_HORIZON)
        _, cursor = cursors.get_messages(cursor, limit=12)

        def reported() -> bool:
            # A member stores its lease and its messages in flight once a second.
            nonlocal cursor
            cursor = cursors.consumer_heartbeat(cursor)
            return in_flight(bootstrap, group) == {0: (30, 12)}

        wait_until(reported, "12 of 30 are in flight")
