"""G1, G8, G16: what a user calls the place where a cursor begins."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from streamgroups.cursors.starting_position import CursorType, position_of
from streamgroups.errors import InvalidOption
from streamgroups.positions import AfterOffset, AtOffset, AtTime, Latest, Position, TrimHorizon

FIVE = datetime(2013, 1, 1, 5, tzinfo=timezone(timedelta(hours=-5)))


@pytest.mark.parametrize(
    ("type_", "more", "position"),
    [
        (CursorType.TRIM_HORIZON, {}, TrimHorizon()),
        ("latest", {}, Latest()),
        ("AT_TIME", {"time": 1_357_016_400_000}, AtTime(1_357_016_400_000)),
        ("AT_TIME", {"time": "2013-01-01T05:00:00Z"}, AtTime(1_357_016_400_000)),
        ("AT_TIME", {"time": FIVE}, AtTime(1_357_034_400_000)),
        ("AT_TIME", {"time": FIVE.replace(tzinfo=None)}, AtTime(1_357_016_400_000)),
        ("AT_OFFSET", {"offset": 0}, AtOffset(0)),
        ("AFTER_OFFSET", {"offset": 41}, AfterOffset(41)),
        (AtOffset(3), {}, AtOffset(3)),
        (Latest(), {}, Latest()),
    ],
)
def test_G16_a_partition_cursor_has_five_types(type_: Any, more: dict[str, Any], position: Position) -> None:
    assert position_of(type_, **more, of_group=False) == position


@pytest.mark.parametrize("type_", ["TRIM_HORIZON", "LATEST"])
def test_G1_a_group_cursor_has_three_types(type_: str) -> None:
    assert isinstance(position_of(type_, of_group=True), TrimHorizon | Latest)
    assert position_of("AT_TIME", time=5, of_group=True) == AtTime(5)


@pytest.mark.parametrize(
    ("type_", "more", "message"),
    [
        ("EARLIEST", {}, "unknown. Allowed values: TRIM_HORIZON"),
        (7, {}, "unknown"),
        ("AT_TIME", {}, "AT_TIME requires 'time'"),
        ("AT_TIME", {"time": 5, "offset": 5}, "does not accept 'offset'"),
        ("LATEST", {"time": 5}, "LATEST does not accept 'time'"),
        (Latest(), {"time": 5}, "Latest does not accept 'time'"),
        ("AT_OFFSET", {"offset": 5}, "requires a partition"),
        (AfterOffset(5), {}, "requires a partition"),
        ("AT_TIME", {"time": -1}, "not a time"),
        ("AT_TIME", {"time": True}, "not a time"),
        ("AT_TIME", {"time": "noon"}, "not a time"),
    ],
)
def test_G1_an_invalid_start_is_rejected(type_: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        position_of(type_, **more, of_group=True)


@pytest.mark.parametrize(
    ("type_", "more"),
    [
        ("AT_OFFSET", {"offset": "3"}),
        ("AT_OFFSET", {"offset": 3.0}),
        ("AT_OFFSET", {"offset": True}),
        ("AT_OFFSET", {"offset": -1}),
        ("AT_OFFSET", {"offset": 2**63}),
        ("AFTER_OFFSET", {"offset": "3"}),
        ("AFTER_OFFSET", {"offset": -2}),
        (AtOffset("3"), {}),  # type: ignore[arg-type]
        (AfterOffset(2**63), {}),
        (AtTime("noon"), {}),  # type: ignore[arg-type]
        (AtTime(-1), {}),
    ],
    ids=str,
)
def test_G16_an_offset_or_time_that_is_no_number_of_kafka_is_rejected(type_: Any, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="which is not a number from"):
        position_of(type_, **more, of_group=False)


@pytest.mark.parametrize("time", [2**63, "9" * 19, "9" * 5_000])
def test_G1_a_time_beyond_kafkas_is_rejected(time: str | int) -> None:
    with pytest.raises(InvalidOption, match="more than 9223372036854775807"):
        position_of("AT_TIME", time=time, of_group=True)
