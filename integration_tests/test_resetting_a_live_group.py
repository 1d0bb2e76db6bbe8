"""G8, S6: the command line and ``update_group`` reset a group of running Spark queries in one step."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from confluent_kafka import Consumer
from pyspark.sql import SparkSession

import streamgroups as sg
from integration_tests.cursors import SETTINGS
from integration_tests.tiers import EITHER_PROTOCOL, LONG
from streamgroups.groups.audit import overlaps, ownership_epochs
from streamgroups.groups.history import Event, Kind
from streamgroups_testkit.producing import Load, produce
from streamgroups_testkit.queries import (
    Record,
    all_records,
    arrived_records,
    read_histories,
    shared_options,
    uncommitted_records,
)
from streamgroups_testkit.reading import committed_offsets, end_offsets
from streamgroups_testkit.session_queries import QueryInSession, running_query
from streamgroups_testkit.waits import wait_until
from unit_tests.old_positions import reads_at_old_places

PARTITIONS = 6
TRIGGER_MS = 1_500
AT_ONCE = 1_200
GROUPS = [sys.executable, "-c", "from streamgroups_cli import main; main()", "groups"]


def groups(bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs ``streamgroups groups``."""
    return subprocess.run(
        [*GROUPS, *arguments, "-b", bootstrap], capture_output=True, text=True, timeout=120, check=False
    )


def between(events: Iterable[Event], *, back: bool) -> set[Record]:
    """The ranges between the old and the new positions of resets backward, or forward."""
    found: set[Record] = set()
    for event in events:
        for r in event.ranges if event.kind is Kind.MOVED else ():
            tp = r.topic_partition
            if (event.offsets[tp] == r.next_offset) is back:
                found |= {(tp.topic, tp.partition, offset) for offset in range(r.next_offset, r.end_offset)}
    return found


@LONG
@EITHER_PROTOCOL
def test_S6_three_queries_under_load_are_moved_in_one_step(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path, protocol: str
) -> None:
    topic = new_topic(PARTITIONS)
    names = ("alice", "bob", "carol")
    queries = [
        QueryInSession(
            tmp_path,
            name,
            shared_options(bootstrap, group, topic, protocol) | {"maxOffsetsPerTrigger": str(AT_ONCE)},
            {"processingTime": f"{TRIGGER_MS} milliseconds"},
        )
        for name in names
    ]
    # More records than the queries read before the reset to the end.
    produce(bootstrap, topic, 30 * AT_ONCE, partitions=PARTITIONS)

    def move(scenario: str) -> tuple[int, int]:
        """Resets the group; returns the time of the call, and the time when the command was about to write the reset
        request.
        """
        called_ms, requested_ms = time.time_ns() // 1_000_000, None
        result = []
        arguments = ["reset", group, "--topic", topic, scenario, "--execute", "-b", bootstrap]
        with subprocess.Popen(
            [*GROUPS, *arguments], text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as command:
            assert command.stderr is not None
            for line in command.stderr:
                result.append(line)
                if line.startswith("The previous offsets are stored"):
                    requested_ms = time.time_ns() // 1_000_000
        assert command.returncode == 0, result
        assert any(f"{PARTITIONS} partitions moved." in line for line in result)
        assert requested_ms is not None
        return called_ms, requested_ms

    try:
        with Load(bootstrap, topic, partitions=PARTITIONS, per_second=600):
            for query in queries:
                query.start(spark)
            for query in queries:
                query.wait_for_batches(2)
            requested = [move("--to-earliest")]
            before = [query.batches() for query in queries]
            for query, count in zip(queries, before, strict=True):
                query.wait_for_batches(count + 2)
            requested.append(move("--to-latest"))
        ends = end_offsets(bootstrap, topic, PARTITIONS)
        wait_until(lambda: committed_offsets(bootstrap, group, topic) == ends, "all is committed")
    finally:
        for query in queries:
            query.stop()

    events, found = read_histories(tmp_path), arrived_records(tmp_path)
    for called_ms, requested_ms in requested:
        moved = [e for e in events if e.kind is Kind.MOVED and e.time_ms >= called_ms]
        assert {e.member for e in moved} == set(names)
        for name in names:
            (first, *_) = (e for e in moved if e.member == name)
            planned = [e for e in events if e.member == name and e.kind is Kind.PLANNED]
            # The batch that ran at the time of the request, and at most one more.
            assert len([e for e in planned if requested_ms < e.time_ms < first.time_ms]) <= 2, (
                f"{name} moves within two triggers"
            )
    assert reads_at_old_places(events) == []
    assert not overlaps(ownership_epochs(events))
    missing = all_records(topic, ends) - set(found)
    assert missing <= between(events, back=False), "nothing else is skipped"
    cut_off = uncommitted_records(events, *names)
    twice = {record for record, times in found.items() if times > 1}
    assert twice
    assert twice <= between(events, back=True) | cut_off, "nothing else is read again"


def test_G8_update_group_resets_a_group_of_queries(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, 200, partitions=2)
    with (
        sg.cursors.GroupCursors(bootstrap, SETTINGS["classic"]) as cursors,
        running_query(spark, shared_options(bootstrap, group, topic, "classic")) as sink,
    ):
        wait_until(lambda: len(sink.records) >= 200, "the query reads everything")
        sink.records.clear()
        cursors.update_group(topic, group, sg.cursors.TRIM_HORIZON)
        wait_until(lambda: len(sink.records) >= 200, "the query reads everything again")
        wait_until(
            lambda: {p.moving_to for p in cursors.get_group(topic, group).partitions} == {None},
            "all have applied the reset",
        )


@LONG
def test_S6_a_group_with_members_of_other_clients_is_rejected_and_nothing_changes(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, 20, partitions=2)
    other_consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "other_consumer",
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
        }
    )
    with closing(other_consumer), running_query(spark, shared_options(bootstrap, group, topic, "classic")) as sink:
        wait_until(lambda: len(sink.records) >= 20, "the query reads everything")
        other_consumer.subscribe([topic])
        wait_until(
            lambda: other_consumer.poll(0.1) is not None or other_consumer.assignment(),
            "the other consumer has its share",
        )
        wait_until(lambda: committed_offsets(bootstrap, group, topic) == {0: 10, 1: 10}, "everything is committed")
        result = groups(bootstrap, "reset", group, "--topic", topic, "--to-earliest", "--execute")
        assert result.returncode == 3
        assert "other_consumer" in result.stderr
        assert "nothing was changed" in result.stderr
        assert committed_offsets(bootstrap, group, topic) == {0: 10, 1: 10}
