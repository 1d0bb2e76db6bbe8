"""W8, W12, W13: the worked examples of watermark strategies, and of times through windows.

``integration_tests/test_the_worked_tables.py`` has the tables of windows.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streamgroups.event_time.observations import Observation
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import SourceTime, add_partitions, observe
from streamgroups.event_time.strategy import Generation, Period, Records
from streamgroups.event_time.watermark import At, Watermark
from streamgroups.event_time.windows import EventTime, Hopping, Session, Window, Windowing, tumbling
from unit_tests.streamgroups.event_time.tables import MINUTE_MS, P0, clock, ms, rows, shown
from unit_tests.window_rules import Counted, WindowStates, advance, count, is_final, open_windows, released

FIVE_MINUTES = tumbling(5 * MINUTE_MS)
TWO_LATE = Windowing(FIVE_MINUTES, EventTime(allowed_lateness_ms=2 * MINUTE_MS))


def window(text: str) -> Window:
    start, end = text.split("-")
    return Window(ms(start), ms(end))


def read(times_ms: Sequence[int], settings: TimeSettings) -> list[SourceTime]:
    """A source after each record of its only partition."""
    states = [add_partitions(SourceTime(), {P0: None})]
    for offset, time_ms in enumerate(times_ms, 1):
        states.append(observe(states[-1], {P0: Observation(offset, offset, 1, time_ms)}, settings, 0))
    return states[1:]


def in_s(watermark: Watermark) -> float | None:
    return watermark.time_ms / 1_000 if isinstance(watermark, At) else None


# ---- W8, W12: how time is generated -------------------------------------------------------------------------------


def test_W8_every_10_records_less_5_seconds() -> None:
    states = read([second * 1_000 for second in range(1, 26)], TimeSettings(Generation(Records(10), delay_ms=5_000)))
    assert [in_s(it.watermark) for it in states] == [None] * 9 + [5] * 10 + [15] * 6


def test_W8_every_5_seconds_of_event_time() -> None:
    times_ms = [event_s * 1_000 for event_s in (3, 7, 8, 4, 12, 13, 30)]
    states = read(times_ms, TimeSettings(Generation(Period(5_000))))
    assert [in_s(it.watermark) for it in states] == [None, None, 8, 8, 8, 13, 30]


@pytest.mark.parametrize(("delay_ms", "final"), [(0, False), (-1, True)])
def test_W12_a_negative_delay_makes_each_record_final_as_soon_as_it_is_read(delay_ms: int, final: bool) -> None:
    [source] = read([ms("12:00")], TimeSettings(Generation(delay_ms=delay_ms)))
    assert is_final(ms("12:00"), source.watermark) is final


# ---- W13: times through windows -----------------------------------------------------------------------------------

W13 = """
windows               watermark   released
5 minutes             12:05       12:05
5 minutes             12:07       12:05
5 minutes             12:09       12:05
5 minutes, 2 late     12:06       12:00
5 minutes, 2 late     12:07       12:05
10 every 5 minutes    12:07       12:00
10 every 5 minutes    12:10       12:05
"""
SHAPES = {
    "5 minutes": Windowing(FIVE_MINUTES),
    "5 minutes, 2 late": TWO_LATE,
    "10 every 5 minutes": Windowing(Hopping(10 * MINUTE_MS, 5 * MINUTE_MS)),
}


def test_W13_a_time_inside_a_window_is_moved_to_its_start() -> None:
    for shape, watermark, expected in rows(W13):
        state, _ = advance(SHAPES[shape], WindowStates(), At(ms(watermark)))
        assert clock(released(SHAPES[shape], state)) == expected, (shape, watermark)


# ---- sessions -----------------------------------------------------------------------------------------------------

SESSIONS = """
event   open                       merged
12:00   12:00-12:05                -
12:12   12:00-12:05, 12:12-12:17   -
12:03   12:00-12:08, 12:12-12:17   12:00-12:05
12:08   12:00-12:17                12:00-12:08, 12:12-12:17
12:09   12:00-12:17                -
"""


def test_a_session_lasts_as_long_as_records_come() -> None:
    sessions, state = Windowing(Session(5 * MINUTE_MS)), WindowStates()
    for event, open_then, merged in rows(SESSIONS):
        state, placed = count(sessions, state, ms(event))
        assert isinstance(placed, Counted)
        assert shown(open_windows(sessions, state)) == open_then
        assert not placed.updated, "no pane of it was emitted yet"
        assert shown(placed.merged) == merged.replace("-", "", 1 if merged == "-" else 0)
    _, change = advance(sessions, state, At(ms("12:17")))
    assert [(f.window, f.records) for f in change.closed] == [(window("12:00-12:17"), 5)]
