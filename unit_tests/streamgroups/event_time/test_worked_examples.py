"""W1-W8: the worked examples, row by row. ``W1`` and so on are the numbers of the behaviours they show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import stop
from streamgroups.event_time.strategy import Generation, Period, Records
from streamgroups.event_time.violations import OnViolation, Why
from streamgroups.event_time.watermark import At, AtEnd
from streamgroups.event_time.window_states import WindowStates, advance
from streamgroups.event_time.windows import EventTime, Hopping, ProcessingTime, Session, Window, Windowing, tumbling
from unit_tests.streamgroups.event_time.tables import AS_READ, MINUTE_MS, P0, P1, Query, clock, ms, rows, shown
from unit_tests.window_rules import (
    Adjusted,
    Counted,
    DeadLetter,
    Interval,
    count,
    is_final,
    open_windows,
    place,
    point,
    released,
)

FIVE_MINUTES = tumbling(5 * MINUTE_MS)


def window(text: str) -> Window:
    start, end = text.split("-")
    return Window(ms(start), ms(end))


# ---- W1: the watermark moves only when a record is later than all before it ---------------------------------------

W1 = """
event   arrival   by the clock   by the watermark   watermark
12:00   12:00     12:00-12:05    12:00-12:05        12:00
12:01   12:03     12:00-12:05    12:00-12:05        12:01
12:02   12:05     12:05-12:10    12:00-12:05        12:02
12:01   12:06     12:05-12:10    12:00-12:05        12:02
12:06   12:07     12:05-12:10    12:05-12:10        12:06
"""


def test_W1_a_late_arrival_is_counted_in_the_window_of_its_event() -> None:
    by_time = Query(Windowing(FIVE_MINUTES))
    by_clock = Windowing(FIVE_MINUTES, ProcessingTime())
    for event, arrival, by_the_clock, by_the_watermark, watermark in rows(W1):
        (placed,) = by_time.step(ms(arrival), {P0: [ms(event)]})
        assert isinstance(placed, Counted)
        assert (shown(placed.windows), by_time.watermark) == (by_the_watermark, watermark)
        clocked = place(by_clock, WindowStates(), point(ms(event)), OnViolation.KEEP, ms(arrival))[1]
        assert isinstance(clocked, Counted)
        assert shown(clocked.windows) == by_the_clock


def test_W1_the_first_window_stays_open_until_1207() -> None:
    query = Query(Windowing(FIVE_MINUTES))
    for event, arrival, *_ in rows(W1):
        assert not query.closed
        query.step(ms(arrival), {P0: [ms(event)]})
    assert query.closed == [window("12:00-12:05")]
    assert query.open == "12:05-12:10"


# ---- W2: the minimum over the partitions --------------------------------------------------------------------------

W2 = """
fast    slow    watermark
12:00   -       none yet
12:30   12:01   12:01
12:57   12:02   12:02
13:05   -       12:02
13:06   13:01   13:01
13:06   13:10   13:06
"""


def test_W2_the_slow_partition_decides() -> None:
    query = Query(Windowing(FIVE_MINUTES), partitions=(P0, P1))
    for fast, slow, watermark in rows(W2):
        placed = query.step(0, {P0: [ms(fast)], P1: [] if slow == "-" else [ms(slow)]})
        assert all(isinstance(p, Counted) for p in placed), "nothing is late because the other partition ran ahead"
        assert query.watermark == watermark


# ---- W3: partitions without anything to read ----------------------------------------------------------------------

W3 = """
clock   fast    slow    lag      watermark   why
12:00   12:00   12:00   0        12:00       both are read up
12:01   12:20   -       0        12:00       the second has been idle for 1 minute
12:02   12:30   -       0        12:30       for 2 minutes: it holds nothing back
12:03   12:40   -       7        12:30       it wakes up: 7 records to read, and it holds time again
12:09   12:50   -       7        12:30       slow is not idle, however long it takes
12:10   12:50   12:02   6        12:30       and it stays behind
12:11   12:50   12:45   0        12:45       it has caught up
12:12   12:50   -       0        12:45       idle for 1 minute
12:13   12:50   -       0        12:50       for 2: idle again
"""


def test_W3_idle_is_judged_by_what_there_is_to_read() -> None:
    settings = TimeSettings(Generation(), partition_idle_timeout_ms=2 * MINUTE_MS)
    query = Query(Windowing(FIVE_MINUTES), settings, partitions=(P0, P1))
    for now, fast, slow, available, watermark, why in rows(W3):
        placed = query.step(
            ms(now), {P0: [ms(fast)], P1: [] if slow == "-" else [ms(slow)]}, unread={P1: int(available)}
        )
        assert query.watermark == watermark, why
        late = [p for p in placed if isinstance(p, DeadLetter)]
        assert late == (
            [DeadLetter(Why.LATE, ms("12:02"), At(ms("12:30")), (window("12:00-12:05"),))] if slow == "12:02" else []
        )


def test_W3_when_all_are_idle_none_holds_another_back() -> None:
    settings = TimeSettings(Generation(), partition_idle_timeout_ms=2 * MINUTE_MS)
    query = Query(Windowing(FIVE_MINUTES), settings, partitions=(P0, P1))
    query.step(ms("12:00"), {P0: [ms("12:30")], P1: [ms("12:01")]})
    assert query.watermark == "12:01"
    query.step(ms("12:02"))
    assert query.watermark == "12:30"


# ---- W4: allowed lateness belongs to a window ---------------------------------------------------------------------

W4 = """
event   watermark   less 2 minutes   open
12:00   12:00       11:58            12:00-12:05
12:02   12:03       12:01            12:00-12:05
12:01   12:04       12:02            12:00-12:05
12:05   12:05       12:03            12:00-12:05, 12:05-12:10
12:04   12:06       12:04            12:00-12:05, 12:05-12:10
12:07   12:07       12:05            12:05-12:10
"""
TWO_LATE = Windowing(FIVE_MINUTES, EventTime(allowed_lateness_ms=2 * MINUTE_MS))


def test_W4_a_window_closes_late_and_later_ones_open_on_time() -> None:
    state = WindowStates()
    for event, watermark, less_2_minutes, open_then in rows(W4):
        state, placed = count(TWO_LATE, state, ms(event))
        assert isinstance(placed, Counted)
        state, change = advance(TWO_LATE, state, At(ms(watermark)))
        assert clock(state.closed_until) == less_2_minutes
        assert shown(open_windows(TWO_LATE, state)) == open_then
        closes = watermark == "12:07"
        assert [(f.window, f.records) for f in change.closed] == ([(window("12:00-12:05"), 4)] if closes else [])


def test_W4_a_window_is_due_at_its_end_and_updated_until_it_closes() -> None:
    state, _ = count(TWO_LATE, WindowStates(), ms("12:00"))
    state, change = advance(TWO_LATE, state, At(ms("12:05")))
    assert [(f.window, f.records) for f in change.due] == [(window("12:00-12:05"), 1)]
    assert not change.closed
    state, placed = count(TWO_LATE, state, ms("12:04"))
    assert placed == Counted(ms("12:04"), (window("12:00-12:05"),), refined=(window("12:00-12:05"),))
    state, change = advance(TWO_LATE, state, At(ms("12:07")))
    assert not change.due
    assert [(f.window, f.records) for f in change.closed] == [(window("12:00-12:05"), 2)]


# ---- W5: windows of an idle source --------------------------------------------------------------------------------

W5 = """
clock   event   watermark   open
12:00   12:00   12:00       12:00-12:03
12:01   idle    12:00       12:00-12:03
12:02   idle    12:00       12:00-12:03
12:03   idle    12:00       12:00-12:03
12:04   12:02   12:02       12:00-12:03
12:05   12:05   12:05       12:03-12:06
12:06   idle    12:05       12:03-12:06
12:07   idle    12:06       12:06-12:09
12:08   idle    12:06       12:06-12:09
12:09   12:09   12:09       12:09-12:12
"""
IDLE_A_MINUTE = EventTime(idle_timeout_ms=MINUTE_MS)


def test_W5_an_idle_source_closes_its_windows() -> None:
    query = Query(Windowing(tumbling(3 * MINUTE_MS), IDLE_A_MINUTE))
    for now, event, watermark, open_then in rows(W5):
        placed = query.step(ms(now), {} if event == "idle" else {P0: [ms(event)]})
        assert all(isinstance(p, Counted) for p in placed)
        assert (query.watermark, query.open) == (watermark, open_then), now
    assert query.closed == [window("12:00-12:03"), window("12:03-12:06"), *query.closed[2:]]


def test_W5_the_wait_begins_with_the_silence_if_the_end_has_long_passed() -> None:
    query = Query(Windowing(tumbling(3 * MINUTE_MS), IDLE_A_MINUTE))
    query.step(ms("12:30"), {P0: [ms("12:00")]})
    query.step(ms("12:31") - 1)
    assert not query.closed
    query.step(ms("12:31"))
    assert query.closed == [window("12:00-12:03")]


def test_W5_what_comes_after_is_late() -> None:
    query = Query(Windowing(tumbling(3 * MINUTE_MS), IDLE_A_MINUTE))
    query.step(ms("12:05"), {P0: [ms("12:05")]})
    query.step(ms("12:07"))
    (placed,) = query.step(ms("12:08"), {P0: [ms("12:05")]})
    assert placed == DeadLetter(Why.LATE, ms("12:05"), At(ms("12:06")), (window("12:03-12:06"),))


@pytest.mark.parametrize("unread", [1, 0])
def test_W5_a_source_with_available_records_is_not_idle(unread: int) -> None:
    query = Query(Windowing(tumbling(3 * MINUTE_MS), IDLE_A_MINUTE), partitions=(P0, P1))
    query.step(ms("12:05"), {P0: [ms("12:05")]}, unread={P1: unread})
    query.step(ms("12:30"), unread={P1: unread})
    assert query.closed == ([] if unread else [window("12:03-12:06")])


def test_W5_an_idle_timeout_closes_a_window_with_allowed_lateness_and_spares_the_next() -> None:
    timing = EventTime(allowed_lateness_ms=10 * MINUTE_MS, idle_timeout_ms=MINUTE_MS)
    query = Query(Windowing(tumbling(3 * MINUTE_MS), timing))
    query.step(ms("12:02"), {P0: [ms("12:02"), ms("12:03"), ms("12:08")]})
    query.step(ms("12:04"))
    assert query.closed == [window("12:00-12:03")]
    query.step(ms("12:06"))
    assert query.closed == [window("12:00-12:03")], "its end passed less than a minute ago"
    query.step(ms("12:07"))
    assert query.closed == [window("12:00-12:03"), window("12:03-12:06")]
    assert query.watermark == "12:08", "and time did not go back for it"


def test_W5_a_window_without_records_waits_for_nothing() -> None:
    query = Query(Windowing(tumbling(3 * MINUTE_MS), IDLE_A_MINUTE))
    query.step(ms("12:05"), {P0: [ms("12:05")]})
    query.step(ms("12:07"))
    query.step(ms("14:00"))
    assert query.watermark == "12:06"
    (placed,) = query.step(ms("14:01"), {P0: [ms("12:08")]})
    assert isinstance(placed, Counted)


# ---- W6: by which time --------------------------------------------------------------------------------------------

W6 = """
event   arrival   boundary         window
09:33   09:37     eventTime        09:30-09:35
09:33   09:37     processingTime   09:35-09:40
"""


def test_W6_a_record_is_in_the_window_of_its_event_or_of_its_arrival() -> None:
    for event, arrival, boundary, expected in rows(W6):
        windowing = Windowing(FIVE_MINUTES, EventTime() if boundary == "eventTime" else ProcessingTime())
        _, placed = place(windowing, WindowStates(), point(ms(event)), OnViolation.KEEP, ms(arrival))
        assert isinstance(placed, Counted)
        assert shown(placed.windows) == expected


def test_W6_by_the_clock_nothing_is_late_not_even_if_it_is_set_back() -> None:
    windowing = Windowing(FIVE_MINUTES, ProcessingTime())
    state, change = advance(windowing, count(windowing, WindowStates(), ms("09:37"))[0], At(ms("09:40")))
    assert [f.window for f in change.closed] == [window("09:35-09:40")]
    _, placed = place(windowing, state, None, OnViolation.DROP, ms("09:38"))
    assert isinstance(placed, Counted)
    assert shown(placed.windows) == "09:40-09:45"


# ---- W7, W9: records before the time already asserted -------------------------------------------------------------

W9 = """
policy   start   end     becomes
keep     12:04   12:05   late
keep     12:07   12:08   12:05-12:10
keep     12:08   12:09   12:05-12:10
drop     12:07   12:20   violation
drop     12:08   12:20   12:05-12:10
adjust   12:04   12:08   violation
adjust   12:04   12:09   12:05-12:10
adjust   12:07   12:20   12:05-12:10
adjust   12:08   12:09   12:05-12:10
adjust   12:03   12:04   violation
"""


def test_W9_at_a_watermark_of_1208() -> None:
    five = Windowing(FIVE_MINUTES)
    state, _ = advance(five, WindowStates(), At(ms("12:08")))
    for policy, start, end, becomes in rows(W9):
        record = Interval(ms(start), ms(end))
        after, placed = place(five, state, record, OnViolation(policy), now_ms=0)
        if isinstance(placed, DeadLetter):
            assert placed.why.value == becomes, (policy, start, end)
            assert (placed.event_time_ms, placed.watermark) == (ms(start), At(ms("12:08")))
            assert shown(placed.missed) == ("12:05-12:10" if start == "12:07" else "12:00-12:05")
            assert after == state
            continue
        lifted = policy == "adjust" and start < "12:08"
        assert isinstance(placed, Adjusted if lifted else Counted)
        counted = placed.counted if isinstance(placed, Adjusted) else placed
        assert counted.time_ms == ms("12:08" if lifted else start)
        assert shown(counted.windows) == becomes


def test_W7_a_late_record_is_emitted_with_its_time_the_watermark_and_its_window() -> None:
    five = Windowing(FIVE_MINUTES)
    state, _ = advance(five, WindowStates(), At(ms("12:08")))
    _, placed = place(five, state, point(ms("12:04")), OnViolation.KEEP, now_ms=0)
    assert placed == DeadLetter(Why.LATE, ms("12:04"), At(ms("12:08")), (window("12:00-12:05"),))
    _, unreadable = place(five, state, None, OnViolation.KEEP, now_ms=0)
    assert unreadable == DeadLetter(Why.UNREADABLE, None, At(ms("12:08")))


# ---- W8, W12: how time is generated -------------------------------------------------------------------------------


def test_W8_every_10_records_less_5_seconds() -> None:
    settings = TimeSettings(Generation(Records(10), delay_ms=5_000))
    query = Query(Windowing(FIVE_MINUTES), settings)
    asserted = []
    for second in range(1, 26):
        query.step(0, {P0: [second * 1_000]})
        asserted.append(query.source.watermark)
    assert [w.time_ms if isinstance(w, At) else None for w in asserted] == [None] * 9 + [5_000] * 10 + [15_000] * 6


def test_W8_every_5_seconds_of_event_time() -> None:
    query = Query(Windowing(FIVE_MINUTES), TimeSettings(Generation(Period(5_000))))
    asserted = []
    for event_s in (3, 7, 8, 4, 12, 13, 30):
        query.step(0, {P0: [event_s * 1_000]})
        asserted.append(query.source.watermark)
    assert [w.time_ms // 1_000 if isinstance(w, At) else None for w in asserted] == [None, None, 8, 8, 8, 13, 30]


def test_W8_a_stop_flushes() -> None:
    query = Query(Windowing(FIVE_MINUTES))
    query.step(0, {P0: [ms("12:00"), ms("12:06")]})
    assert stop(query.source, AS_READ) == At(ms("12:06"))
    flushing = replace(AS_READ, generation=Generation(flush=True))
    last = stop(query.source, flushing)
    assert last == AtEnd()
    closed, change = advance(query.windowing, query.windows, last)
    assert [f.window for f in change.closed] == [window("12:05-12:10")]
    assert not closed.filled
    assert query.source.watermark == At(ms("12:06")), "a stream that is restarted continues at its position"


@pytest.mark.parametrize(("delay_ms", "final"), [(0, False), (-1, True)])
def test_W12_a_negative_delay_makes_each_record_final_as_soon_as_it_is_read(delay_ms: int, final: bool) -> None:
    query = Query(Windowing(FIVE_MINUTES), TimeSettings(Generation(delay_ms=delay_ms)))
    query.step(0, {P0: [ms("12:00")]})
    assert is_final(ms("12:00"), query.source.watermark) is final


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
        assert not placed.refined, "no pane of it was emitted yet"
        assert shown(placed.merged) == merged.replace("-", "", 1 if merged == "-" else 0)
    _, change = advance(sessions, state, At(ms("12:17")))
    assert [(f.window, f.records) for f in change.closed] == [(window("12:00-12:17"), 5)]
