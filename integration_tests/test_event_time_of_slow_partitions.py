"""W2, W3, W14: the watermark is the minimum over the partitions: a slow partition loses no records, an idle one does
not hold it back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from integration_tests.command_line import streamgroups
from integration_tests.event_times import closing, depart, departures, wait_until_closed, wait_until_read, windows
from integration_tests.tiers import LONG
from streamgroups_testkit.queries import exclusive_options
from streamgroups_testkit.waits import wait_until

HOUR = range(60)
#: A minute after which the watermark closes all windows of the hour.
MUCH_LATER = [120]


def nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for i in range(plan.children().size()):
        yield from nodes(plan.children().apply(i))


def check_plan(query: StreamingQuery) -> None:
    """W14: punctuations are filtered after Spark has processed them. Spark's optimizer would otherwise move the filter
    before that.
    """
    plan = query._jsq.streamingQuery().lastExecution().optimizedPlan()
    watermarks = [node for node in nodes(plan) if node.nodeName() == "EventTimeWatermark"]
    assert len(watermarks) == 2
    for watermark in watermarks:
        assert "Filter" not in [node.nodeName() for node in nodes(watermark)]
    filters = [node.children().apply(0).nodeName() for node in nodes(plan) if node.nodeName() == "Filter"]
    assert filters.count("EventTimeWatermark") == 2


def watched(bootstrap: str, group: str) -> list[str]:
    """O3: the effect of each partition on the watermark, as ``groups watch`` shows it."""
    poll = json.loads(streamgroups("groups", "watch", group, "--count", "1", "-o", "json", "-b", bootstrap).stdout)
    return [partition["time_state"] for partition in poll["groups"][0]["partitions"]]


@LONG
def test_W2_W3_a_slow_and_a_silent_partition(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic = new_topic(3, retention_ms="-1")
    own, sparks = f"{group}-ours", f"{group}-sparks"
    flights = {name: departures(spark, exclusive_options(bootstrap, name, topic, "consumer")) for name in (own, sparks)}
    by_partition = sg.with_event_time(flights[own], "timestamp", watermark_delay="0s", partition_idle_timeout="2s")
    by_maximum = flights[sparks].withWatermark("timestamp", "0 seconds")

    fast, slow, silent = 0, 1, 2
    depart(bootstrap, topic, {fast: HOUR, slow: [0], silent: []})
    # A filter of the user that drops all punctuations.
    with closing(windows(by_partition.where("value IS NOT NULL"))) as kept, closing(windows(by_maximum)) as lost:
        assert kept.query is not None
        recorded = sg.reports.record_time(kept.query)
        wait_until_read(bootstrap, topic, 3, own, sparks)
        # By Spark's watermark the hour has nearly ended; by ours it is the first minute.
        wait_until_closed(lost, 50)
        wait_until(lambda: watched(bootstrap, own) == ["ahead", "holds back", "idle"], "it is seen from outside")
        depart(bootstrap, topic, {slow: HOUR[1:]})
        wait_until_read(bootstrap, topic, 3, own, sparks)
        depart(bootstrap, topic, {fast: MUCH_LATER, slow: MUCH_LATER})
        seconds = wait_until_closed(kept, 55)
        wait_until_closed(lost, 55)

        each_window = dict.fromkeys(range(0, 60, 5), 10)
        assert kept.flights == each_window, "nothing is lost"
        check_plan(kept.query)
        # Spark reports a batch after its end, when its rows have already arrived here.
        wait_until(lambda: sum(moment.closed for moment in recorded.moments) >= 12, "all closings are recorded")
        recorded.close()
        recorded.write_html(tmp_path / "time.html")
        page = (tmp_path / "time.html").read_text()
        assert all(f"<title>{topic}-{p}" in page for p in (fast, slow)), "the silent one has no time to draw"
        assert '<p class="intro">0 late records, 12 closed windows' in page
        assert 120 - sum(lost.flights.values()) == 54, (
            "Spark's own: the slow partition's but for the last window, and the first"
        )
        # The idle partition did not hold the watermark back: one idle timeout, and two triggers with a margin for two
        # busy cores.
        assert seconds < 2 + 2 * 10


@LONG
def test_W11_the_source_returns_the_time_of_a_header(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(2, retention_ms="-1")
    depart(bootstrap, topic, {0: HOUR, 1: HOUR[:31]}, stamped=False)
    options = exclusive_options(bootstrap, group, topic, "consumer") | {"eventTimeHeader": "dep_ms"}
    timed = sg.with_event_time(departures(spark, options), "eventTime", watermark_delay="0s")
    with closing(windows(timed, "eventTime")) as closed:
        wait_until_read(bootstrap, topic, 2, group)
        wait_until_closed(closed, 20)
        assert closed.query is not None
        plan = closed.query._jsq.streamingQuery().lastExecution().optimizedPlan()
        assert not [node.nodeName() for node in nodes(plan) if "Python" in node.nodeName()], (
            "nothing else passes Python"
        )
        assert closed.flights == dict.fromkeys(range(0, 25, 5), 10)
