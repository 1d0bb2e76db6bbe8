"""W6, W9, W17: the errors about invalid windows, as in docs/windows.rst."""

from __future__ import annotations

import pytest

from streamgroups.errors import InvalidOption
from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.window_shapes import Scope, policy_of, scope_of, tumbling, windowing_of
from streamgroups.event_time.windows import EventTime, ProcessingTime, Session, Windowing

PLAIN = Windowing(tumbling("5m"))
IDLE = Windowing(tumbling("5m"), EventTime(0, 60_000))
BY_CLOCK = Windowing(tumbling("5m"), ProcessingTime())


@pytest.mark.parametrize(
    ("policy", "windowing", "until", "expected"),
    [
        ("keep", PLAIN, None, OnViolation.KEEP),
        ("keep", IDLE, None, OnViolation.KEEP),
        ("keep", BY_CLOCK, None, OnViolation.KEEP),
        ("drop", PLAIN, None, OnViolation.DROP),
        ("Adjust", PLAIN, "valid_until", OnViolation.ADJUST),
    ],
)
def test_W9_what_may_be(policy: str, windowing: Windowing, until: str | None, expected: OnViolation) -> None:
    assert policy_of(policy, windowing, until) is expected


@pytest.mark.parametrize(
    ("policy", "windowing", "until", "named"),
    [
        ("drop", BY_CLOCK, None, "boundary=processingTime"),
        ("adjust", BY_CLOCK, "valid_until", "boundary=processingTime"),
        ("drop", IDLE, None, "cannot be combined with an idle timeout"),
        ("adjust", IDLE, "valid_until", "cannot be combined with an idle timeout"),
        ("adjust", PLAIN, None, "Set 'until' to the column"),
        ("drop", PLAIN, "valid_until", "Option 'until'"),
        ("keep", PLAIN, "valid_until", "Option 'until'"),
        ("discard", PLAIN, None, "Option 'on_violation' is 'discard'"),
    ],
)
def test_W9_what_cannot_be(policy: str, windowing: Windowing, until: str | None, named: str) -> None:
    with pytest.raises(InvalidOption, match=named):
        policy_of(policy, windowing, until)


def test_W6_boundaries() -> None:
    assert windowing_of(tumbling("5m"), "EVENTTIME", "10s", "1m").boundary == EventTime(10_000, 60_000)
    assert windowing_of(tumbling("5m"), "processingtime", None, None).boundary == ProcessingTime()


@pytest.mark.parametrize(
    ("shape", "boundary", "lateness", "idle", "named"),
    [
        (tumbling("5m"), "ingestTime", None, None, "Option 'boundary' is 'ingestTime'. Allowed values"),
        (tumbling("5m"), "processingTime", "1s", None, "Option 'allowed_lateness'"),
        (tumbling("5m"), "processingTime", None, "1s", "Option 'idle_timeout'"),
        ("5 minutes", "eventTime", None, None, "Option 'window' is '5 minutes'"),
        (Session(5_000), "processingTime", None, None, "session"),
    ],
)
def test_W6_what_cannot_be(shape: object, boundary: str, lateness: str | None, idle: str | None, named: str) -> None:
    with pytest.raises(InvalidOption, match=named):
        windowing_of(shape, boundary, lateness, idle)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("time", "is_shared", "is_bounded", "flush", "expected"),
    [
        (None, False, True, False, Scope.PARTITION),
        (None, False, True, True, Scope.PARTITION),
        ("group", False, True, False, Scope.GROUP),
        (None, True, False, True, Scope.PARTITION),
        ("group", True, False, True, Scope.GROUP),
        ("partition", False, False, True, Scope.PARTITION),
    ],
)
def test_W17_bounded_data_have_windows_of_partitions(
    time: str | None, is_shared: bool, is_bounded: bool, flush: bool, expected: Scope
) -> None:
    assert scope_of(time, EventTime(), is_shared=is_shared, is_bounded=is_bounded, flush=flush) is expected


def test_W17_what_bounded_runs_and_data_do_not_support_is_rejected() -> None:
    for time in (None, "query"):
        with pytest.raises(InvalidOption, match=r"Option 'flush' .*time='query'.*Set time='partition'"):
            scope_of(time, EventTime(), is_shared=False, flush=True)
    with pytest.raises(InvalidOption, match=r"Option 'time' .* bounded data\. Set time='partition'"):
        scope_of("query", EventTime(), is_shared=False, is_bounded=True)
    with pytest.raises(InvalidOption, match=r"Option 'boundary' .* bounded data: .* Use boundary='eventTime'"):
        scope_of(None, ProcessingTime(), is_shared=False, is_bounded=True)
