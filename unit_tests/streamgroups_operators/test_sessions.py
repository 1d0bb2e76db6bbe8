"""W4, W7, S10: sessions in the single case, and how many rows of them are read and written."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from streamgroups.event_time.windows import Session
from streamgroups_operators.windows.pane_merging import _in_order, _needs_order, _touching
from unit_tests.streamgroups_operators.window_model import Query, Record, brief, by_event_time, dead

NEVER = np.iinfo(np.int64).min // 2


def at(*times_ms: int, key: str = "a") -> list[Record]:
    return [Record(time_ms, key) for time_ms in times_ms]


def test_an_emitted_session_that_grows_is_retracted() -> None:
    query = Query(by_event_time(Session(5), lateness_ms=10))
    _, rows = query.step(at(0, 8))
    assert brief(rows) == [(0, 5, "a", 1, "on time", 0)]
    _, rows = query.step(at(4))
    assert brief(rows) == [(0, 5, "a", None, "retraction", 1)]
    _, rows = query.step(at(20, key="b"))
    assert brief(rows) == [(0, 13, "a", 3, "on time", 1)]
    _, rows = query.step(at(10))
    assert brief(rows) == [(0, 13, "a", None, "retraction", 2), (0, 15, "a", 4, "update", 2)]
    _, rows = query.step(at(9))
    assert brief(rows) == [(0, 15, "a", 5, "update", 3)]


def test_a_late_record_within_the_lateness_has_a_session_of_its_own() -> None:
    query = Query(by_event_time(Session(5), lateness_ms=10))
    query.step(at(20))
    _, rows = query.step(at(8))
    assert brief(rows) == [(8, 13, "a", 1, "update", 1)]
    _, rows = query.step(at(5))
    assert dead(rows) == [("late", 5)]
    assert brief(rows) == [(5, 10, "a", None, "dead letter", None)]


def test_a_record_on_time_joins_a_session_that_ends_at_the_watermark() -> None:
    """The record is not late, but the session was emitted."""
    for cut in (False, True):
        query = Query(by_event_time(Session(5), lateness_ms=10))
        batches = [[*at(0), Record(5, "b")], at(5)] if cut else [[*at(0), Record(5, "b"), *at(5)]]
        emitted = [row for records in batches for row in query.step(records)[1]]
        state, rows = query.step(at(30, key="b"))
        rows = [row for row in [*emitted, *rows] if row["k0"] == "a"]
        before = [(0, 5, "a", 1, "on time", 0), (0, 5, "a", None, "retraction", 1)] if cut else []
        assert brief(rows) == brief_sorted([*before, (0, 10, "a", 2, "on time", 1)])
        assert state.due_ms is None


def brief_sorted(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(rows, key=str)


def test_without_lateness_a_closed_session_is_not_joined() -> None:
    for batches in ([[*at(0), Record(5, "b"), *at(5)]], [[*at(0), Record(5, "b")], at(5)]):
        query = Query(by_event_time(Session(5)))
        rows = [row for records in [*batches, at(30, key="b")] for row in query.step(records)[1] if row["k0"] == "a"]
        assert brief(rows) == [(0, 5, "a", 1, "on time", 0), (5, 10, "a", 1, "on time", 0)]


def test_a_batch_that_closes_no_session_writes_its_own_sessions_only() -> None:
    query = Query(by_event_time(Session(100)))
    query.step([Record(i % 50, f"key-{i}") for i in range(500)])
    state, _ = query.step(at(60, 70, key="key-1"))
    assert [segment.rows for segment in state.parts["sessions"]] == [500, 1]
    assert state.values["earliest_end_ms"] == 100
    state, rows = query.step(at(101, key="key-1"))
    assert sorted(row["end"] for row in rows) == [100] * 10 + [101] * 9
    assert [segment.rows for segment in state.parts["sessions"]] == [481]
    assert state.values["earliest_end_ms"] == 102


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(1, 12)), max_size=30))
def test_windows_of_one_key_that_touch_have_one_number(windows: list[tuple[int, int, int]]) -> None:
    codes, starts, lengths = (np.array([it[i] for it in windows], np.int64) for i in range(3))
    ends = starts + lengths
    never = np.full(len(windows), NEVER)
    numbers = _touching(codes, starts, ends)
    groups, late = _in_order(codes, starts, ends, never, never)
    assert len(set(zip(numbers.tolist(), groups.tolist(), strict=True))) == len(set(numbers.tolist()))
    assert len(set(groups.tolist())) == len(set(numbers.tolist()))
    assert not late.any()


def test_records_keep_their_order_only_next_to_a_session_that_is_due() -> None:
    numbers, starts = np.array([0, 0, 1, 1]), np.array([0, 4, 0, 4])
    for watermark, ordered in ((4, False), (5, True), (9, True)):
        watermarks = np.array([NEVER, watermark, NEVER, NEVER])
        expected = [ordered, ordered, False, False]
        assert _needs_order(numbers, starts, starts + 5, watermarks).tolist() == expected
