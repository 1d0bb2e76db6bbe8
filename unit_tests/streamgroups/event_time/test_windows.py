"""W4-W7, W9, W13: what holds for windows and records, whatever comes in whatever order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.errors import InvalidOption
from streamgroups.event_time.violations import OnViolation, Why
from streamgroups.event_time.watermark import NOT_YET, At, NotYet, Watermark, latest, reached
from streamgroups.event_time.windows import (
    EventTime,
    Hopping,
    ProcessingTime,
    Session,
    Shape,
    Window,
    Windowing,
    tumbling,
)
from unit_tests.window_rules import (
    Adjusted,
    Change,
    Counted,
    DeadLetter,
    Drop,
    Idle,
    Interval,
    Keep,
    Lift,
    Missed,
    OpenWindow,
    Placement,
    WindowStates,
    advance,
    count,
    earlier,
    expire,
    is_final,
    judge,
    place,
    point,
    released,
    windows_of,
)

TIMES = st.integers(-50, 150)
HOPPING = st.builds(lambda hop, more: Hopping(hop + more, hop), st.integers(1, 12), st.integers(0, 20))
SHAPES: st.SearchStrategy[Shape] = st.one_of(HOPPING, st.builds(Session, st.integers(1, 15)))
EVENT_TIMES = st.builds(EventTime, st.integers(0, 20), st.one_of(st.none(), st.integers(1, 20)))
WATERMARKS: st.SearchStrategy[Watermark] = st.one_of(st.just(NOT_YET), st.builds(At, TIMES), st.builds(At, TIMES))
INTERVALS = st.builds(lambda start, length: Interval(start, start + length), TIMES, st.integers(1, 30))


#: A record, a watermark, or silence.
Event = Interval | At | Idle
EVENTS = st.lists(
    st.one_of(
        INTERVALS,
        INTERVALS,
        INTERVALS,
        st.builds(At, TIMES),
        st.builds(lambda since, waited: Idle(since, since + waited), TIMES, st.integers(0, 30)),
    ),
    max_size=30,
)


@dataclass(frozen=True)
class Step:
    """The windows before and after one event, and its result."""

    event: Event
    before: WindowStates
    after: WindowStates
    placed: Placement | None
    change: Change


def run(windowing: Windowing, events: Sequence[Event], policy: OnViolation = OnViolation.KEEP) -> list[Step]:
    state, steps = WindowStates(), []
    for event in events:
        before, placed, change = state, None, Change()
        if isinstance(event, Interval):
            state, placed = place(windowing, state, event, policy, now_ms=0)
        elif isinstance(event, At):
            state, change = advance(windowing, state, event)
        else:
            state, change = expire(windowing, state, event)
        steps.append(Step(event, before, state, placed, change))
    return steps


def counted_in(placed: Placement | None) -> Counted | None:
    return placed.counted if isinstance(placed, Adjusted) else placed if isinstance(placed, Counted) else None


# ---- which windows a record is in ---------------------------------------------------------------------------------


@given(HOPPING, TIMES)
def test_a_time_is_in_every_window_around_it_and_in_no_other(shape: Hopping, time_ms: int) -> None:
    starts = [s for s in range(-500, 500) if s % shape.hop_ms == 0 and s <= time_ms < s + shape.size_ms]
    assert windows_of(shape, time_ms) == tuple(Window(s, s + shape.size_ms) for s in starts)


@given(st.integers(1, 50), TIMES)
def test_tumbling_windows_tile(size_ms: int, time_ms: int) -> None:
    (window,) = windows_of(tumbling(size_ms), time_ms)
    assert windows_of(tumbling(size_ms), window.end_ms) == (Window(window.end_ms, window.end_ms + size_ms),)


@pytest.mark.parametrize("wrong", [(0, 1), (1, 0), (-5, 5), (5, 6)])
def test_windows_without_length_or_with_gaps_between_them_are_rejected(wrong: tuple[int, int]) -> None:
    with pytest.raises(InvalidOption, match=r"Option '(size|hop)' is -?\dms"):
        Hopping(*wrong)


# ---- every record ends in exactly one way -------------------------------------------------------------------------


@given(st.builds(Windowing, SHAPES, EVENT_TIMES), EVENTS, st.sampled_from(OnViolation))
def test_every_record_is_counted_adjusted_or_reported(
    windowing: Windowing, events: Sequence[Event], policy: OnViolation
) -> None:
    for step in run(windowing, events, policy):
        held = Counter({f.window: f.records for f in step.after.filled})
        held.subtract({f.window: f.records for f in step.before.filled})
        grown = sum(held.values())
        if isinstance(step.placed, DeadLetter):
            assert step.after == step.before
            assert step.placed.missed == windows_of(windowing.shape, step.placed.event_time_ms or 0)
            assert step.placed.watermark == step.before.watermark
        elif counted := counted_in(step.placed):
            assert counted.windows
            assert grown == len(counted.windows)
            assert all(w.start_ms <= counted.time_ms < w.end_ms for w in counted.windows)
            assert {f.window for f in step.after.filled} >= set(counted.windows)


@given(st.builds(Windowing, SHAPES, EVENT_TIMES), EVENTS, st.sampled_from(OnViolation))
def test_what_was_counted_is_in_windows_that_are_open_or_were_closed_once(
    windowing: Windowing, events: Sequence[Event], policy: OnViolation
) -> None:
    steps = run(windowing, events, policy)
    counted = [c for step in steps if (c := counted_in(step.placed))]
    closed = [f for step in steps for f in step.change.closed]
    still = list(steps[-1].after.filled) if steps else []
    assert sum(len(c.windows) for c in counted) == sum(f.records for f in [*closed, *still])
    if isinstance(windowing.shape, Hopping):
        assert len({f.window for f in closed}) == len(closed), "no window closes twice"
        assert not {f.window for f in closed} & {f.window for f in still}, "or opens again"


@given(st.builds(Windowing, HOPPING, EVENT_TIMES), EVENTS)
def test_a_window_that_closed_counts_nothing_more(windowing: Windowing, events: Sequence[Event]) -> None:
    closed: set[Window] = set()
    for step in run(windowing, events):
        if counted := counted_in(step.placed):
            assert not closed & set(counted.windows)
            assert set(counted.missed) | set(counted.windows) == set(windows_of(windowing.shape, counted.time_ms))
            assert all(reached(step.before.closed_until, w.end_ms) for w in counted.missed)
        closed |= {f.window for f in step.change.closed}


# ---- late ---------------------------------------------------------------------------------------------------------


@given(st.builds(Windowing, SHAPES, EVENT_TIMES), EVENTS)
def test_nothing_is_late_but_for_windows_that_are_closed(windowing: Windowing, events: Sequence[Event]) -> None:
    for step in run(windowing, events):
        if isinstance(step.placed, DeadLetter):
            assert step.placed.why is Why.LATE
            assert all(reached(step.before.closed_until, w.end_ms) for w in step.placed.missed)
            assert is_final(step.placed.event_time_ms or 0, step.before.watermark), "it is before the watermark"


@given(SHAPES, st.integers(0, 20), EVENTS)
def test_nothing_is_late_within_the_allowed_lateness(shape: Shape, lateness_ms: int, events: Sequence[Event]) -> None:
    for step in run(Windowing(shape, EventTime(lateness_ms)), events):
        if isinstance(step.placed, DeadLetter):
            assert is_final(step.placed.event_time_ms or 0, earlier(step.before.watermark, lateness_ms))


@given(INTERVALS, WATERMARKS, st.sampled_from(OnViolation))
def test_what_is_not_before_the_watermark_is_no_violation(
    record: Interval, watermark: Watermark, policy: OnViolation
) -> None:
    judged = judge(record, watermark, policy)
    if not is_final(record.start_ms, watermark) or policy is OnViolation.KEEP:
        assert judged == Keep()
    elif policy is OnViolation.ADJUST and not reached(watermark, record.end_ms):
        assert isinstance(watermark, At)
        assert judged == Lift(Interval(watermark.time_ms, record.end_ms))
        assert judge(judged.interval, watermark, policy) == Keep(), "what was lifted is no violation any more"
    else:
        assert judged == Drop()


@given(TIMES, WATERMARKS)
def test_a_point_is_never_adjusted(time_ms: int, watermark: Watermark) -> None:
    """It cannot reach over the watermark: it is kept or dropped."""
    assert judge(point(time_ms), watermark, OnViolation.ADJUST) == judge(point(time_ms), watermark, OnViolation.DROP)


@given(st.builds(Windowing, SHAPES, EVENT_TIMES), EVENTS)
def test_an_adjusted_record_is_never_late(windowing: Windowing, events: Sequence[Event]) -> None:
    for step in run(windowing, events, OnViolation.ADJUST):
        if isinstance(step.placed, DeadLetter):
            assert step.placed.why is Why.VIOLATION
        if isinstance(step.placed, Adjusted):
            assert At(step.placed.counted.time_ms) == step.before.watermark
            assert step.placed.event_time_ms < step.placed.counted.time_ms


# ---- time moves ---------------------------------------------------------------------------------------------------


@given(st.builds(Windowing, SHAPES, EVENT_TIMES), EVENTS)
def test_nothing_goes_back(windowing: Windowing, events: Sequence[Event]) -> None:
    for step in run(windowing, events):
        for before, after in (
            (step.before.watermark, step.after.watermark),
            (step.before.closed_until, step.after.closed_until),
            (released(windowing, step.before), released(windowing, step.after)),
        ):
            assert latest(before, after) == after
        assert latest(step.after.watermark, step.after.closed_until) == step.after.watermark


@given(st.builds(Windowing, SHAPES, EVENT_TIMES), EVENTS)
def test_what_is_released_is_final(windowing: Windowing, events: Sequence[Event]) -> None:
    """No window that begins before it is emitted again."""
    for step in run(windowing, events):
        if counted := counted_in(step.placed):
            assert not any(is_final(w.start_ms, released(windowing, step.before)) for w in counted.windows)
        assert not any(is_final(f.window.start_ms, released(windowing, step.after)) for f in step.after.filled)


@given(st.builds(Windowing, HOPPING, EVENT_TIMES), EVENTS)
def test_a_window_is_due_once_and_before_it_is_updated_or_closed(windowing: Windowing, events: Sequence[Event]) -> None:
    due: set[Window] = set()
    for step in run(windowing, events):
        now_due = {f.window for f in step.change.due}
        assert not due & now_due
        due |= now_due
        if counted := counted_in(step.placed):
            behind = {w for w in counted.windows if reached(step.before.watermark, w.end_ms)}
            assert set(counted.updated) == behind
            # A window whose first record arrives after its end is updated without an earlier pane.
            due |= behind
        assert {f.window for f in step.change.closed} <= due


@given(st.builds(Windowing, SHAPES, EVENT_TIMES), st.lists(TIMES, max_size=12), WATERMARKS, st.randoms())
def test_between_two_watermarks_the_order_of_records_does_not_matter(
    windowing: Windowing, times_ms: list[int], watermark: Watermark, order: Random
) -> None:
    shuffled = list(times_ms)
    order.shuffle(shuffled)
    states = []
    for times in (times_ms, shuffled):
        state, _ = advance(windowing, WindowStates(), watermark)
        for time_ms in times:
            state, _ = count(windowing, state, time_ms)
        states.append(state)
    assert states[0] == states[1]


@given(st.integers(1, 15), st.lists(TIMES, min_size=1))
def test_sessions_end_where_the_gap_is_longer(gap_ms: int, times_ms: list[int]) -> None:
    state = WindowStates()
    for time_ms in times_ms:
        state, _ = count(Windowing(Session(gap_ms)), state, time_ms)
    ordered = sorted(times_ms)
    assert sum(f.records for f in state.filled) == len(times_ms)
    assert [f.window.start_ms for f in state.filled] == [
        ordered[0],
        *(after for before, after in pairwise(ordered) if after - before > gap_ms),
    ]
    assert state.filled[-1].window.end_ms == ordered[-1] + gap_ms


# ---- an idle source -----------------------------------------------------------------------------------------------


@given(st.builds(Windowing, SHAPES, EVENT_TIMES), EVENTS, TIMES, st.integers(0, 40))
def test_silence_closes_what_is_over_and_nothing_else(
    windowing: Windowing, events: Sequence[Event], idle_since_ms: int, waited_ms: int
) -> None:
    assert isinstance(windowing.boundary, EventTime)
    steps, now_ms = run(windowing, events), idle_since_ms + waited_ms
    state = steps[-1].after if steps else WindowStates()
    after, change = expire(windowing, state, Idle(idle_since_ms, now_ms))
    timeout_ms = windowing.boundary.idle_timeout_ms
    if timeout_ms is None or waited_ms < timeout_ms:
        assert (after, change) == (state, Change())
        return
    over = [f for f in state.filled if f.window.end_ms + timeout_ms <= now_ms]
    assert list(change.closed) == over
    last: Watermark = At(max(f.window.end_ms for f in over)) if over else NotYet()
    assert after.watermark == latest(state.watermark, last)


@given(HOPPING, st.lists(TIMES, max_size=5), TIMES)
def test_the_clock_alone_closes_windows_by_processing_time(shape: Hopping, clock_ms: list[int], last_ms: int) -> None:
    windowing, state = Windowing(shape, ProcessingTime()), WindowStates()
    for now_ms in clock_ms:
        state, placed = place(windowing, state, None, OnViolation.DROP, now_ms)
        assert isinstance(placed, Counted)
        state, _ = advance(windowing, state, At(now_ms))
    assert expire(windowing, state, Idle(-1_000, last_ms)) == (state, Change())
    state, _ = advance(windowing, state, At(last_ms))
    assert all(f.window.end_ms > last_ms for f in state.filled)


# ---- sessions and hopping windows, in the single case -------------------------------------------------------------


def test_a_session_that_was_emitted_and_grows_is_updated() -> None:
    windowing = Windowing(Session(5), EventTime(allowed_lateness_ms=10))
    state, _ = count(windowing, WindowStates(), 0)
    state, change = advance(windowing, state, At(6))
    assert change.due == (OpenWindow(Window(0, 5), 1),)
    state, placed = count(windowing, state, 4)
    assert placed == Counted(4, (Window(0, 9),), updated=(Window(0, 9),), merged=(Window(0, 5),))
    state, change = advance(windowing, state, At(9))
    assert change.due == (OpenWindow(Window(0, 9), 2),)


def test_a_session_does_not_grow_backwards_into_what_is_closed() -> None:
    windowing = Windowing(Session(10))
    state, _ = count(windowing, WindowStates(), 95)
    state, _ = advance(windowing, state, At(100))
    assert count(windowing, state, 86)[1] == Missed((Window(86, 96),))
    state, _ = advance(windowing, WindowStates(), At(100))
    assert released(windowing, state) == At(91), "the earliest record that is not late"
    assert count(windowing, state, 91)[1] == Counted(91, (Window(91, 101),))
    assert count(windowing, state, 90)[1] == Missed((Window(90, 100),))


def test_an_open_session_holds_back_what_is_released_to_its_start() -> None:
    windowing, state = Windowing(Session(10)), WindowStates()
    for time_ms in (0, 9):
        state, _ = count(windowing, state, time_ms)
    state, _ = advance(windowing, state, At(18))
    assert released(windowing, state) == At(0), "though a new session would begin at 9 at the earliest"
    state, _ = advance(windowing, state, At(19))
    assert released(windowing, state) == At(10)


def test_a_record_that_missed_some_of_its_windows_is_counted_in_the_others_and_reported() -> None:
    windowing = Windowing(Hopping(10, 5))
    state, _ = advance(windowing, WindowStates(), At(12))
    assert count(windowing, state, 7)[1] == Counted(7, (Window(5, 15),), missed=(Window(0, 10),))
