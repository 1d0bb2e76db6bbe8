"""The checker of messages that are delivered at least once: it accepts redeliveries of the last request of a session only."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from integration_tests.history.checker import check
from integration_tests.history.events import Acknowledged, Delivered, Event, Position, Workload
from streamgroups.partitions import OffsetRange, TopicPartition

P = TopicPartition("t", 0)
RECORDED = ("acknowledged", "position", "delivered")


def _got(time_ms: int, session: str, request: int, *ranges: tuple[int, int]) -> Delivered:
    return Delivered(time_ms, session[0], "g", session, request, tuple(OffsetRange(P, a, b) for a, b in ranges))


def _found(deliveries: Sequence[Event], position: int = 6, seen_ms: int = 90) -> dict[str, int]:
    workload = Workload(0, "injector", "g", "t", False, False, None, 9_000, RECORDED)
    acknowledged = Acknowledged(1, "producer", P, tuple(range(6)), (0,) * 6)
    events = [workload, acknowledged, *deliveries, Position(seen_ms, "observer", "g", {P: position})]
    report = check(sorted(events, key=lambda it: it.time_ms))
    assert {"I1", "I2", "I3", "I5"} <= {name for name, it in report.decisions.items() if it.verdict != "undecided"}
    return dict(report.counts)


def test_each_message_once_has_no_anomaly() -> None:
    assert _found([_got(2, "a1", 0, (0, 3)), _got(3, "a1", 1, (3, 6)), _got(4, "a1", 2)]) == {}


def test_the_last_request_of_a_session_is_delivered_again() -> None:
    assert (
        _found([_got(2, "a1", 0, (0, 3)), _got(3, "a1", 1, (3, 6)), _got(4, "b1", 0, (3, 6)), _got(5, "b1", 1)]) == {}
    )


def test_a_frozen_instance_records_its_messages_after_the_next_owner() -> None:
    assert _found([_got(4, "b1", 0, (0, 6)), _got(5, "b1", 1), _got(2, "a1", 0, (0, 6))]) == {}


@pytest.mark.parametrize(
    ("deliveries", "name", "n"),
    [
        ([_got(2, "a1", 0, (0, 3)), _got(3, "a1", 1, (3, 6)), _got(4, "b1", 0, (0, 3))], "duplicate", 3),
        ([_got(2, "a1", 0, (0, 3)), _got(3, "a1", 1, (2, 6))], "duplicate", 1),
        ([_got(2, "a1", 0, (0, 2)), _got(3, "a1", 1, (3, 6))], "lost write", 1),
        ([_got(2, "a1", 0, (3, 6)), _got(3, "a1", 1, (0, 3))], "non-monotonic write", 3),
        ([_got(2, "a1", 0, (0, 7))], "aborted read", 1),
        ([_got(2, "a1", 0, (3, 6)), _got(3, "a1", 1), _got(4, "b1", 0, (0, 3))], "non-monotonic write", 3),
        ([_got(2, "a1", 0, (0, 3)), _got(3, "a1", 1), _got(4, "b1", 0, (0, 6))], "duplicate", 3),
    ],
)
def test_an_anomaly_has_its_name(deliveries: list[Event], name: str, n: int) -> None:
    assert _found(deliveries)[name] == n


def test_a_position_before_its_messages_is_ahead() -> None:
    late = [_got(2, "a1", 0, (0, 3)), _got(95, "a1", 1, (3, 6))]
    assert _found(late) == {"position ahead of output": 3}
    early = Position(10, "observer", "g", {P: 3})
    assert _found([late[0], early, _got(80, "a1", 1, (3, 6))]) == {}
