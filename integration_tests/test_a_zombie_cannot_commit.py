"""S3: a member that was paused past its session timeout resumes and can neither commit nor read."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from component_tests.waits import wait_until
from integration_tests.harness import (
    Load,
    QueryProcess,
    arrived,
    committed,
    end_offsets,
    expected,
    history,
    never_committed,
    sharing,
)
from integration_tests.query_here import QueryHere
from streamgroups.groups.history import Event, Kind

PARTITIONS = 4


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_stopped_replaced_woken(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path, protocol: str
) -> None:
    topic = new_topic(PARTITIONS)
    options = sharing(bootstrap, group, topic, protocol)
    alice = QueryProcess(tmp_path, "alice", options, batch_delay_s=0.5)
    bob = QueryHere(tmp_path, "bob", options)

    def did(member: str, *kinds: Kind) -> list[Event]:
        return [e for e in history(tmp_path) if e.member == member and e.kind in kinds]

    try:
        with Load(bootstrap, topic, partitions=PARTITIONS, per_second=500):
            alice.start().wait_for_batches(3)
            alice.signal(signal.SIGSTOP)
            owned_by_alice = committed(bootstrap, group, topic)
            bob.start(spark).wait_for_batches(3)
            taken_over = committed(bootstrap, group, topic)
            assert all(taken_over[p] > owned_by_alice[p] for p in taken_over), "bob reads on from where alice was"
            before = len(did("alice", Kind.PLANNED))
            alice.signal(signal.SIGCONT)
            wait_until(lambda: did("alice", Kind.LOST), f"alice sees that she lost:\n{alice.log()}")
            after_waking = committed(bootstrap, group, topic)
            assert all(after_waking[p] >= taken_over[p] for p in taken_over), "nothing was overwritten"
            lost_ms = did("alice", Kind.LOST)[0].time_ms
            planned = [e for e in did("alice", Kind.PLANNED) if e.time_ms < lost_ms]
            assert len(planned) == before, "what is no longer hers is not even read"
            # She joins again as a new member and resumes with her new assignment.
            alice.wait_for_batches(alice.batches() + 2)
        ends = end_offsets(bootstrap, topic, PARTITIONS)
        wait_until(lambda: committed(bootstrap, group, topic) == ends, f"all committed:\n{bob.log()}")
        alice.stop()
    finally:
        alice.kill()
        bob.stop()
    found, events = arrived(tmp_path), history(tmp_path)
    assert set(found) == expected(topic, ends)
    assert {record for record, times in found.items() if times > 1} <= never_committed(events, "alice")
