"""W5: the idle timeout of windows is judged by the source. A partition is idle if no record is available.

Not idle are partitions whose records a filter removes, a limit leaves for a later batch, or a transaction hides.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.event_time.windows import Hopping, ProcessingTime, Session, Shape, Windowing, tumbling
from streamgroups.groups.membership import Owned
from streamgroups.partitions import TopicPartition
from streamgroups.state.origins import Named
from unit_tests.streamgroups_operators.group_model import GroupModel, GroupQuery
from unit_tests.streamgroups_operators.window_model import START_MS, Query, Record, by_event_time, operator

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
SHAPES: st.SearchStrategy[Shape] = st.sampled_from([Hopping(10, 10), Hopping(20, 10), Session(5)])
#: Steps: which query, what happens to a partition, how many records a query reads, and how far the clock moves.
STEPS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(["run", "run", "run", "write", "write", "open", "commit", "kill", "move", "restart", "reset"]),
        st.sampled_from([P0, P1]),
        st.lists(st.integers(0, 60), max_size=3),
        st.lists(st.integers(0, 3), min_size=2, max_size=2),
        st.integers(0, 25),
    ),
    max_size=40,
)


@dataclass
class Stage:
    """Two queries of a group, and the times at which batches have read their partitions."""

    group: GroupModel
    timeout_ms: int
    queries: list[GroupQuery] = field(init=False)
    read_ms: dict[TopicPartition, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queries = [GroupQuery(self.group, 1), GroupQuery(self.group, 2)]
        self.queries[0].take(P0, P1)

    def owned(self, tp: TopicPartition) -> Owned:
        return next(it.member.owned[tp] for it in self.queries if tp in it.member.owned)

    def has_available(self, tp: TopicPartition) -> bool:
        return self.group.high_watermarks([tp])[tp] > self.owned(tp).next_offset

    def move(self, tp: TopicPartition, next_offset: int | None = None) -> None:
        """A rebalance. With an offset, a tool resets the partition meanwhile."""
        old = next(it for it in self.queries if tp in it.member.owned)
        old.release(tp)
        if next_offset is not None:
            self.group.reset(tp, next_offset)
        self.queries[1 - self.queries.index(old)].take(tp)

    def restart(self, who: int) -> None:
        partitions = list(self.queries[who].member.owned)
        self.queries[who] = GroupQuery(self.group, 3 + self.group.attempts)
        self.queries[who].take(*partitions)

    def run(self, who: int, counts: dict[TopicPartition, int], *, is_killed: bool = False) -> list[TopicPartition]:
        """Runs a batch and checks it. Returns the partitions whose windows the idle timeout has closed."""
        query, known, now_ms = self.queries[who], len(self.group.rows), self.group.now_ms
        plans = query.step(counts, is_killed=is_killed)
        if is_killed:
            return []
        read = {it.range.topic_partition for plan in plans for it in plan.ranges if len(it.to_read)}
        closed = []
        for tp, row in self.group.rows[known:]:
            if row["pane"] != "idle":
                continue
            closed.append(tp)
            assert tp not in read
            assert not self.has_available(tp)
            assert now_ms - self.timeout_ms >= max(row["end"], self.read_ms.get(tp, 0))
        self.read_ms |= dict.fromkeys(read, now_ms)
        for tp, it in query.member.owned.items():
            if isinstance(it.state, Named) and it.state.due_ms is not None and not self.has_available(tp):
                assert it.state.due_ms > now_ms, "a window whose timeout has expired is closed"
        return closed


@given(SHAPES, st.sampled_from([0, 15]), st.integers(1, 20), STEPS)
def test_W5_windows_close_when_no_record_was_available_for_the_timeout_and_then_at_once(
    shape: Shape,
    lateness_ms: int,
    timeout_ms: int,
    steps: list[tuple[int, str, TopicPartition, list[int], list[int], int]],
) -> None:
    group = GroupModel(
        by_event_time(shape, lateness_ms, timeout_ms), {P0: [], P1: []}, passes=lambda it: it.time != START_MS
    )
    stage = Stage(group, timeout_ms)
    for who, what, tp, times, counts, passed_ms in steps:
        group.now_ms += passed_ms
        # The filter removes those at the start.
        records = [Record(START_MS + time) for time in times]
        if what == "write" and not group.open_records.get(tp):
            group.logs[tp].extend(records)
        elif what == "open":
            group.open_records[tp] = 1
        elif what == "commit" and group.open_records.pop(tp, 0):
            group.logs[tp].extend(records[:1] or [Record(START_MS)])
        elif what == "move":
            stage.move(tp)
        elif what == "restart":
            stage.restart(who)
        elif what == "reset" and isinstance(stage.owned(tp).state, Named):
            stage.move(tp, max(0, stage.owned(tp).next_offset - sum(counts)))
        else:
            stage.run(who, dict(zip((P0, P1), counts, strict=True)), is_killed=what == "kill")
    group.open_records.clear()
    for _ in range(6):
        for who in (0, 1):
            group.now_ms += 100
            stage.run(who, {P0: 99, P1: 99})
    assert all(not isinstance(state := stage.owned(tp).state, Named) or state.due_ms is None for tp in (P0, P1)), (
        "no window of an idle source stays open"
    )


# ---- examples --------------------------------------------------------------------------------------------------------


def at(*times_ms: int) -> list[Record]:
    return [Record(START_MS + time_ms) for time_ms in times_ms]


@pytest.fixture
def stage() -> Stage:
    """Windows of 10 ms and a timeout of 5 ms. A record of the window 0-10 is read at 8."""
    group = GroupModel(by_event_time(tumbling(10), 0, 5), {P0: at(1), P1: []}, passes=lambda it: it.key == "a")
    stage = Stage(group, 5)
    group.now_ms = START_MS + 8
    stage.run(0, {P0: 1})
    return stage


def runs_at(stage: Stage, *times_ms: int) -> list[int]:
    """The times at which the idle timeout closes a window."""
    found = []
    for time_ms in times_ms:
        stage.group.now_ms = START_MS + time_ms
        found += [time_ms for _ in stage.run(0, {P0: 9})]
    return found


def test_W5_the_timeout_starts_at_the_end_of_the_window(stage: Stage) -> None:
    assert runs_at(stage, *range(9, 30)) == [15]


def test_W5_records_that_a_filter_removes_start_the_timeout_again(stage: Stage) -> None:
    stage.group.logs[P0].append(Record(START_MS + 2, key="b"))
    assert runs_at(stage, 12, 15, 16, 17, 18) == [17]


def test_W5_an_open_transaction_starts_the_timeout_again_when_it_ends(stage: Stage) -> None:
    stage.group.open_records[P0] = 1
    assert runs_at(stage, 15, 40) == []
    # It is aborted: readers get the marker as an offset without a record.
    stage.group.open_records.clear()
    stage.group.logs[P0].append(Record(None, key="aborted"))
    assert runs_at(stage, 41, 45, 46) == [46]


def test_W5_a_limit_that_leaves_records_for_later_closes_none_of_its_windows(stage: Stage) -> None:
    stage.group.logs[P0].extend(at(2))
    stage.group.now_ms = START_MS + 90
    assert stage.run(0, {P1: 1}) == []
    assert runs_at(stage, 91, 95, 96) == [96]


def test_W5_a_restart_and_a_new_owner_continue_the_timeout(stage: Stage) -> None:
    stage.restart(0)
    assert runs_at(stage, 14) == []
    stage.move(P0)
    stage.move(P0)
    assert runs_at(stage, 15) == [15]


def test_W5_a_source_without_records_while_no_query_runs_is_idle_all_the_time(stage: Stage) -> None:
    stage.group.now_ms = START_MS + 500
    stage.restart(0)
    assert stage.run(0, {}) == [P0]


def test_W5_a_killed_batch_starts_the_timeout_when_it_is_repeated(stage: Stage) -> None:
    stage.group.logs[P0].extend(at(2))
    stage.group.now_ms = START_MS + 12
    stage.run(0, {P0: 1}, is_killed=True)
    assert runs_at(stage, 20, 24, 25) == [25]
    (row,) = [row for _, row in stage.group.rows if row["pane"] == "idle"]
    assert row["r0"] == 2


def test_W5_a_killed_batch_without_records_is_repeated_once(stage: Stage) -> None:
    stage.group.now_ms = START_MS + 15
    stage.run(0, {}, is_killed=True)
    assert stage.group.rows == []
    assert runs_at(stage, 16, 17) == [16]


def test_W5_a_reset_that_reads_records_again_starts_the_timeout(stage: Stage) -> None:
    stage.group.logs[P0].extend(at(2, 3))
    stage.run(0, {P0: 2})
    # No batch has ended at offset 2: the state of offset 1 and the record there lead to it.
    stage.group.now_ms = START_MS + 90
    stage.group.logs[P0].pop()
    stage.move(P0, 2)
    stage.move(P0)
    assert runs_at(stage, 90, 94, 95) == [95]


def test_W6_windows_by_the_clock_do_not_wait_for_an_open_transaction() -> None:
    group = GroupModel(operator(Windowing(tumbling(10), ProcessingTime())), {P0: at(1), P1: []})
    query = GroupQuery(group, 1)
    query.take(P0)
    query.step({P0: 1})
    group.open_records[P0] = 1
    group.now_ms += 10
    assert len(query.step({})) == 1
    assert [row["pane"] for _, row in group.rows] == ["on time"]
    assert query.step({}) == []


def test_S10_a_reset_does_not_continue_with_a_batch_that_was_killed() -> None:
    """The killed batch has closed a window without new records. It was not committed, so its output was dropped."""
    query = Query(by_event_time(Hopping(10, 10), idle_timeout_ms=5))
    records = [Record(START_MS + 1), Record(START_MS + 2), Record(START_MS + 40)]
    state, _ = query.step(records[:1], START_MS + 1)
    named, due_ms = query.state, state.due_ms
    assert due_ms is not None
    _, rows = query.run(records, 1, 1, named, now_ms=due_ms, idle_until_ms=due_ms)
    assert [(row["pane"], row["r0"]) for row in rows] == [("idle", 1)]
    # The next run continues with the state that the commit names.
    _, rows = query.run(records, 1, 3, named, now_ms=due_ms + 1_000)
    assert [(row["pane"], row["r0"]) for row in rows] == [("on time", 2)]
    reset_state, read_from = query.found(1)
    assert (reset_state, read_from) == (named, 1)


def test_S10_a_reset_continues_with_the_last_batch_that_closed_windows() -> None:
    query = Query(by_event_time(Hopping(10, 10), idle_timeout_ms=5))
    state, _ = query.step([Record(START_MS + 1)], START_MS + 1)
    assert state.due_ms is not None
    # The first batch is killed, and the second one is committed.
    query.run([Record(None)], 1, 1, query.state, now_ms=state.due_ms, idle_until_ms=state.due_ms)
    _, rows = query.step([], state.due_ms + 1_000, state.due_ms + 1_000)
    assert [row["pane"] for row in rows] == ["idle"]
    committed = query.state
    assert query.found(1) == (committed, 1)
    query.step([Record(START_MS + 40)], state.due_ms + 2_000)
    assert query.found(1) == (committed, 1)
