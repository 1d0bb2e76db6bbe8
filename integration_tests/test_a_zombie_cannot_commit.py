"""S3: a member that was paused past its session timeout resumes and can neither commit nor read."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from integration_tests.tiers import EITHER_PROTOCOL, LONG
from streamgroups.groups.history import Event, Kind
from streamgroups_testkit.producing import Load
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

PARTITIONS = 4


@LONG
@EITHER_PROTOCOL
def test_stopped_replaced_woken(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path, protocol: str
) -> None:
    topic = new_topic(PARTITIONS)
    options = shared_options(bootstrap, group, topic, protocol)
    alice = QueryProcess(tmp_path, "alice", options, batch_delay_s=0.5)
    bob = QueryInSession(tmp_path, "bob", options)

    def did(member: str, *kinds: Kind) -> list[Event]:
        return [e for e in read_histories(tmp_path) if e.member == member and e.kind in kinds]

    try:
        with Load(bootstrap, topic, partitions=PARTITIONS, per_second=500):
            alice.start().wait_for_batches(3)
            alice.signal(signal.SIGSTOP)
            owned_by_alice = committed_offsets(bootstrap, group, topic)
            bob.start(spark).wait_for_batches(3)
            taken_over = committed_offsets(bootstrap, group, topic)
            assert all(taken_over[p] > owned_by_alice[p] for p in taken_over), "bob reads on from where alice was"
            woken_ms = time.time_ns() // 1_000_000
            alice.signal(signal.SIGCONT)
            wait_until(lambda: did("alice", Kind.LOST), f"alice sees that she lost:\n{alice.log()}")
            after_waking = committed_offsets(bootstrap, group, topic)
            assert all(after_waking[p] >= taken_over[p] for p in taken_over), "nothing was overwritten"
            lost_ms = did("alice", Kind.LOST)[0].time_ms
            # The signal can stop her before a batch that she has planned is in the history.
            planned = [e for e in did("alice", Kind.PLANNED) if woken_ms <= e.time_ms < lost_ms]
            assert planned == [], "what is no longer hers is not even read"
            # She joins again as a new member and resumes with her new assignment.
            alice.wait_for_batches(alice.batches() + 2)
        ends = end_offsets(bootstrap, topic, PARTITIONS)
        wait_until(lambda: committed_offsets(bootstrap, group, topic) == ends, f"all committed:\n{bob.log()}")
        alice.stop()
    finally:
        alice.kill()
        bob.stop()
    found, events = arrived_records(tmp_path), read_histories(tmp_path)
    assert set(found) == all_records(topic, ends)
    assert {record for record, times in found.items() if times > 1} <= uncommitted_records(events, "alice")
