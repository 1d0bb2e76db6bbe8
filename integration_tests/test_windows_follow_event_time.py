"""W3, W5, W7, G12: windows on our watermark give the result of an undisturbed run after ``kill -9``; windows of an idle
source close.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from integration_tests import windows_query
from integration_tests.event_times import depart
from integration_tests.programs import running
from integration_tests.tiers import LONG
from streamgroups_testkit.queries import exclusive_options
from streamgroups_testkit.reading import wait_until_group_is_empty
from streamgroups_testkit.waits import wait_until

HOUR = range(60)
EACH_WINDOW = dict.fromkeys(range(0, 60, 5), 10)


def config(directory: Path, options: dict[str, str], **windows: str) -> dict[str, Any]:
    return {
        "options": options,
        "output": str(directory / "output"),
        "checkpoint": str(directory / "checkpoint"),
        "event_time": {"watermark_delay": "0s"},
        "windows": windows,
    }


@LONG
def test_W5_W7_all_idle(
    rocksdb: None, spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic = new_topic(2, retention_ms="-1")
    depart(bootstrap, topic, {0: [0, 1, 6], 1: [2]})
    query = windows_query.start(
        spark, config(tmp_path, exclusive_options(bootstrap, group, topic, "classic"), idle_timeout="2s")
    )
    try:
        output = tmp_path / "output"
        wait_until(lambda: len(windows_query.rows(output)) >= 2, "both windows close")
        # By the watermark, at minute 2, neither window would be closed.
        assert sorted(windows_query.rows(output)) == [[0, "idle", 3], [5, "idle", 1]]
        depart(bootstrap, topic, {0: [3]})
        wait_until(lambda: len(windows_query.rows(output)) >= 3, "the late record is emitted")
        assert [0, "dead letter", 7 * 60_000] in windows_query.rows(output)
    finally:
        query.stop()


@pytest.mark.long
def test_kill_in_the_middle_of_a_window(
    rocksdb: None,
    spark: SparkSession,
    admin: AdminClient,
    bootstrap: str,
    new_topic: Callable[..., str],
    group: str,
    tmp_path: Path,
) -> None:
    topic = new_topic(2, retention_ms="-1")
    requested = config(tmp_path, exclusive_options(bootstrap, group, topic, "classic"), allowed_lateness="2m")

    def wait_for_window(minute: int, check: Callable[[], object]) -> None:
        def is_emitted() -> bool:
            check()
            return minute in {row[0] for row in windows_query.rows(tmp_path / "output")}

        wait_until(is_emitted, f"the window of minute {minute} is emitted")

    depart(bootstrap, topic, {0: HOUR[:33], 1: HOUR[:32]})
    with running("windows_query", requested, tmp_path / "log") as program:
        wait_for_window(25, program.check)
    # The window of minute 30 contains five flights and is open.
    depart(bootstrap, topic, {0: [*HOUR[33:], 120], 1: [*HOUR[32:], 120]})
    # An exclusive query is rejected as long as the killed one is a member.
    wait_until_group_is_empty(admin, group)
    again = windows_query.start(spark, requested)

    def check() -> None:
        assert again.exception() is None, again.exception()

    try:
        wait_for_window(55, check)
    finally:
        again.stop()
    assert sorted(windows_query.rows(tmp_path / "output")) == [[minute, "on time", 10] for minute in EACH_WINDOW]
