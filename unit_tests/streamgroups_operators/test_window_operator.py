"""W4, W5, W7, W9, W15, S10: windows are those of a reference, record by record, however batches cut the records."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from unittest.mock import patch

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from streamgroups.durations import parse_duration_ms
from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.watermark import MAX_EVENT_TIME_MS
from streamgroups.event_time.windows import EventTime, Hopping, ProcessingTime, Session, Shape, Windowing
from streamgroups.json_values import time_ms_or_none
from streamgroups_operators import aggregates, large_tables
from streamgroups_operators.operator import Numbers
from streamgroups_operators.window_operator import WindowOperator
from streamgroups_operators.windows import fresh_rows, panes, sessions
from unit_tests.extreme_times import EXTREME_TIMES_MS, LIMITS_MS
from unit_tests.streamgroups_operators.window_model import (
    P0,
    START_MS,
    Query,
    Record,
    Reference,
    brief,
    by_event_time,
    check_reset,
    current,
    dead,
    operator,
    run_batches,
)

#: The longest duration of an option.
LONGEST_MS = parse_duration_ms("100000 days", option="")
TIMES = st.integers(START_MS, START_MS + 120)
_FIELDS = (
    st.one_of(st.none(), TIMES, TIMES, TIMES),
    st.sampled_from(["a", "a", "b", None]),
    st.one_of(st.none(), st.integers(-5, 5)),
    st.one_of(st.none(), TIMES),
)
_SITES = st.sampled_from([1, 1, None])
RECORDS = st.lists(st.builds(Record, *_FIELDS, site=_SITES), max_size=60)
#: Also with watermarks of the producer, on records and on markers.
RECORDS_OF_PRODUCERS = st.lists(
    st.builds(
        Record,
        *_FIELDS,
        st.one_of(st.none(), st.none(), TIMES),
        st.sampled_from([False, False, False, True]),
        _SITES,
    ),
    max_size=60,
)
SHAPES: st.SearchStrategy[Shape] = st.sampled_from(
    [Hopping(10, 10), Hopping(20, 10), Hopping(15, 10), Hopping(7, 3), Session(3), Session(10), Session(25)]
)
POLICIES = st.sampled_from([OnViolation.KEEP, OnViolation.KEEP, *OnViolation])
_DELAYS = st.sampled_from([0, 3, 20])
OPERATORS, OPERATORS_OF_PRODUCERS = (
    st.builds(by_event_time, SHAPES, st.sampled_from([0, 5, 40]), st.none(), delays, POLICIES)
    for delays in (_DELAYS, st.one_of(st.none(), _DELAYS))
)


@given(OPERATORS_OF_PRODUCERS, RECORDS_OF_PRODUCERS, st.data())
def test_S10_however_batches_cut_the_records_the_results_are_the_same(
    of: WindowOperator, records: list[Record], data: st.DataObject
) -> None:
    # The last record closes all other windows, so that their states are compared too.
    records = [*records, Record(START_MS + 10_000, "z", producer_ms=START_MS + 10_000)]
    max_records = data.draw(st.sampled_from([1, 10, 1_000]))
    with (
        patch.object(sessions, "_MAX_RECORDS", max_records),
        patch.object(fresh_rows, "_MERGE_ROWS", max_records),
        patch.object(fresh_rows, "_MERGE_BYTES", data.draw(st.sampled_from([100, fresh_rows._MERGE_BYTES]))),
        patch.object(large_tables, "MAX_BYTES", data.draw(st.sampled_from([1, 400, large_tables.MAX_BYTES]))),
        patch.object(aggregates, "MAX_PAIRS", data.draw(st.sampled_from([1, 7, aggregates.MAX_PAIRS]))),
    ):
        manifest, rows = run_batches(Query(of), records, data, max_cuts=12)
    reference = Reference(of)
    for record in records:
        reference.add(record)
    assert current(rows) == reference.result()
    assert dead(rows) == sorted(reference.dead, key=str)
    kept = [segment.rows for part in manifest.states[0].parts.values() for segment in part]
    assert sum(kept) == len(reference.open), "a state contains open windows only"


@given(OPERATORS_OF_PRODUCERS, RECORDS_OF_PRODUCERS, st.data())
def test_S10_a_reset_to_any_offset_continues_with_the_state_of_that_offset(
    of: WindowOperator, records: list[Record], data: st.DataObject
) -> None:
    check_reset(of, records, data, lambda: Reference(of))


@given(OPERATORS_OF_PRODUCERS, RECORDS_OF_PRODUCERS, st.sampled_from([1, 2, 7, 20]))
def test_W4_divided_records_have_the_results_of_undivided_ones(
    of: WindowOperator, records: list[Record], max_pairs: int
) -> None:
    records = [*records, Record(START_MS + 10_000, "z", producer_ms=START_MS + 10_000)]
    undivided = Query(of).step(records, chunk=100)[1]
    with patch.object(aggregates, "MAX_PAIRS", max_pairs):
        divided = Query(of).step(records, chunk=100)[1]
    assert sorted(divided, key=str) == sorted(undivided, key=str)


def test_W4_the_memory_of_a_step_does_not_grow_with_the_windows_of_a_record() -> None:
    """A day every minute: 65,536 records are in 94 million windows."""
    in_windows, pairs = aggregates.in_windows, []

    def counted(shape: Shape, times_ms: Numbers) -> tuple[Numbers, Numbers]:
        found = in_windows(shape, times_ms)
        pairs.append(len(found[0]))
        return found

    query = Query(by_event_time(Hopping(1_440, 1)))
    with patch.object(panes, "in_windows", counted):
        query.step([Record(START_MS + i // 10) for i in range(2_000)], chunk=2_000)
    assert sum(pairs) == 2_000 * 1_440
    assert max(pairs) <= 1 << 20


@pytest.mark.parametrize("shape", [Hopping(10, 10), Session(5)], ids=str)
def test_W4_a_window_has_the_values_of_all_key_columns(shape: Shape) -> None:
    query, sites, rows = Query(by_event_time(shape, lateness_ms=10)), (1, 2, None), []
    first = [Record(time, site=site) for site in sites for time in (5, 8)]
    for records in (first, [Record(8, site=2)], [Record(16, "z")], [Record(8, site=1)]):
        rows += query.step(records)[1]
    found = {site: [(row["k0"], row["r0"], row["pane"]) for row in rows if row["k1"] == site] for site in sites}
    assert found == {
        1: [("a", 2, "on time"), ("a", 3, "update")],
        2: [("a", 3, "on time")],
        None: [("a", 2, "on time")],
    }


def test_S10_a_window_with_many_segments_is_merged() -> None:
    for shape in (Hopping(1_000, 1_000), Session(1_000)):
        query = Query(by_event_time(shape))
        counts = []
        for i in range(40):
            state, _ = query.step([Record(i)])
            [segments] = state.parts.values()
            counts.append(len(segments))
        assert max(counts) == 8
        assert sum(segment.rows for segment in segments) <= 8


def test_S10_ranges_without_records_have_a_state_too() -> None:
    for shape in (Hopping(10, 10), Session(10)):
        query = Query(by_event_time(shape))
        first, _ = query.step([Record(5)])
        second, rows = query.step()
        assert rows == []
        assert second.parts == first.parts
        assert second.values == first.values
        assert second.values["newest_ms"] == 5


def test_W4_updates_are_those_of_late_records_among_many_keys() -> None:
    """Arrow groups rows in an order that differs from that of the rows, from some ten keys on."""
    random = Random(3)
    keys = [None, *(f"key-{i}" for i in range(500))]
    for shape in (Hopping(10, 10), Session(10)):
        for _ in range(3):
            query = Query(by_event_time(shape, lateness_ms=100))
            query.step([Record(5, random.choice(keys)) for _ in range(500)], chunk=500)
            query.step([Record(20, "z")])
            late = [Record(5, random.choice(keys)) for _ in range(150)]
            _, rows = query.step(late, chunk=150)
            assert {row["k0"] for row in rows} == {record.key for record in late}
            assert {row["pane"] for row in rows} == {"update"}


def test_W9_a_record_before_the_watermark_is_moved_if_it_is_valid_until_later() -> None:
    records = [Record(12), Record(11, until=12), Record(9, until=13), Record(12, until=13), Record(20)]
    for policy, count, missed in (
        (OnViolation.KEEP, 3, [("late", 9)]),
        (OnViolation.DROP, 2, [("violation", 11), ("violation", 9)]),
        (OnViolation.ADJUST, 3, [("violation", 11)]),
    ):
        _, rows = Query(by_event_time(Hopping(10, 10), policy=policy)).step(records)
        assert brief([row for row in rows if row["pane"] != "dead letter"]) == [(10, 20, "a", count, "on time", 0)]
        assert dead(rows) == missed


def test_S10_the_definition_names_everything_that_changes_results() -> None:
    one = by_event_time(Hopping(10, 10), 5, delay_ms=3)
    forms = {
        one.form,
        replace(one, windowing=Windowing(Hopping(20, 10), EventTime(5))).form,
        replace(one, windowing=Windowing(Session(10), EventTime(5))).form,
        replace(one, windowing=Windowing(Hopping(10, 10), EventTime(6))).form,
        replace(one, windowing=Windowing(Hopping(10, 10), EventTime(5, 60_000))).form,
        operator(Windowing(Hopping(10, 10), ProcessingTime())).form,
        replace(one, delay_ms=4).form,
        replace(one, delay_ms=None).form,
        replace(one, on_violation=OnViolation.DROP).form,
        replace(one, aggregates=one.aggregates[:3]).form,
        replace(one, schema=one.schema.set(0, pa.field("k0", pa.int64()))).form,
        replace(one, columns=("carrier", "timestamp")).form,
        replace(one, columns=("origin", "timestamp")).form,
        replace(one, columns=("carrier", "eventTime")).form,
    }
    assert len(forms) == 14


def test_S10_the_state_of_a_partition_names_its_range() -> None:
    query = Query(by_event_time(Session(10)))
    query.step([Record(5)])
    state, _ = query.step([Record(6), Record(7)])
    assert (str(state.range), state.topic_partition) == ("flights-0[1,3)", P0)


_ANY_TIMES_MS = EXTREME_TIMES_MS | LIMITS_MS


@pytest.mark.parametrize("name", _ANY_TIMES_MS)
@pytest.mark.parametrize("shape", [Hopping(20, 10), Session(10)], ids=str)
def test_W7_a_producer_can_send_any_time(shape: Shape, name: str) -> None:
    time_ms = _ANY_TIMES_MS[name]
    others = [Record(START_MS + it) for it in (5, 7, 30)]
    query = Query(by_event_time(shape))
    found = []
    for record in [*others[:1], Record(time_ms), *others[1:], Record(START_MS + 1_000, "z")]:
        state, rows = query.step([record])
        found += rows
        assert all(time_ms_or_none(it) == it for it in state.values.values())
    # Spark converts these columns to timestamps, which have microseconds in 64 bits.
    named = [row[it] for row in found for it in ("start", "end", "event_time", "watermark") if row.get(it) is not None]
    assert all(abs(1_000 * it) < 2**63 for it in named)
    if time_ms is None or abs(time_ms) > MAX_EVENT_TIME_MS:
        alone = Query(by_event_time(shape))
        rows = [row for it in [*others, Record(START_MS + 1_000, "z")] for row in alone.step([it])[1]]
        assert current(found) == current(rows)
        assert ("no event time", None) in dead(found)


@pytest.mark.parametrize("name", LIMITS_MS)
@pytest.mark.parametrize("shape", [Hopping(LONGEST_MS, LONGEST_MS), Session(LONGEST_MS)], ids=str)
def test_S10_a_state_of_any_event_time_can_be_read(shape: Shape, name: str) -> None:
    query = Query(by_event_time(shape, LONGEST_MS, LONGEST_MS, LONGEST_MS))
    records = [Record(START_MS), Record(LIMITS_MS[name]), Record(START_MS)]
    for record in records:
        state, _ = query.step([record], START_MS)
    assert state.due_ms is not None
    found = (state.due_ms, *state.values.values())
    assert all(time_ms_or_none(it) == it for it in found)
