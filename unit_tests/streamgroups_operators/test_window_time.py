"""W5, W6: windows of idle partitions, and windows by processing time, with the clock of each batch."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from streamgroups.event_time.windows import Hopping, ProcessingTime, Session, Shape, Windowing, tumbling
from streamgroups.state.origins import New
from streamgroups_operators.window_operator import WindowOperator
from unit_tests.streamgroups_operators.window_model import (
    START_MS,
    Query,
    Record,
    Reference,
    Row,
    brief,
    by_event_time,
    current,
    dead,
    operator,
)

TUMBLING_AND_HOPPING: st.SearchStrategy[Shape] = st.sampled_from([Hopping(10, 10), Hopping(20, 10), Hopping(7, 3)])
OPERATORS = st.one_of(
    st.builds(
        by_event_time,
        st.one_of(TUMBLING_AND_HOPPING, st.sampled_from([Session(3), Session(10)])),
        st.sampled_from([0, 5, 40]),
        st.integers(1, 30),
        st.sampled_from([0, 3, 20]),
    ),
    st.builds(lambda shape: operator(Windowing(shape, ProcessingTime())), TUMBLING_AND_HOPPING),
)
TIMES = st.integers(START_MS, START_MS + 80)
RECORDS = st.lists(
    st.builds(Record, TIMES, st.sampled_from(["a", "b", None]), site=st.sampled_from([1, 2])), max_size=6
)
#: Batches: their records, how far the clock moves, how long before it an idle partition was polled.
BATCHES = st.lists(st.tuples(RECORDS, st.integers(-5, 30), st.integers(0, 5)), max_size=12)


def at(*times_ms: int, key: str = "a") -> list[Record]:
    return [Record(time_ms, key) for time_ms in times_ms]


@given(OPERATORS, BATCHES)
def test_W5_W6_windows_that_the_clock_closes_are_those_of_the_reference(
    of: WindowOperator, batches: list[tuple[list[Record], int, int]]
) -> None:
    query, reference, now_ms = Query(of), Reference(of), START_MS
    rows: list[Row] = []
    for records, passed_ms, polled_ms in [*batches, ([Record(START_MS + 10_000, "z")], 10_000, 0)]:
        now_ms += passed_ms
        idle_until_ms = None if records else now_ms - polled_ms
        before = set(reference.open)
        state, output = query.step(records, now_ms, idle_until_ms)
        rows += output
        for record in records:
            reference.add(record, now_ms)
        reference.end_batch(now_ms, idle_until_ms)
        if not records and reference.open == before:
            assert output == [], "no time has advanced"
        assert (state.due_ms is None) == (not reference.open)
    assert current(rows) == reference.result()
    assert dead(rows) == sorted(reference.dead, key=str)


@given(OPERATORS, BATCHES)
def test_S10_a_run_when_it_is_due_closes_a_window_and_an_earlier_one_does_not(
    of: WindowOperator, batches: list[tuple[list[Record], int, int]]
) -> None:
    query, reference, now_ms = Query(of), Reference(of), START_MS
    for records, passed_ms, _ in batches:
        now_ms += abs(passed_ms)
        state, _ = query.step(records, now_ms)
        for record in records:
            reference.add(record, now_ms)
        reference.end_batch(now_ms, None)
    while reference.open:
        assert state.due_ms is not None
        early, _ = query.step((), state.due_ms - 1, state.due_ms - 1)
        assert (early.parts, early.due_ms) == (state.parts, state.due_ms)
        before = state.due_ms
        state, _ = query.step((), before, before)
        reference.end_batch(before, before)
        assert state.due_ms is None or state.due_ms > before, "each run has an effect"
        if state.due_ms is None:
            assert not reference.open


def test_W5_windows_of_an_idle_partition_close_after_the_clock_has_passed_their_end() -> None:
    query = Query(by_event_time(tumbling(3), idle_timeout_ms=2))
    steps: list[tuple[list[Record], int, int | None, list[Any], int | None]] = [
        # The records of the batch, the clock, until when the partition was idle, the output, and when it is due.
        (at(0), 1, None, [], 5),
        ([], 4, 4, [], 5),
        (at(2), 4, None, [], 6),
        ([], 6, 5, [], 6),
        ([], 7, 6, [(0, 3, "a", 2, "idle", 0)], None),
        (at(2), 8, None, [(0, 3, "a", None, "dead letter", None)], None),
        (at(3), 9, None, [], 11),
        (at(6), 9, None, [(3, 6, "a", 1, "on time", 0)], 11),
    ]
    for records, now_ms, idle_until_ms, output, due_ms in steps:
        state, rows = query.step(
            [Record(START_MS + r.time) for r in records if r.time is not None],
            START_MS + now_ms,
            None if idle_until_ms is None else START_MS + idle_until_ms,
        )
        shifted = [{**row, "start": row["start"] - START_MS, "end": row["end"] - START_MS} for row in rows]
        assert brief(shifted) == output
        assert state.due_ms == (None if due_ms is None else START_MS + due_ms)


def test_W5_a_filter_that_removes_all_records_makes_no_partition_idle() -> None:
    query = Query(by_event_time(tumbling(3), idle_timeout_ms=2))
    query.step(at(START_MS), START_MS + 1)
    # A batch with offsets has no time until which the partition was idle, although no record reaches the operator.
    state, rows = query.step([], START_MS + 9)
    assert (rows, state.due_ms) == ([], START_MS + 11)
    _, rows = query.step([], START_MS + 10, START_MS + 10)
    assert rows == []


def test_W5_the_idle_timeout_closes_a_window_in_its_lateness() -> None:
    for shape in (tumbling(3), Session(3)):
        query = Query(by_event_time(shape, lateness_ms=60, idle_timeout_ms=2))
        _, rows = query.step(at(START_MS, START_MS + 3), START_MS)
        assert [row["pane"] for row in rows if row["start"] == START_MS and row["end"] == START_MS + 3] == (
            ["on time"] if shape == tumbling(3) else []
        )
        _, rows = query.step(at(START_MS + 2), START_MS + 1)
        assert [row["pane"] for row in rows] == (["update"] if shape == tumbling(3) else [])
        state, _ = query.step([], START_MS + 60, START_MS + 60)
        assert state.parts == {}
        _, rows = query.step(at(START_MS + 2), START_MS + 61)
        assert [row["why"] for row in rows] == ["late"]


def test_W6_by_processing_time_nothing_is_late() -> None:
    query = Query(operator(Windowing(tumbling(5), ProcessingTime())))
    state, rows = query.step([*at(33, 99), Record(None, "a")], START_MS + 7)
    assert (rows, state.due_ms) == ([], START_MS + 10)
    _, rows = query.step(at(36), START_MS + 4)
    assert rows == [], "a clock that was set back"
    _, rows = query.step([], START_MS + 9, START_MS + 9)
    assert rows == []
    state, rows = query.step([], START_MS + 11, START_MS + 11)
    assert brief(rows) == [(START_MS + 5, START_MS + 10, "a", 4, "on time", 0)]
    assert (state.parts, state.due_ms) == ({}, None)


def test_W6_a_reset_loses_no_window_by_processing_time() -> None:
    query = Query(operator(Windowing(tumbling(5), ProcessingTime())))
    records = at(1, 2, 3, 4)
    query.run(records, 0, 2, New(), now_ms=START_MS + 1)
    state, read_from = query.found(3)
    # The record before the offset 3 has the time of the state. The window is emitted by the batch, not before it.
    _, rows = query.run(records, 3, 4, state, read_from, now_ms=START_MS + 6)
    assert brief(rows) == [(START_MS, START_MS + 5, "a", 3, "on time", 0)]
