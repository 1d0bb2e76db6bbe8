"""What Spark's events prove of a query: where it is, what is committed, how far it is behind, and whose a partition is."""

from __future__ import annotations

from collections.abc import Mapping

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.groups.description import GroupDescription, GroupMember
from streamgroups.monitoring.lag_states import LagState
from streamgroups.monitoring.metrics import query_group
from streamgroups.monitoring.monitor import WatchedGroup
from streamgroups.monitoring.queries import Queries, QueryGroup, WatchedQuery
from streamgroups.monitoring.query_progress import QueryProgress, SourceProgress, SourceReport
from streamgroups.monitoring.snapshots import GroupSnapshot
from streamgroups.partitions import TopicPartition

P0, P1, P2 = (TopicPartition("flights", p) for p in range(3))
Ranges = Mapping[TopicPartition, tuple[int, int]]


def source(
    ranges: Ranges,
    ends: Mapping[TopicPartition, int],
    *,
    group: str = "board",
    member: str = "carol",
    member_id: str = "",
) -> SourceProgress:
    return SourceProgress(
        SourceReport(group, member, ends, member_id),
        {tp: first for tp, (first, _) in ranges.items()},
        {tp: end for tp, (_, end) in ranges.items()},
    )


def batch(
    at_s: float,
    *sources: SourceProgress,
    query: str = "q",
    run: str = "r",
    name: str | None = "flights",
    rows: int = 10,
) -> QueryProgress:
    return QueryProgress(
        query_id=query,
        run_id=run,
        name=name,
        trigger_ms=round(at_s * 1000),
        batch_id=0,
        duration_ms=500,
        phases_ms={"addBatch": 400},
        input_rows=rows,
        input_rows_per_s=1.0,
        late_records=2,
        adjusted_records=1,
        closed_windows=0,
        processed_rows_per_s=2.0,
        watermark_ms=None,
        state_rows=None,
        state_bytes=None,
        sources=sources,
    )


def only(queries: Queries, at_s: float) -> WatchedQuery:
    (query,) = queries.watched(round(at_s * 1000))
    return query


def only_group(queries: Queries, at_s: float) -> QueryGroup:
    (group,) = only(queries, at_s).groups
    return group


def report(queries: Queries, progress: QueryProgress) -> None:
    queries.progressed(progress, progress.trigger_ms + 500)


def test_O3_a_batch_is_processed_at_spark_s_first_event_and_committed_at_the_next() -> None:
    queries = Queries()
    queries.started("q", "r", "flights", 0)
    report(queries, batch(1, source({P0: (0, 10), P1: (4, 4)}, {P0: 25, P1: 4})))
    first, second = only_group(queries, 2).partitions
    assert (first.committed_offset, first.processed_offset, first.end_offset, first.records) == (0, 10, 25, 15)
    assert (second.committed_offset, second.processed_offset, second.records, second.time_lag_ms) == (4, 4, 0, 0)
    report(queries, batch(2, source({P0: (10, 25), P1: (4, 4)}, {P0: 25, P1: 4})))
    assert [p.committed_offset for p in only_group(queries, 3).partitions] == [10, 4]
    queries.idle("q", "r", 13_000, 13_100)
    assert [(p.committed_offset, p.records) for p in only_group(queries, 14).partitions] == [(25, 0), (4, 0)]
    assert only(queries, 14).last_event_ms == 13_100


def test_a_query_has_no_figures_before_its_first_batch_and_none_after_its_end() -> None:
    queries = Queries()
    queries.started("q", "r", None, 0)
    assert (only(queries, 1).progress, only(queries, 1).groups, only(queries, 1).name) == (None, (), "q")
    report(queries, batch(1, source({P0: (0, 10)}, {P0: 10}), name=None))
    assert (only(queries, 2).batches, only(queries, 2).input_rows, only(queries, 2).busy_ms) == (1, 10, 500)
    assert (only(queries, 2).late_records, only(queries, 2).adjusted_records) == (2, 1)
    queries.terminated("q", "r", None)
    assert (queries.watched(3_000), queries.group_ids, queries.failures) == ([], frozenset(), {})


def test_failures_are_counted_by_name_processor_and_cause() -> None:
    queries = Queries(processors={"flights": "board.flights"})
    for run in "ab":
        queries.started("q", run, "flights", 0)
        queries.terminated("q", run, "data_loss")
    queries.terminated("unheard of", "x", "SparkException")
    assert queries.failures == {("flights", "board.flights", "data_loss"): 2, ("", "", "SparkException"): 1}


def test_the_end_of_an_earlier_run_does_not_end_the_present_one() -> None:
    """Spark reports a start at once and other events later."""
    queries = Queries()
    queries.started("q", "old", "flights", 0)
    queries.started("q", "new", "flights", 1)
    report(queries, batch(1, source({P0: (0, 10)}, {P0: 10}), run="old"))
    queries.idle("q", "old", 1_000, 1_000)
    queries.terminated("q", "old", "data_loss")
    assert only(queries, 2).progress is None
    report(queries, batch(2, source({P0: (0, 10)}, {P0: 10}), run="new"))
    assert only(queries, 3).batches == 1


def test_a_query_that_runs_already_is_taken_up() -> None:
    queries = Queries()
    report(queries, batch(1, source({P0: (0, 10)}, {P0: 10})))
    assert only(queries, 2).name == "flights"
    report(queries, batch(2, source({P0: (0, 10)}, {P0: 10}), run="next"))
    assert only(queries, 3).batches == 1


