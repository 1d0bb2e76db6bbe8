"""S1, S7, S11: a topic of a running query is deleted, recreated, or gets a partition. ``docs/gaps.rst`` has the table.

No other member joins in these tests. So a query with ``membership=exclusive`` does the same as a shared one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import DataFrame, SparkSession

from integration_tests.tiers import LONG
from streamgroups.coordination.reset_protocol import gaps_group_of
from streamgroups.groups.gaps import Gaps
from streamgroups_testkit.producing import produce, recreate_topic
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import committed_metadata, committed_offsets
from streamgroups_testkit.waits import wait_until

CHANGES = ("deleted", "recreated", "added")
SUBSCRIPTIONS = ("list", "pattern", "assign")
POLICIES = ("skip", "fail")
PROTOCOLS = ("classic", "consumer")
#: The cell of ``make test``: with this protocol, librdkafka reports the partitions of a deleted topic as lost.
SHORT = {("deleted", "pattern", "exclusive", "skip", "classic")}
TABLE = [
    pytest.param(*cell, marks=() if cell in SHORT else LONG, id="-".join(cell))
    for cell in product(CHANGES, SUBSCRIPTIONS, ("shared", "exclusive"), POLICIES, PROTOCOLS)
]
#: The errors of ``onDataLoss=fail``, and of a topic in a list that stays away.
GONE = r"does not exist|not exist any more|was deleted and recreated"


class Running:
    """A query over two topics with one partition each. The second topic changes."""

    def __init__(self, spark: SparkSession, options: dict[str, str], checkpoint: Path) -> None:
        self.rows: set[tuple[str, int, int]] = set()
        self.count = 0
        reader = spark.readStream.format("streamgroups").options(**options).load()
        writer = reader.writeStream.foreachBatch(self._write).option("checkpointLocation", str(checkpoint))
        self.query = writer.start()

    def _write(self, batch: DataFrame, _batch_id: int) -> None:
        found = [(r.topic, r.partition, r.offset) for r in batch.select("topic", "partition", "offset").collect()]
        self.count += len(found)
        self.rows.update(found)

    def has(self, topic: str, partition: int, count: int) -> bool:
        """Whether the first offsets of a partition have been read."""
        return self.rows >= {(topic, partition, offset) for offset in range(count)}

    def error(self) -> str:
        """The error of the query; empty while it runs."""
        found = self.query.exception()
        return "" if found is None else str(found)


@contextmanager
def running(spark: SparkSession, options: dict[str, str], checkpoint: Path) -> Iterator[Running]:
    started = Running(spark, options, checkpoint)
    try:
        yield started
    finally:
        started.query.stop()


def subscription(kind: str, kept: str, changed: str) -> dict[str, str]:
    if kind == "list":
        return {"subscribe": f"{kept},{changed}"}
    if kind == "pattern":
        return {"subscribePattern": f"^{kept.removesuffix('-kept')}-.*"}
    return {"assign": json.dumps({kept: [0], changed: [0]})}


def is_expected_to_fail(change: str, kind: str, policy: str) -> bool:
    """The table of ``docs/gaps.rst``."""
    if change == "added":
        return False
    return policy == "fail" or (change == "deleted" and kind == "list")


@pytest.mark.parametrize(("change", "kind", "membership", "policy", "protocol"), TABLE)
def test_S11_a_topic_changes_under_a_query(
    spark: SparkSession,
    bootstrap: str,
    admin: AdminClient,
    new_topic: Callable[..., str],
    group: str,
    tmp_path: Path,
    change: str,
    kind: str,
    membership: str,
    policy: str,
    protocol: str,
) -> None:
    kept = new_topic(1, name=f"{group}-kept")
    changed = new_topic(1, name=f"{group}-changed")
    for topic in (kept, changed):
        produce(bootstrap, topic, 5, partitions=1)
    options = shared_options(bootstrap, group, kept, protocol)
    del options["subscribe"]
    options |= subscription(kind, kept, changed)
    options |= {"membership": membership} if kind != "assign" else {}
    options |= {"onDataLoss": policy, "kafka.metadata.max.age.ms": "500"}
    with running(spark, options, tmp_path) as run:
        wait_until(lambda: run.error() or (run.has(kept, 0, 5) and run.has(changed, 0, 5)), "both topics are read")
        wait_until(lambda: run.error() or committed_offsets(bootstrap, group, changed) == {0: 5}, "they are committed")
        assert not run.error()
        if change == "deleted":
            admin.delete_topics([changed])[changed].result(30)
            wait_until(lambda: changed not in admin.list_topics(timeout=10).topics, "the topic is deleted")
        elif change == "recreated":
            recreate_topic(admin, changed)
        else:
            admin.create_partitions([NewPartitions(changed, 2)])[changed].result(30)
        if is_expected_to_fail(change, kind, policy):
            wait_until(lambda: run.error(), "the query fails")
        elif change == "recreated":
            wait_until(
                lambda: run.error() or recorded(bootstrap, group, changed) == [(5, 0, "recreated")], "it is noticed"
            )
        produce(bootstrap, kept, 5, partitions=1)
        if change == "recreated" and not run.error():
            produce(bootstrap, changed, 3, partitions=1)
        if change == "added":
            produce(bootstrap, changed, 5, partitions=2)

        def is_read() -> bool:
            if change == "recreated":
                return run.has(kept, 0, 10) and run.count == 18
            if change == "added" and kind != "assign":
                return run.has(kept, 0, 10) and run.count == 20
            return run.has(kept, 0, 10)

        wait_until(lambda: run.error() or is_read(), "the query continues", 60)
    assert bool(run.error()) == is_expected_to_fail(change, kind, policy), run.error()
    if run.error():
        assert re.search(GONE, run.error()), run.error()


def recorded(bootstrap: str, group: str, topic: str) -> list[tuple[int | None, int, str]]:
    metadata = committed_metadata(bootstrap, gaps_group_of(group), topic)
    return [(g.from_offset, g.to_offset, g.cause.value) for g in Gaps.decode(metadata.get(0, "")).newest]
