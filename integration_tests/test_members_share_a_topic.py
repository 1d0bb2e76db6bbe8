"""S1, G10, G11: queries of one group share the partitions of a topic; when members join or leave, no record is lost or
repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import SparkSession

from integration_tests.tiers import EITHER_PROTOCOL, LONG
from streamgroups.groups.audit import overlaps, ownership_epochs, read_again
from streamgroups.groups.history import Kind
from streamgroups_testkit.producing import Load, produce
from streamgroups_testkit.queries import (
    all_records,
    arrived_records,
    read_histories,
    shared_options,
    uncommitted_records,
)
from streamgroups_testkit.reading import committed_offsets, end_offsets
from streamgroups_testkit.session_queries import QueryInSession, running_query
from streamgroups_testkit.waits import wait_until

PARTITIONS = 8


@LONG
@EITHER_PROTOCOL
def test_join_and_leave_under_load(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path, protocol: str
) -> None:
    topic = new_topic(PARTITIONS)
    options = {**shared_options(bootstrap, group, topic, protocol), "maxOffsetsPerTrigger": "2000"}
    # A batch is in flight most of the time, also when bob joins, so the handover has a batch to wait for.
    alice, bob = QueryInSession(tmp_path, "alice", options, batch_delay_s=1), QueryInSession(tmp_path, "bob", options)
    try:
        with Load(bootstrap, topic, partitions=PARTITIONS):
            alice.start(spark).wait_for_batches(2)
            bob.start(spark).wait_for_batches(3)
            stopping_ms = time.time_ns() // 1_000_000
            alice.stop()
            bob.wait_for_batches(bob.batches() + 2)
        ends = end_offsets(bootstrap, topic, PARTITIONS)
        wait_until(lambda: committed_offsets(bootstrap, group, topic) == ends, f"all committed:\n{bob.log()}")
    finally:
        alice.stop()
        bob.stop()
    found = arrived_records(tmp_path)
    events = read_histories(tmp_path)
    assert set(found) == all_records(topic, ends)
    assert not overlaps(ownership_epochs(events))
    # A query that is stopped during a batch leaves this batch to other members; all other records arrived once.
    assert {record for record, times in found.items() if times > 1} <= uncommitted_records(events, "alice")
    assert all("alice" in r.by for r in read_again(events))
    (first,) = (e for e in events if e.member == "bob" and e.kind is Kind.JOINING)
    handed_over = [e for e in events if e.member == "alice" and e.kind is Kind.RELEASED and e.offsets]
    assert first.time_ms < handed_over[0].time_ms < stopping_ms, "partitions changed hands while both queries ran"


@EITHER_PROTOCOL
def test_G10_one_query_too_many_idles_and_takes_over(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, protocol: str
) -> None:
    topic = new_topic(1)
    options = shared_options(bootstrap, group, topic, protocol)
    produce(bootstrap, topic, 5, partitions=1)
    with ExitStack() as first:
        one = first.enter_context(running_query(spark, options))
        wait_until(lambda: len(one.records) == 5, "the first query reads")
        with running_query(spark, options) as spare:
            query = spare.query
            wait_until(lambda: query is not None and query.lastProgress is not None, "the second one runs without any")
            produce(bootstrap, topic, 5, partitions=1, first=5)
            wait_until(lambda: len(one.records) == 10, "the first one continues")
            assert spare.records == []
            first.close()
            produce(bootstrap, topic, 5, partitions=1, first=10)
            wait_until(lambda: (topic, 0, 14) in spare.records, "the second one takes over")
            assert spare.records == [(topic, 0, n) for n in range(spare.records[0][2], 15)]
