"""W19, W9, S10: windows over intervals and edges are those of a reference, record by record, however batches cut the
records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from streamgroups.event_time.event_shapes import EventShape
from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.watermark import MAX_EVENT_TIME_MS
from streamgroups.event_time.window_shapes import Scope
from streamgroups.event_time.windows import Hopping
from streamgroups.partitions import TopicPartition
from streamgroups.state.manifest import PartitionState
from streamgroups.state.origins import Named
from streamgroups_operators import aggregates, large_tables, merging
from streamgroups_operators.window_operator import WindowOperator
from streamgroups_operators.windows import fresh_rows, shared_partials
from streamgroups_operators.windows.edges import OPEN_EDGES, match
from unit_tests.streamgroups_operators.group_model import GroupModel, GroupQuery
from unit_tests.streamgroups_operators.lifetime_model import EventReference, of_events
from unit_tests.streamgroups_operators.window_model import (
    P0,
    START_MS,
    Query,
    Record,
    Row,
    brief,
    check_reset,
    current,
    dead,
    run_batches,
)

INTERVAL, EDGE = EventShape.INTERVAL, EventShape.EDGE
TENS = Hopping(10, 10)
TIMES = st.integers(START_MS, START_MS + 120)
KEYS, VALUES = st.sampled_from(["a", "b", None]), st.one_of(st.none(), st.integers(-5, 5))
SITES = st.sampled_from([1, 1, None])
INTERVALS = st.lists(
    st.builds(
        Record,
        st.one_of(st.none(), TIMES, TIMES, TIMES, TIMES),
        KEYS,
        VALUES,
        st.one_of(st.none(), st.integers(START_MS, START_MS + 200)),
        site=SITES,
    ),
    max_size=40,
)
#: Few times, so that most ends have a start, and some starts are equal.
EDGES = st.lists(
    st.builds(
        Record,
        st.one_of(st.none(), *[st.integers(0, 5).map(lambda at: START_MS + 25 * at)] * 9),
        st.sampled_from(["a", None]),
        VALUES,
        st.one_of(st.none(), st.integers(START_MS, START_MS + 200)),
        site=SITES,
    ),
    max_size=40,
)
EVENTS = st.one_of(st.tuples(st.just(INTERVAL), INTERVALS), st.tuples(st.just(EDGE), EDGES))
DEFINITIONS = st.tuples(
    st.sampled_from([TENS, Hopping(20, 10), Hopping(15, 10), Hopping(7, 3)]),
    st.sampled_from([0, 5, 40]),
    st.sampled_from([0, 3, 20]),
    st.sampled_from([OnViolation.KEEP, OnViolation.KEEP, *OnViolation]),
)


def rows_of(state: PartitionState, part: str) -> int:
    return sum(segment.rows for segment in state.parts.get(part, ()))


def results(rows: Sequence[Row]) -> list[tuple[object, ...]]:
    """Start, end, count, kind and revision of each row of a window."""
    of_windows = [row for row in rows if row["pane"] != "dead letter"]
    return [(start, end, *result) for start, end, _, *result in sorted(brief(of_windows))]


# ---- any cut ---------------------------------------------------------------------------------------------------------


@given(EVENTS, DEFINITIONS, st.data())
def test_W19_however_batches_cut_the_records_the_results_are_the_same(
    events: tuple[EventShape, list[Record]],
    definition: tuple[Hopping, int, int, OnViolation],
    data: st.DataObject,
) -> None:
    of = of_events(events[0], *definition)
    # The last record closes all windows of the others.
    records = [*events[1], Record(START_MS + 400, "z")]
    query, reference = Query(of), EventReference(of)
    few = data.draw(st.sampled_from([1, 10, 1_000]))
    with (
        patch.object(fresh_rows, "_MERGE_ROWS", few),
        patch.object(shared_partials, "MAX_DUE_ROWS", data.draw(st.sampled_from([1, 20, 100_000]))),
        patch.object(large_tables, "MAX_BYTES", data.draw(st.sampled_from([1, 400, large_tables.MAX_BYTES]))),
        patch.object(aggregates, "MAX_PAIRS", data.draw(st.sampled_from([1, 5, aggregates.MAX_PAIRS]))),
        patch.object(merging, "MAX_MERGE_BYTES", data.draw(st.sampled_from([1, 300, 1 << 30]))),
    ):
        manifest, rows = run_batches(query, records, data, max_cuts=12)
        while manifest.states[0].due_ms is not None:
            state = Named(manifest.file, len(records))
            manifest, output = query.run(records, len(records), len(records), state)
            rows += output
            assert output, "each batch makes progress"
    for record in records:
        reference.add(record)
    assert current(rows) == reference.result()
    assert dead(rows) == sorted(reference.dead, key=str)
    [after] = manifest.states
    assert after.values.get(OPEN_EDGES, 0) == len(reference.open)
    assert rows_of(after, "intervals") <= 2, "of the events that have ended, only the last record can be in the state"


@given(EVENTS, DEFINITIONS, st.data())
def test_S10_a_reset_to_any_offset_continues_with_the_events_of_that_offset(
    events: tuple[EventShape, list[Record]],
    definition: tuple[Hopping, int, int, OnViolation],
    data: st.DataObject,
) -> None:
    of = of_events(events[0], *definition)
    check_reset(of, events[1], data, lambda: EventReference(of))


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_W19_an_end_ends_the_earliest_start_of_its_event(records: list[tuple[int, bool]]) -> None:
    ordered = sorted(range(len(records)), key=lambda i: records[i][0])
    queues: dict[int, deque[int]] = {}
    expected = []
    for i in ordered:
        event, is_end = records[i]
        queue = queues.setdefault(event, deque())
        position = len(expected)
        expected.append((queue.popleft() if queue else -1) if is_end else -1)
        if not is_end:
            queue.append(position)
    found = match(np.array([records[i][0] for i in ordered]), np.array([records[i][1] for i in ordered], bool))
    assert found.tolist() == expected


def test_W19_an_end_has_the_values_of_all_key_columns_of_its_start() -> None:
    starts, end = [Record(5, site=site) for site in (1, 2, None)], Record(5, until=8, site=2)
    for batches in ([[*starts, end]], [starts, [end]]):
        query = Query(of_events(EDGE, TENS))
        rows = [row for records in [*batches, [Record(21, "z")]] for row in query.step(records)[1]]
        found = {(row["k1"], row["start"], row["r0"]) for row in rows}
        assert found == {(1, 0, 1), (2, 0, 1), (None, 0, 1), (1, 10, 1), (None, 10, 1)}


# ---- intervals -------------------------------------------------------------------------------------------------------


def test_W19_every_window_that_overlaps_an_interval_counts_it() -> None:
    query = Query(of_events(INTERVAL, TENS))
    # The last two are valid for one moment: without an end, and with an end that is not after the start.
    _, rows = query.step([Record(5, until=25), Record(9, until=10), Record(12), Record(13, until=13)])
    assert results(rows) == [(0, 10, 2, "on time", 0)]
    _, rows = query.step([Record(31)])
    assert results(rows) == [(10, 20, 3, "on time", 0), (20, 30, 1, "on time", 0)]


def test_W19_only_the_start_of_an_interval_advances_the_watermark() -> None:
    _, rows = Query(of_events(INTERVAL, TENS)).step([Record(5, until=500), Record(6)])
    assert rows == []


def test_W19_an_interval_is_late_if_all_its_windows_are_closed() -> None:
    query = Query(of_events(INTERVAL, TENS))
    query.step([Record(25)])
    _, rows = query.step([Record(3, until=21), Record(3, until=20), Record(40)])
    assert results(rows) == [(20, 30, 2, "on time", 0)]
    [letter] = [row for row in rows if row["pane"] == "dead letter"]
    assert (letter["why"], letter["event_time"], letter["start"], letter["end"]) == ("late", 3, 10, 20)


def test_W4_an_interval_updates_emitted_windows_within_their_lateness() -> None:
    query = Query(of_events(INTERVAL, TENS, lateness_ms=15))
    query.step([Record(5), Record(32)])
    # The window 0-10 is closed. The others before the watermark had no event.
    _, rows = query.step([Record(8, until=100)])
    assert results(rows) == [(10, 20, 1, "update", 1), (20, 30, 1, "update", 1)]
    _, rows = query.step([Record(40)])
    assert results(rows) == [(30, 40, 2, "on time", 0)]


def test_W19_a_long_interval_is_one_row_of_the_state() -> None:
    year_ms = 365 * 24 * 3_600_000
    query = Query(of_events(INTERVAL, Hopping(60_000, 60_000)))
    state, _ = query.step([Record(0, until=year_ms), Record(0, until=year_ms)])
    assert {part: rows_of(state, part) for part in state.parts} == {"intervals": 1}
    for at in range(1, 30):
        state, rows = query.step([Record(at * 60_000)])
        assert results(rows) == [((at - 1) * 60_000, at * 60_000, 2 if at == 1 else 3, "on time", 0)]
    assert rows_of(state, "intervals") == 1


def test_W19_after_a_jump_of_the_watermark_each_batch_emits_a_part_of_the_windows() -> None:
    query = Query(of_events(INTERVAL, TENS))
    query.step([Record(0, until=1_000)])
    with patch.object(shared_partials, "MAX_DUE_ROWS", 40):
        state, rows = query.step([Record(995), Record(1_200, "z")])
        assert (len(rows), state.due_ms) == (40, START_MS)
        # The records of a batch do not change the windows that wait.
        state, more = query.step([Record(700)])
        rows += more
        while state.due_ms is not None:
            state, more = query.step([])
            assert len(more) <= 40
            rows += more
    assert [row[:3] for row in results(rows)] == [
        *((at, at + 10, 1) for at in range(0, 990, 10)),
        (990, 1_000, 2),
    ]
    assert dead(rows) == [("late", 700)]


def test_W19_a_jump_over_more_windows_than_64_bits_can_count_emits_a_part_of_them() -> None:
    query = Query(of_events(INTERVAL, Hopping(1, 1)))
    count = 2_100
    query.step([Record(-MAX_EVENT_TIME_MS, f"key-{i}", until=START_MS) for i in range(count)], chunk=count)
    with patch.object(shared_partials, "MAX_DUE_ROWS", 2 * count):
        state, rows = query.step([Record(START_MS, "z")])
    assert {row["start"] + MAX_EVENT_TIME_MS for row in rows} == {0, 1}
    assert (len(rows), state.due_ms) == (2 * count, START_MS)


def test_W19_a_state_without_new_events_is_not_written_again() -> None:
    query = Query(of_events(INTERVAL, TENS))
    before, _ = query.step([Record(5, f"key-{i}", until=10_000) for i in range(20)])
    for at in range(10, 300, 10):
        state, rows = query.step([Record(at, "z")])
        assert len(rows) == 20 + (at > 10)
        assert state.parts["intervals"] == before.parts["intervals"]


# ---- edges -----------------------------------------------------------------------------------------------------------


def test_W19_an_edge_is_counted_until_its_end() -> None:
    query = Query(of_events(EDGE, TENS))
    state, rows = query.step([Record(5, value=3), Record(12)])
    assert (results(rows), state.values[OPEN_EDGES]) == ([(0, 10, 1, "on time", 0)], 2)
    # The end is valid at the watermark, and its values do not count.
    state, rows = query.step([Record(12, until=12), Record(5, value=9, until=21), Record(45)])
    assert results(rows) == [(10, 20, 2, "on time", 0), (20, 30, 1, "on time", 0)]
    assert [row["r2"] for row in rows] == [3, 3]
    assert (state.values[OPEN_EDGES], rows_of(state, "open"), rows_of(state, "intervals")) == (1, 1, 0)


def test_W19_the_worked_example() -> None:
    query, found = Query(of_events(EDGE, TENS)), []
    batches = [[Record(5), Record(12)], [Record(5, until=21)], [Record(45)], [Record(12, until=38)]]
    for records in [*batches, [Record(13, until=50)], [Record(50)]]:
        _, rows = query.step(records)
        found.append([row[:3] for row in results(rows)] or dead(rows))
    assert found == [
        [(0, 10, 1)],
        [],
        [(10, 20, 2), (20, 30, 2), (30, 40, 1)],
        [],
        [("no start", 50)],
        [(40, 50, 1)],
    ]


def test_W19_an_end_without_a_start_is_a_dead_letter() -> None:
    query = Query(of_events(EDGE, TENS))
    records = [Record(5), Record(5, "b", until=8), Record(6, until=8), Record(5, until=8), Record(5, until=9)]
    state, rows = query.step([*records, Record(5, "b")])
    # The last end is that of an event that has ended already. The last start is after the end with its time.
    assert dead(rows) == [("no start", 8), ("no start", 8), ("no start", 9)]
    assert state.values[OPEN_EDGES] == 1


@pytest.mark.parametrize("delay_ms", [0, 3, -3])
@pytest.mark.parametrize("scope", [Scope.PARTITION, Scope.GROUP])
def test_W19_an_end_before_the_first_watermark_is_a_dead_letter_without_a_watermark(
    scope: Scope, delay_ms: int
) -> None:
    query = Query(replace(of_events(EDGE, TENS, delay_ms=delay_ms), scope=scope))
    _, [first] = query.step([Record(5, until=8)])
    assert (first["why"], first["event_time"], first["start"], first["watermark"]) == ("no start", 8, 0, None)
    _, [later] = query.step([Record(START_MS), Record(5, until=8)])
    assert later["watermark"] == (START_MS - delay_ms if scope is Scope.PARTITION else None)


def test_W19_the_end_of_an_edge_does_not_advance_the_watermark() -> None:
    state, rows = Query(of_events(EDGE, TENS)).step([Record(5), Record(5, until=90), Record(80, until=90)])
    assert (dead(rows), results(rows), state.values["newest_ms"]) == ([("no start", 90)], [], 5)


@pytest.mark.parametrize(
    ("policy", "lateness_ms", "expected", "letters"),
    [
        # The next window is the first one without the event.
        (OnViolation.KEEP, 0, [(40, 50, 1, "on time", 0)], []),
        # The emitted window 20-30 counted the event. No other event is in it.
        (
            OnViolation.KEEP,
            25,
            [(20, 30, None, "retraction", 1), (30, 40, 1, "update", 1), (40, 50, 1, "on time", 0)],
            [],
        ),
        # The event is open until a valid end arrives.
        (OnViolation.DROP, 0, [(40, 50, 2, "on time", 0)], [("violation", 15)]),
        # It ends at the watermark, which is in the window 40-50.
        (OnViolation.ADJUST, 25, [(40, 50, 2, "on time", 0)], []),
    ],
)
def test_W9_an_end_before_the_watermark(
    policy: OnViolation, lateness_ms: int, expected: list[object], letters: list[object]
) -> None:
    query = Query(of_events(EDGE, TENS, lateness_ms, policy=policy))
    _, rows = query.step([Record(5), Record(35, value=None), Record(42, "z")])
    assert [row[:3] for row in results(rows)] == [(0, 10, 1), (10, 20, 1), (20, 30, 1), (30, 40, 2)]
    _, rows = query.step([Record(5, until=15), Record(50, "z")])
    found = [row for row in rows if row["k0"] == "a"]
    assert (results(found), dead(rows)) == (expected, letters)


def test_W9_an_end_at_the_watermark_is_no_violation() -> None:
    query = Query(of_events(EDGE, TENS, policy=OnViolation.DROP))
    state, rows = query.step([Record(5), Record(42), Record(5, until=42)])
    assert (dead(rows), state.values[OPEN_EDGES]) == ([], 1)


@pytest.mark.parametrize(
    ("policy", "counted", "letters"),
    [
        (OnViolation.KEEP, 1, []),
        (OnViolation.DROP, None, [("no start", 30), ("violation", 11)]),
        # It begins at the watermark. Its end names the start of the record.
        (OnViolation.ADJUST, 1, []),
    ],
)
def test_W9_a_start_before_the_watermark(policy: OnViolation, counted: int | None, letters: list[object]) -> None:
    query = Query(of_events(EDGE, TENS, policy=policy))
    query.step([Record(12, "z")])
    _, rows = query.step([Record(11), Record(11, until=30), Record(50, "z")])
    found = [row for row in rows if row["k0"] == "a" and row["pane"] != "dead letter"]
    expected = [] if counted is None else [(10, 20, 1, "on time", 0), (20, 30, 1, "on time", 0)]
    assert (results(found), dead(rows)) == (expected, letters)


def test_W19_an_edge_that_ends_in_closed_windows_before_any_window_counts_it_is_late() -> None:
    query = Query(of_events(EDGE, TENS))
    query.step([Record(42, "z")])
    state, rows = query.step([Record(5), Record(5, until=8)])
    assert (dead(rows), state.values[OPEN_EDGES]) == ([("late", 8)], 1)


def test_S10_an_edge_that_has_ended_does_not_open_again() -> None:
    query = Query(of_events(EDGE, TENS))
    query.step([Record(at) for at in range(40)])
    # The rows of these batches become one segment, and the first one remains.
    query.step([Record(39, until=45)])
    for at in (40, 41):
        state, _ = query.step([Record(at, "b")])
    assert len(state.parts["open"]) == 2
    _, rows = query.step([Record(60, "z")])
    assert [(row["start"], row["r0"]) for row in rows if row["k0"] == "a"] == [(40, 40), (50, 39)]


def test_S10_open_edges_are_one_row_each_however_many_have_ended() -> None:
    query = Query(of_events(EDGE, TENS))
    for i in range(0, 200, 2):
        state, _ = query.step([Record(i), Record(i + 1)])
        state, _ = query.step([Record(i, until=i + 2)])
        if i >= 2:
            state, _ = query.step([Record(i - 1, until=i + 2)])
    assert state.values[OPEN_EDGES] == 1
    assert rows_of(state, "open") <= 4
    assert rows_of(state, "intervals") <= 8
    assert max(len(segments) for segments in state.parts.values()) <= 8


# ---- time ------------------------------------------------------------------------------------------------------------


def test_W5_the_windows_of_an_open_edge_close_in_an_idle_partition() -> None:
    query = Query(of_events(EDGE, TENS, idle_timeout_ms=5))
    state, _ = query.step([Record(START_MS + 1)], START_MS + 1)
    assert state.due_ms == START_MS + 15
    kinds = []
    for _ in range(3):
        due_ms = state.due_ms
        assert due_ms is not None
        _, rows = query.step([], due_ms - 1, due_ms - 1)
        assert rows == []
        state, rows = query.step([], due_ms, due_ms)
        kinds += [(row["start"] - START_MS, row["pane"], row["r0"]) for row in rows]
    assert kinds == [(0, "idle", 1), (10, "idle", 1), (20, "idle", 1)]


def test_W2_the_watermark_of_the_group_closes_the_windows_of_intervals() -> None:
    p1 = TopicPartition("flights", 1)
    long = Record(START_MS + 1_000, until=START_MS + 25_000)
    logs = {P0: [long, Record(START_MS + 40_000)], p1: [Record(START_MS + 31_000)]}
    group = GroupModel(replace(of_events(INTERVAL, Hopping(10_000, 10_000)), scope=Scope.GROUP), logs)
    query = GroupQuery(group, 1)
    query.take(*logs)
    query.step({P0: 1, p1: 1})
    group.now_ms += 2_000
    assert not [row for _, row in group.rows]
    query.step({P0: 1})
    for _ in range(3):
        group.now_ms += 2_000
        query.step({})
    found = [((row["start"] - START_MS) // 1_000, row["r0"], tp.partition) for tp, row in group.rows]
    assert sorted(found) == [(0, 1, 0), (10, 1, 0), (20, 1, 0)]


# ---- definition ------------------------------------------------------------------------------------------------------


def test_S10_the_definition_names_the_shape_of_events() -> None:
    operators: list[WindowOperator] = [of_events(shape, TENS) for shape in EventShape]
    assert len({it.form for it in operators}) == 3
    assert ["interval events" in it.form for it in operators] == [False, True, False]
