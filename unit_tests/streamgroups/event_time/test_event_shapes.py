"""W19: the errors about shapes of events, as in docs/windows.rst."""

from __future__ import annotations

import pytest

from streamgroups.errors import InvalidOption
from streamgroups.event_time.event_shapes import EventShape, check_events, event_shape_of
from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.window_shapes import Scope, policy_of, tumbling
from streamgroups.event_time.windows import ProcessingTime, Session, Windowing

PLAIN = Windowing(tumbling("5m"))
BY_CLOCK = Windowing(tumbling("5m"), ProcessingTime())


@pytest.mark.parametrize(
    ("shape", "windowing", "until", "expected"),
    [
        ("point", PLAIN, None, EventShape.POINT),
        ("point", BY_CLOCK, None, EventShape.POINT),
        ("point", Windowing(Session(5)), "ended", EventShape.POINT),
        ("Interval", PLAIN, "ended", EventShape.INTERVAL),
        ("edge", PLAIN, "ended", EventShape.EDGE),
    ],
)
def test_W19_the_shapes_of_events(shape: str, windowing: Windowing, until: str | None, expected: EventShape) -> None:
    assert event_shape_of(shape, windowing, until) is expected


@pytest.mark.parametrize("shape", ["interval", "edge"])
@pytest.mark.parametrize(
    ("windowing", "until", "named"),
    [
        (PLAIN, None, "option 'until' is missing. Set 'until' to the column"),
        (Windowing(Session(5)), "ended", "session windows. Use sg.shapes.tumbling"),
        (BY_CLOCK, "ended", "boundary=processingTime. Omit one"),
    ],
)
def test_W19_windows_that_count_points_only(shape: str, windowing: Windowing, until: str | None, named: str) -> None:
    with pytest.raises(InvalidOption, match=named) as e:
        event_shape_of(shape, windowing, until)
    assert f"Option 'event_shape' is '{shape}'" in str(e.value)


def test_W19_an_unknown_shape_is_rejected() -> None:
    with pytest.raises(InvalidOption, match=r"is 'edges'\. Allowed values: point, interval, edge"):
        event_shape_of("edges", PLAIN, "ended")


@pytest.mark.parametrize("shape", EventShape)
@pytest.mark.parametrize("scope", Scope)
def test_W19_windows_of_the_query_count_points_only(shape: EventShape, scope: Scope) -> None:
    if scope is not Scope.QUERY or shape is EventShape.POINT:
        check_events(shape, scope)
        return
    with pytest.raises(InvalidOption, match="time='partition' or time='group'"):
        check_events(shape, scope)


def test_W9_intervals_and_edges_have_an_end_with_each_policy() -> None:
    for policy in OnViolation:
        assert policy_of(policy.value, PLAIN, "ended", is_point=False) is policy
    with pytest.raises(InvalidOption, match="event_shape='interval' or 'edge'"):
        policy_of("keep", PLAIN, "ended")


def test_W17_a_flush_emits_the_windows_of_points_only() -> None:
    check_events(EventShape.POINT, Scope.PARTITION, is_bounded=True, flush=True)
    for event_shape in (EventShape.INTERVAL, EventShape.EDGE):
        with pytest.raises(InvalidOption, match="Omit 'flush'"):
            check_events(event_shape, Scope.PARTITION, flush=True)
        with pytest.raises(InvalidOption, match="cannot be combined with bounded data"):
            check_events(event_shape, Scope.PARTITION, is_bounded=True)
