"""Durations are read back as what they were written as."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.cli.words import duration, parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.positions import parse_time_ms
from streamgroups.times import utc


@given(st.integers(0, 10**7), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_both_ways_of_writing_mean_the_same(days: int, hours: int, minutes: int, seconds: int) -> None:
    ms = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000
    assert parse_duration_ms(f"P{days}DT{hours}H{minutes}M{seconds}S", option="o") == ms
    assert parse_duration_ms(f"{days}d{hours}h{minutes}m{seconds}s", option="o") == ms


@given(st.integers(0, 10**12))
def test_a_duration_as_shown_is_not_longer_than_it_is(ms: int) -> None:
    shown = duration(ms)
    assert shown is not None
    if ms >= 10_000:
        assert 0 <= ms - parse_duration_ms(shown.replace(" ", ""), option="o") < 86_400_000


@given(st.integers(0, 253_402_300_799_999))
def test_a_time_as_shown_is_read_back(ms: int) -> None:
    shown = utc(ms)
    assert shown is not None
    assert parse_time_ms(shown, option="o") == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "h", "1", "-", "P1H", "1h 30", "PT1.5H", "yesterday"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(f"--by-duration is '{text}'")):
        parse_duration_ms(text, option="--by-duration")


def test_signs_and_fractions() -> None:
    assert [parse_duration_ms(t, option="o") for t in ("-PT1S", "PT0.25S", "+P1D")] == [-1_000, 250, 86_400_000]
    assert utc(10**18) == f"{10**18}ms"
