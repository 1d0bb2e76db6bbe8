"""C2, C3, S10: a savepoint of a running query continues with the state of each operator, in a fork and in place.

The rows are compared with a plain program over all records. ``test_savepoints`` has windows of partitions and sinks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from integration_tests.savepoint_groups import Group, create, groups
from integration_tests.savepoint_operators import (
    MINUTE_MS,
    PARTITIONS,
    START_MS,
    Arrival,
    Chain,
    Dedup,
    GroupWindows,
    IdleWindows,
    Join,
    Operator,
)
from integration_tests.tiers import LONG
from streamgroups_testkit.clocks import controlled_clock
from streamgroups_testkit.waits import wait_until

__all__ = ["create", "groups"]


@pytest.mark.parametrize("kind", [Join, *(pytest.param(it, marks=LONG) for it in (Dedup, Chain, GroupWindows))])
def test_C2_C3_a_savepoint_of_a_running_query_continues_in_a_fork(
    kind: type[Operator], create: Callable[[type[Operator]], Operator], groups: Callable[[Operator, str], Group]
) -> None:
    operator = create(kind)
    group, fork = groups(operator, ""), groups(operator, "-fork")
    operator.write(150)
    with group.running() as query:
        wait_until(group.has_begun, "each partition has a committed batch")
        operator.write(100)
        # In the middle of these records.
        id_ = group.commands.create(group.name)
        operator.write(100)
        operator.end()
        group.wait(query, operator.expected())
    savepoint = group.commands.record(id_)
    assert {tp: it.next_offset for tp, it in savepoint.positions.items()} != operator.ends
    group.commands.delete_states(group.name)
    group.commands.restore(id_, "--group", fork.name)
    with fork.running() as query:
        fork.wait(query, operator.expected_after(savepoint))
    assert operator.expected_after(savepoint).total() > 50


@LONG
@pytest.mark.parametrize("kind", [Join, Dedup, Chain])
def test_C2_C3_a_running_query_returns_to_its_savepoint(
    kind: type[Operator], create: Callable[[type[Operator]], Operator], groups: Callable[[Operator, str], Group]
) -> None:
    """The output after the savepoint is written once more, and no other."""
    operator = create(kind)
    group = groups(operator, "")
    operator.write(100)
    with group.running() as query:
        wait_until(group.has_begun, "each partition has a committed batch")
        operator.write(100)
        id_ = group.commands.create(group.name)
        operator.write(100)
        first = operator.expected()
        group.wait(query, first)
        group.commands.restore(id_, "--accept-repeated-output")
        operator.write(50)
        operator.end()
        group.wait(query, first + operator.expected_after(group.commands.record(id_)))


@LONG
@pytest.mark.parametrize("seed", range(3))
def test_C2_C3_idle_timeouts_continue_in_a_fork(
    seed: int, bootstrap: str, new_topic: Callable[..., str], groups: Callable[[Operator, str], Group]
) -> None:
    operator = IdleWindows(bootstrap, [new_topic(PARTITIONS, retention_ms="-1")], seed)
    group, fork = groups(operator, ""), groups(operator, "-fork")
    arrivals = operator.arrivals(24)
    first, later = arrivals[:14], arrivals[14:]
    with controlled_clock(group.spark, START_MS) as clock:

        def deliver(query: StreamingQuery, arrivals: list[Arrival]) -> None:
            for now_ms, times in arrivals:
                with clock.moved_to(now_ms):
                    operator.send(times)
                query.processAllAvailable()

        with group.running() as query:
            deliver(query, first)
            rows, watermarks_ms = operator.results(first)
            wait_until(lambda: group.watermarks_ms() == watermarks_ms, f"the watermarks {watermarks_ms} are committed")
            id_ = group.commands.create(group.name)
            deliver(query, later)
        assert Counter(group.output.rows) == Counter(row for closed in operator.results(arrivals)[0] for row in closed)
        group.commands.delete_states(group.name)
        group.commands.restore(id_, "--group", fork.name)
        # The fork reads the later records at once, when the last ones arrive.
        together = {
            partition: [it for _, times in later for it in times.get(partition, [])] for partition in range(PARTITIONS)
        }
        now_ms, end_ms = later[-1][0], later[-1][0] + MINUTE_MS
        with fork.running() as query:
            query.processAllAvailable()
            deliver(query, [(end_ms, {})])
        rows = operator.results([*first, (now_ms, together), (end_ms, {})])[0]
    expected = Counter(row for closed in rows[len(first) :] for row in closed)
    assert Counter(fork.output.rows) == expected
    assert {pane for *_, pane in expected} == {"on time", "idle"}
