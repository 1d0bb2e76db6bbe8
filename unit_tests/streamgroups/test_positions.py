"""Positions a user can name, and points in time."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta, timezone

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.errors import InvalidOption
from streamgroups.partitions import TopicPartition
from streamgroups.positions import AtOffset, Latest, Positions, parse_time_ms

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


def test_a_position_of_its_own_beats_the_one_for_all() -> None:
    positions = Positions(Latest(), {P0: AtOffset(5)})
    assert (positions.of(P0), positions.of(P1)) == (AtOffset(5), Latest())


def test_positions_by_partition_must_name_every_partition() -> None:
    with pytest.raises(InvalidOption, match="The position of flights-1 is missing"):
        Positions(None, {P0: AtOffset(5)}).of(P1)


@given(st.integers(0, 253_402_300_799_999), st.integers(-14 * 60, 14 * 60))
def test_every_millisecond_is_read_back_exactly(time_ms: int, offset_minutes: int) -> None:
    utc = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=time_ms)
    try:
        there = utc.astimezone(timezone(timedelta(minutes=offset_minutes)))
    except OverflowError:
        return
    assert parse_time_ms(there.isoformat(timespec="milliseconds"), option="startingTimestamp") == time_ms
    with suppress(InvalidOption):
        assert parse_time_ms(str(time_ms), option="startingTimestamp") == time_ms


@pytest.mark.parametrize(
    "number", ["0", "5000", "99999999", "20131301", "99999999999", "1357016400000", "1357016400000000", "201301012500"]
)
def test_a_number_is_milliseconds(number: str) -> None:
    assert parse_time_ms(number, option="startingTimestamp") == int(number)


@pytest.mark.parametrize(
    ("number", "why"),
    [
        ("20130101", "a date without separators. As milliseconds it is 1970-01-01T05:35:30.101Z"),
        ("201301011200", "a date without separators. As milliseconds it is 1976"),
        ("20130101120000", "a date without separators. As milliseconds it is 2607"),
        ("20130101120000000", "a date without separators. As milliseconds it is 20130101120000000ms"),
        (" 1732334879 ", "a time in seconds. As milliseconds it is 1970-01-21"),
        ("2013010112", "a time in seconds. As milliseconds it is 1970-01-24"),
    ],
)
def test_a_number_that_seems_to_be_another_form_is_rejected(number: str, why: str) -> None:
    with pytest.raises(
        InvalidOption, match=f"'startingTimestamp' is '{number.strip()}', which seems to be {why}"
    ) as error:
        parse_time_ms(number, option="startingTimestamp")
    assert "Write it like 2026-01-31T12:00:00Z" in error.value.remedy


@pytest.mark.parametrize(
    "text", ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00", " 2026-01-31T12:00:00z ", "2026-01-31T13:00:00+01:00"]
)
def test_utc_can_be_written_in_several_ways(text: str) -> None:
    assert parse_time_ms(text, option="startingTimestamp") == 1_769_860_800_000


@pytest.mark.parametrize(
    ("text", "after_midnight_ms"),
    [
        ("2026-01-31", 0),
        ("2026-01-31T05", 5 * 3_600_000),
        ("2026-01-31 05:00", 5 * 3_600_000),
        ("2026-01-31t05:00:00.1z", 5 * 3_600_000 + 100),
        ("2026-01-31T05:00:00,1234567+02", 3 * 3_600_000 + 123),
        ("2026-01-31T05:00:00.12-0530", 10 * 3_600_000 + 1_800_120),
        ("2026-01-31T05:00:00+05:00:01", -1_000),
        # date +"%F %T %z"
        ("2026-01-31 05:00:00 +0200", 3 * 3_600_000),
    ],
)
def test_all_releases_of_python_accept_the_same_times(text: str, after_midnight_ms: int) -> None:
    assert parse_time_ms(text, option="startingTimestamp") == 1_769_817_600_000 + after_midnight_ms


# The parser of each release of Python accepts other ones of these: it reads the offset of a date as a time of day.
@pytest.mark.parametrize(
    "text",
    [
        *("2026-01-31+02:00", "2026-01-31+0200", "2026-01-31+02", "2026-01-31-05:00", "2026-01-31Z"),
        *("2026-01-31U05:00", "2026-01-31T", "2026-01-31T0500", "20260131T05", "2026-W05-6", "2026-01-31T24:00"),
        *("2026-01-31T05:00  +02:00", "2026-01-31T05:00:60Z", "2026-02-31", "2026-01-31T05:00:00.", "\u0662026-01-31"),
        "2026-01-31T05:00+24:00",
    ],
)
def test_a_time_of_another_form_is_rejected(text: str) -> None:
    with pytest.raises(InvalidOption, match="which is not a time"):
        parse_time_ms(text, option="startingTimestamp")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a time"),
        ("Z", "is not a time"),
        ("-5", "is not a time"),
        ("12:00", "is not a time"),
        ("1969-12-31T23:59:59Z", "is before 1970"),
        ("0001-01-01T00:00:00+23:00", "is before 1970"),
    ],
)
def test_the_error_names_an_invalid_time(text: str, why: str) -> None:
    with pytest.raises(InvalidOption, match=why) as rejection:
        parse_time_ms(text, option="startingTimestamp")
    assert "'startingTimestamp'" in rejection.value.what