def test_several_sources_of_a_query() -> None:
    queries = Queries()
    foreign = SourceProgress(None, {P2: 0}, {P2: 5})
    report(
        queries,
        batch(
            1,
            source({P0: (0, 10)}, {P0: 10}),
            source({P1: (0, 3)}, {P1: 4}, member="dave"),
            source({P1: (7, 8)}, {P1: 9}, group="audit"),
            foreign,
        ),
    )
    audit, metadata_store = only(queries, 2).groups
    assert [(p.topic_partition, p.records) for p in metadata_store.partitions] == [(P0, 0), (P1, 1)]
    assert metadata_store.members == {"carol", "dave"}
    assert (audit.members, audit.partitions[0].processed_offset) == (frozenset({"carol"}), 8)
    assert queries.group_ids == {"board", "audit"}


def test_G11_a_partition_belongs_to_the_query_that_reported_it_last() -> None:
    queries = Queries()
    report(queries, batch(1, source({P0: (0, 10), P1: (0, 10)}, {P0: 10, P1: 10}), query="a", name="a"))
    report(queries, batch(2, source({P1: (10, 20)}, {P1: 20}, member="dave"), query="b", name="b"))
    queries.idle("a", "r", 3_000, 3_000)
    owned = {q.name: [p.topic_partition for g in q.groups for p in g.partitions] for q in queries.watched(4_000)}
    assert owned == {"a": [P0], "b": [P1]}


def test_an_end_that_was_not_requested_is_missing() -> None:
    queries = Queries()
    report(queries, batch(1, source({P0: (0, 10)}, {})))
    (partition,) = only_group(queries, 2).partitions
    assert (partition.end_offset, partition.records, partition.time_lag_ms) == (None, None, None)
    assert partition.state is LagState.UNKNOWN


def test_the_time_lag_is_measured_from_when_the_end_passed_the_position() -> None:
    queries = Queries()
    report(queries, batch(0, source({P0: (0, 100)}, {P0: 100})))
    report(queries, batch(10, source({P0: (100, 150)}, {P0: 300})))
    # Offset 150 was written a quarter of the way between the two polls.
    assert only_group(queries, 12.5).partitions[0].time_lag_ms == 10_000


def test_a_query_that_falls_behind_is_distinguished_from_one_that_keeps_up() -> None:
    behind, level = Queries(window_ms=60_000), Queries(window_ms=60_000)
    for n in range(10):
        report(behind, batch(5 * n, source({P0: (10 * n, 10 * n + 10)}, {P0: 50 + 30 * n})))
        report(level, batch(5 * n, source({P0: (10 * n, 10 * n + 10)}, {P0: 10 * n + 10})))
    assert only_group(behind, 46).partitions[0].state is LagState.WARN
    assert only_group(level, 46).partitions[0].state is LagState.OK
    # A batch that hangs proves nothing; nor do earlier polls, once the window has passed.
    assert only_group(level, 46 + 61).partitions[0].state is LagState.UNKNOWN


def test_a_query_that_makes_no_way_is_stalled() -> None:
    queries = Queries(window_ms=60_000)
    for n in range(10):
        report(queries, batch(5 * n, source({P0: (10, 10)}, {P0: 50})))
    assert only_group(queries, 46).partitions[0].state is LagState.STALLED


@pytest.mark.parametrize(
    ("reported_id", "expected"),
    [
        ("shared-1", [P0, P2]),
        # Only the client.id is known: before the first report of the id, and after another join of the member.
        ("", [P0, P1, P2]),
        ("shared-0", [P0, P1, P2]),
    ],
)
def test_a_partition_of_another_query_with_the_same_client_id_is_not_exported(
    reported_id: str, expected: list[TopicPartition]
) -> None:
    queries = Queries()
    ranges = dict.fromkeys((P0, P1, P2), (0, 10))
    report(queries, batch(1, source(ranges, {}, member="shared", member_id=reported_id)))
    members = (
        GroupMember("shared", "/10.0.0.1", frozenset({P0}), "shared-1"),
        GroupMember("shared", "/10.0.0.2", frozenset({P1}), "shared-2"),
    )
    polled = WatchedGroup(GroupSnapshot(GroupDescription("board", "Stable", members=members), ()), ())
    figures = query_group(only(queries, 2), only_group(queries, 2), polled)
    assert [p.topic_partition for p in figures.partitions] == expected


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.booleans(), st.integers(1, 20_000)), max_size=40))
def test_what_is_committed_is_never_ahead_of_what_is_processed(steps: list[tuple[int, int, bool, int]]) -> None:
    """And lags are never negative, positions never go back, whatever the order of batches and pauses."""
    queries, at, now_ms = Queries(window_ms=60_000), 0, 0
    seen = 0
    for read, more, idle, pause_ms in steps:
        now_ms += pause_ms
        report(queries, batch(now_ms / 1000, source({P0: (at, at + read)}, {P0: at + read + more})))
        at += read
        if idle:
            queries.idle("q", "r", now_ms, now_ms)
        (p,) = only_group(queries, now_ms / 1000).partitions
        assert seen <= p.committed_offset <= p.processed_offset == at
        assert p.records == more
        assert p.time_lag_ms is None or p.time_lag_ms >= 0
        seen = p.committed_offset
