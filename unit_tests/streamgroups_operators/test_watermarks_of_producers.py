"""W15: watermarks of a producer apply to the records after them, close windows without records, and are in the state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups.event_time.watermark import At
from streamgroups.event_time.window_shapes import Scope
from streamgroups.event_time.windows import Hopping, ProcessingTime, Session, Shape, Windowing
from streamgroups.state.origins import New
from streamgroups.state.state_time import GroupWindows, StateTime
from unit_tests.streamgroups.event_time.tables import MINUTE_MS, clock, ms
from unit_tests.streamgroups.event_time.tables import rows as table
from unit_tests.streamgroups_operators.window_model import (
    P0,
    START_MS,
    Query,
    Record,
    batch,
    brief,
    by_event_time,
    dead,
    operator,
)

TENS = Hopping(10, 10)


def marker(time: int) -> Record:
    return Record(None, producer_ms=time, is_marker=True)


@pytest.mark.parametrize("shape", [TENS, Session(4)])
def test_W15_a_batch_of_markers_closes_windows(shape: Shape) -> None:
    query = Query(by_event_time(shape, delay_ms=None))
    _, rows = query.step([Record(1), Record(3), Record(25)])
    assert rows == [], "records advance no watermark"
    state, rows = query.step([marker(9)])
    assert [row["pane"] for row in rows] == (["on time"] if shape == Session(4) else [])
    state, rows = query.step([marker(20), marker(15)])
    assert [(row["start"], row["r0"]) for row in rows] == ([] if shape == Session(4) else [(0, 2)])
    assert state.values["producer_ms"] == 20


def test_W15_a_watermark_applies_to_the_records_after_its_own() -> None:
    records = [Record(1), Record(2, producer_ms=10), Record(3), marker(20), Record(12), Record(21)]
    for chunk in range(1, 7):
        _, rows = Query(by_event_time(TENS, delay_ms=None)).step(records, chunk=chunk)
        assert brief([row for row in rows if row["pane"] != "dead letter"]) == [(0, 10, "a", 2, "on time", 0)]
        assert dead(rows) == [("late", 12), ("late", 3)]
        assert [row["watermark"] for row in rows if row.get("event_time") == 3] == [10]


def test_W15_the_watermark_is_the_later_one_of_records_and_producer() -> None:
    query = Query(by_event_time(TENS, delay_ms=5))
    assert query.step([Record(14), marker(8)])[1] == [], "14 - 5, and 8"
    assert [row["start"] for row in query.step([Record(1), Record(15)])[1]] == [0]
    assert query.step([marker(12)])[0].values["producer_ms"] == 12
    assert dead(query.step([Record(9)])[1]) == [("late", 9)]


def test_W15_allowed_lateness_counts_from_the_watermark_of_the_producer() -> None:
    query = Query(by_event_time(TENS, lateness_ms=5, delay_ms=None))
    query.step([Record(1), marker(14)])
    assert [(row["pane"], row["r0"]) for row in query.step([Record(2)])[1]] == [("update", 2)]
    assert query.step([marker(15)])[0].parts == {}
    assert dead(query.step([Record(3)])[1]) == [("late", 3)]


def test_W15_a_reset_reads_the_same_watermarks_again() -> None:
    records = [Record(1), marker(10), Record(2), Record(12), marker(20), Record(13)]
    query = Query(by_event_time(TENS, delay_ms=None))
    _, whole = query.run(records, 0, 6, New())
    for target in range(1, 7):
        query = Query(by_event_time(TENS, delay_ms=None))
        query.run(records, 0, 1, New())
        state, read_from = query.found(target)
        assert read_from == 1
        manifest, rows = query.run(records, target, 6, state, read_from, chunk=2)
        expected = [row for row in whole if _is_emitted_from(row["pane"], row["start"], target)]
        assert brief(rows) == brief(expected)
        last = manifest.state_of(P0)
        assert last is not None
        assert last.values["producer_ms"] == 20


def _is_emitted_from(pane: str, start: int, target: int) -> bool:
    """Whether a row belongs to the records from an offset on: its window is closed, or its record read, after that."""
    offset = {("on time", 0): 1, ("on time", 10): 4, ("dead letter", 0): 2, ("dead letter", 10): 5}[pane, start]
    return offset >= target


def test_W15_with_the_time_of_the_group_a_state_reports_the_watermark_of_the_producer() -> None:
    query = Query(replace(by_event_time(TENS, delay_ms=None), scope=Scope.GROUP))
    assert query.step([Record(1)])[0].time == StateTime(None, 1, False, GroupWindows(None, 10))
    state, rows = query.step([marker(30), Record(2)])
    assert (state.time, rows) == (StateTime(30, 2, False, GroupWindows(None, 10)), []), "the group closes windows"


def test_W15_the_clock_has_no_producer() -> None:
    query = Query(operator(Windowing(TENS, ProcessingTime())))
    _, rows = query.step([Record(1, producer_ms=START_MS + 1_000), marker(START_MS + 2_000), Record(2)])
    assert rows == []


def test_W15_a_state_without_watermarks_continues_with_them() -> None:
    query = Query(by_event_time(TENS, delay_ms=3))
    first, _ = query.step([Record(1)])
    assert "producer_ms" not in first.values
    assert [row["start"] for row in query.step([marker(10)])[1]] == [0]


def test_W15_a_part_of_watermarks_is_before_an_offset() -> None:
    whole = ProducerWatermarks(P0, (3, 5, 9), (10, 20, 30))
    for next_offset, before in ((3, 0), (4, 1), (9, 2), (10, 3)):
        early, later = whole.split(next_offset)
        assert len(early.offsets if early else ()) == before
        assert [*(early.times_ms if early else ()), *(later.times_ms if later else ())] == [10, 20, 30]


def test_a_batch_contains_no_markers() -> None:
    assert batch([Record(1), marker(5), Record(2)], 7)["offset"].to_pylist() == [7, 9]


W15 = """
event    producer   watermark   closes
12:03    -          12:02       -
12:01    -          12:02       -
marker   12:05      12:05       12:05
12:04    -          12:05       -
12:07    12:06      12:06       -
marker   12:10      12:10       12:10
"""


def test_W15_the_worked_example() -> None:
    query, late = Query(by_event_time(Hopping(5 * MINUTE_MS, 5 * MINUTE_MS), delay_ms=MINUTE_MS)), []
    for event, producer, watermark, closes in table(W15):
        producer_ms = None if producer == "-" else ms(producer)
        is_marker = event == "marker"
        state, rows = query.step([Record(None if is_marker else ms(event), "a", 1, None, producer_ms, is_marker)])
        by_records, by_producer = state.values["newest_ms"], state.values.get("producer_ms")
        reached_ms = max(int(by_records or 0) - MINUTE_MS, int(by_producer or 0))
        assert clock(At(reached_ms)) == watermark
        assert [clock(At(row["end"])) for row in rows if row["pane"] == "on time"] == (
            [] if closes == "-" else [closes]
        )
        late += [clock(At(row["event_time"])) for row in rows if row["pane"] == "dead letter"]
    assert late == ["12:04"]
