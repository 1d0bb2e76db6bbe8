"""W4-W6: the settings and aggregates of windows, as users write them."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroups.errors import InvalidOption
from streamgroups.event_time.aggregates import Function, SqlAggregate, parse_aggregate
from streamgroups.event_time.window_shapes import hopping, session, tumbling, windowing_of
from streamgroups.event_time.windows import EventTime, Hopping, ProcessingTime, Session, Windowing


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
        (lambda: windowing_of(tumbling("5m"), "eventTime", None, "0s"), "'idle_timeout' is 0ms"),
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
