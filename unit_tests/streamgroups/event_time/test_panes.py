"""W4-W6: when a window is emitted, and as which pane; and the settings and aggregates of windows, as users write them."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.errors import InvalidOption
from streamgroups.event_time.aggregates import Function, SqlAggregate, parse_aggregate
from streamgroups.event_time.panes import (
    Batch,
    KeptTime,
    PaneKind,
    decode_kept,
    encode_kept,
    is_closed,
    pass_time,
    session_numbers,
    to_poll,
    verdict,
)
from streamgroups.event_time.watermark import NOT_YET, At, Watermark, reached
from streamgroups.event_time.window_shapes import hopping, session, tumbling, windowing_of
from streamgroups.event_time.windows import EventTime, Hopping, ProcessingTime, Session, Window, Windowing
from unit_tests.window_rules import windows_of

WATERMARKS: st.SearchStrategy[Watermark] = st.one_of(st.just(NOT_YET), st.builds(At, st.integers(0, 60)))
WINDOWINGS = st.builds(
    lambda hop, more, lateness, timeout: Windowing(Hopping(hop + more, hop), EventTime(lateness, timeout)),
    st.integers(1, 10),
    st.integers(0, 10),
    st.integers(0, 15),
    st.one_of(st.none(), st.integers(1, 10)),
)
#: Batches: the times of records, the watermark, and how far the clock moves.
BATCHES = st.lists(st.tuples(st.lists(st.integers(0, 60), max_size=4), WATERMARKS, st.integers(0, 15)), max_size=15)


@given(WINDOWINGS, BATCHES)
def test_a_window_is_emitted_once_before_it_is_updated_or_closed(windowing: Windowing, batches: Any) -> None:
    kept, now_ms, reported, forgotten = KeptTime(), 0, set(), set()
    for times_ms, watermark, passed_ms in batches:
        now_ms += passed_ms
        own = {w for t in times_ms for w in windows_of(windowing.shape, t) if not is_closed(kept.windows, w)}
        assert not own & forgotten, "what is closed counts nothing"
        kept, passage = pass_time(windowing, kept, Batch(watermark, now_ms, bool(times_ms), tuple(own)))
        assert set(to_poll(passage)) >= {w for w in own if is_closed(passage.after, w)}
        for window in {f.window for f in passage.before.filled}:
            kind = verdict(passage, window, changed=window in own)
            if kind in (PaneKind.ON_TIME, PaneKind.IDLE):
                assert window not in reported
                assert window in to_poll(passage)
                assert kind is PaneKind.IDLE or reached(passage.by_watermark.watermark, window.end_ms)
                assert kind is PaneKind.ON_TIME or not times_ms, "a source that has records is not idle"
                reported.add(window)
            elif kind is PaneKind.UPDATE:
                assert window in reported or window in own
                reported.add(window)
            if is_closed(passage.after, window):
                assert window in reported, "nothing closes untold"
                forgotten.add(window)
        assert decode_kept(encode_kept(kept)) == kept


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 9)), max_size=20))
def test_sessions_are_one_if_one_can_walk_between_them(found: list[tuple[int, int, int]]) -> None:
    rows = sorted((key, start, start + length) for key, start, length in found)
    numbers = session_numbers([k for k, _, _ in rows], [s for _, s, _ in rows], [e for _, _, e in rows])
    touching = {(i, j) for i, a in enumerate(rows) for j, b in enumerate(rows) if _touch(a, b)}
    group = list(range(len(rows)))
    for _ in rows:
        for i, j in touching:
            group[i] = group[j] = min(group[i], group[j])
    assert [[a == b for b in numbers] for a in numbers] == [[a == b for b in group] for a in group]


def _touch(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    return a[0] == b[0] and a[1] <= b[2] and b[1] <= a[2]


def test_a_source_that_was_down_is_idle_if_it_has_no_new_records() -> None:
    windowing = Windowing(Hopping(3, 3), EventTime(idle_timeout_ms=5))
    kept, _ = pass_time(windowing, KeptTime(), Batch(At(1), 10, True, (Window(0, 3),)))
    kept, passage = pass_time(windowing, kept, Batch(At(1), 1_000, False))
    assert verdict(passage, Window(0, 3), changed=False) is None, "no change until 10 only"
    _, passage = pass_time(windowing, kept, Batch(At(1), 1_001, False))
    assert verdict(passage, Window(0, 3), changed=False) is PaneKind.IDLE


def test_state_of_a_newer_version_is_not_guessed_at() -> None:
    with pytest.raises(ValueError, match="has version 2, but this library supports version 1"):
        decode_kept({**encode_kept(KeptTime()), "v": 2})


# ---- settings and aggregates --------------------------------------------------------------------------------------


def test_windows_as_users_write_them() -> None:
    assert windowing_of(tumbling("5 minutes"), "eventTime", "2m", "30s") == Windowing(
        Hopping(300_000, 300_000), EventTime(120_000, 30_000)
    )
    assert windowing_of(hopping("10m", hop="5m"), "PROCESSINGTIME", None, None) == Windowing(
        Hopping(600_000, 300_000), ProcessingTime()
    )
    assert windowing_of(session("30s"), "eventTime", None, None) == Windowing(Session(30_000))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: tumbling("0s"), "'size' is 0ms"),
        (lambda: tumbling("five"), "'size' is 'five'"),
        (lambda: hopping("5m", hop="10m"), "'hop' is 600000ms, which is longer"),
        (lambda: session("-1s"), "'gap' is '-1s', which is negative"),
        (lambda: windowing_of("5m", "eventTime", None, None), "'window' is '5m'"),  # type: ignore[arg-type]
        (lambda: windowing_of(tumbling("5m"), "clock", None, None), "'boundary' is 'clock'"),
        (lambda: windowing_of(tumbling("5m"), "processingTime", "1m", None), "'allowed_lateness' cannot be combined"),
        (lambda: windowing_of(tumbling("5m"), "processingTime", None, "1m"), "'idle_timeout' cannot be combined"),
        (lambda: windowing_of(tumbling("5m"), "eventTime", "-1m", None), "'allowed_lateness' is '-1m'"),
        (lambda: windowing_of(tumbling("5m"), "eventTime", None, "0s"), "'idleTimeout' is 0ms"),
        (
            lambda: windowing_of(session("5m"), "processingTime", None, None),
            "'boundary' is 'processingTime' for session",
        ),
    ],
)
def test_the_error_names_an_invalid_setting(make: Any, named: str) -> None:
    with pytest.raises(InvalidOption, match=named):
        make()


def test_aggregates() -> None:
    assert parse_aggregate("x", " sum( a * (b + 1) ) ") == SqlAggregate(Function.SUM, "a * (b + 1)")
    assert parse_aggregate("x", "mean(`a)`)") == SqlAggregate(Function.AVG, "`a)`")
    assert parse_aggregate("x", "max(coalesce(a, ','))") == SqlAggregate(Function.MAX, "coalesce(a, ',')")


@pytest.mark.parametrize(
    "text",
    ["", "count", "sum()", "sum(*)", "sum(a) + sum(b)", "stddev(a)", "count(DISTINCT a)", "sum(a, b)", "max('a)"],
)
def test_aggregates_that_cannot_be_made_of_parts_are_rejected(text: str) -> None:
    with pytest.raises(InvalidOption, match="Aggregate 'worst' is "):
        parse_aggregate("worst", text)
