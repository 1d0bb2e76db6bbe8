"""S1, G11, G12: ``kill -9`` of a member under load: no record is lost, and only its batch in flight is read twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from integration_tests.tiers import EITHER_PROTOCOL
from streamgroups.groups.audit import overlaps, ownership_epochs
from streamgroups.groups.history import Kind
from streamgroups_testkit.producing import Load, produce
from streamgroups_testkit.queries import (
    QueryProcess,
    all_records,
    arrived_records,
    read_histories,
    shared_options,
    uncommitted_records,
)
from streamgroups_testkit.reading import committed_offsets, end_offsets
from streamgroups_testkit.session_queries import QueryInSession
from streamgroups_testkit.waits import wait_until

PARTITIONS = 8


@pytest.mark.long
@EITHER_PROTOCOL
def test_kill_under_load(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path, protocol: str
) -> None:
    topic = new_topic(PARTITIONS)
    options = shared_options(bootstrap, group, topic, protocol)
    alice = QueryProcess(tmp_path, "alice", options, batch_delay_s=0.3)
    bob = QueryInSession(tmp_path, "bob", options)
    try:
        with Load(bootstrap, topic, partitions=PARTITIONS, per_second=1_000):
            alice.start()
            bob.start(spark)
            alice.wait_for_batches(3)
            bob.wait_for_batches(3)
            alice.kill()
            before = bob.batches()

            def taken_over() -> bool:
                assigned = [e for e in read_histories(tmp_path) if e.member == "bob" and e.kind is Kind.ASSIGNED]
                return len({tp for e in assigned for tp in e.offsets}) == PARTITIONS

            wait_until(taken_over, f"bob owns all partitions:\n{bob.log()}")
            bob.wait_for_batches(before + 2)
        ends = end_offsets(bootstrap, topic, PARTITIONS)
        wait_until(lambda: committed_offsets(bootstrap, group, topic) == ends, f"all committed:\n{bob.log()}")
    finally:
        alice.kill()
        bob.stop()
    found, events = arrived_records(tmp_path), read_histories(tmp_path)
    assert set(found) == all_records(topic, ends)
    assert not overlaps(ownership_epochs(events))
    assert {record for record, times in found.items() if times > 1} <= uncommitted_records(events, "alice")


@pytest.mark.long
def test_restart_at_once_with_default_timeouts(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    """The group waits for the session timeout of the killed member, 45 s. The new member must wait without an error."""
    topic = new_topic(PARTITIONS)
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "group.id": group,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    produce(bootstrap, topic, 80, partitions=PARTITIONS)
    alice, again = QueryProcess(tmp_path, "alice", options), QueryInSession(tmp_path, "again", options)
    try:
        alice.start().wait_for_batches(1)
        wait_until(
            lambda: committed_offsets(bootstrap, group, topic) == dict.fromkeys(range(8), 10), "the first part", 30
        )
        alice.kill()
        produce(bootstrap, topic, 80, partitions=PARTITIONS)
        again.start(spark).wait_for_batches(1, 120)
    finally:
        alice.kill()
        again.stop()
    found = arrived_records(tmp_path)
    assert set(found) == all_records(topic, dict.fromkeys(range(PARTITIONS), 20))
    assert max(found.values()) == 1
