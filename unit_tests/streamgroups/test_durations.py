"""Durations are read in every form that the documentation names, and back as they are shown."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.durations import FORMS, duration, exact, parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.event_time.watermark import MAX_EVENT_TIME_MS
from streamgroups.json_values import time_ms
from streamgroups.positions import parse_time_ms
from streamgroups.times import utc

DAYS, HOURS, BELOW_60, BELOW_1000 = st.integers(0, 99_998), st.integers(0, 23), st.integers(0, 59), st.integers(0, 999)


@given(DAYS, HOURS, BELOW_60, BELOW_60, BELOW_1000, st.sampled_from(["", "-", "+"]))
def test_all_forms_mean_the_same(days: int, hours: int, minutes: int, seconds: int, ms: int, sign: str) -> None:
    meant = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=ms) // timedelta(
        milliseconds=1
    )
    for form in (
        f"P{days}DT{hours}H{minutes}M{seconds}.{ms:03}S",
        f"p{days}dt{hours}h{minutes}m{seconds}.{ms:03}s",
        f"{days}d{hours}h{minutes}m{seconds}s{ms}ms",
        f"{days}d {hours}h {minutes}min {seconds}.{ms:03}s",
        f" {days} days  {hours} hours\t{minutes} minutes {seconds} seconds {ms} milliseconds ",
        f"{days} Day {hours} Hour {minutes} Minute {seconds} Second {ms} Millisecond",
        f"{meant}ms",
    ):
        assert parse_duration_ms(sign + form.strip(), option="delay", signed=True) == (-meant if sign == "-" else meant)


@given(st.text("0123456789.+- PTdhms", max_size=12))
def test_a_text_is_read_or_the_error_names_it(text: str) -> None:
    rejection = None
    try:
        ms = parse_duration_ms(text, option="delay", signed=True)
        assert abs(ms) <= timedelta(days=100_000) // timedelta(milliseconds=1)
    except InvalidOption as e:
        rejection = e
    if rejection is not None:
        assert rejection.what.startswith(f"Option 'delay' is '{text}', which is ")
        assert rejection.remedy == FORMS


@given(st.integers(0, 10**12))
def test_a_duration_as_shown_is_not_longer_than_it_is(ms: int) -> None:
    shown = duration(ms)
    assert shown is not None
    if ms >= 10_000:
        assert 0 <= ms - parse_duration_ms(shown, option="o") < 86_400_000


@given(st.integers(-(10**12), 10**12))
def test_a_duration_is_read_back(ms: int) -> None:
    assert parse_duration_ms(exact(ms), option="o", signed=True) == ms


@given(st.integers(0, 253_402_300_799_999))
def test_a_time_as_shown_is_read_back(ms: int) -> None:
    shown = utc(ms)
    assert shown is not None
    assert parse_time_ms(shown, option="o") == parse_time_ms(shown.removesuffix("Z"), option="o") == ms


NOT_DURATIONS = [
    "",
    "P",
    "PT",
    "P1DT",
    "h",
    "1",
    "0",
    "-",
    "P1H",
    "1h 30",
    "PT1.5H",
    "1.5h",
    "0.0001s",
    "yesterday",
    "--1s",
]
NOT_DURATIONS += [
    "1 fortnight",
    "1s 1s",
    "30m1h",
    "1 0s",
    "\N{ARABIC-INDIC DIGIT ONE}s",
    "9" * 5_000 + "s",
    "1" + " " * 5_000 + "x",
]


@pytest.mark.parametrize("text", NOT_DURATIONS)
def test_what_is_not_a_duration(text: str) -> None:
    with pytest.raises(
        InvalidOption, match=f"^Option '--lease-timeout' is '{re.escape(text)}', which is not a duration"
    ):
        parse_duration_ms(text, option="--lease-timeout", signed=True)


def test_negative_and_endless_durations_are_rejected() -> None:
    with pytest.raises(InvalidOption, match=r"^Option 'idleTimeout' is '-PT1S', which is negative\."):
        parse_duration_ms("-PT1S", option="idleTimeout")
    with pytest.raises(
        InvalidOption, match=r"^Option 'idleTimeout' is '100001 days', which is longer than 100,000 days\."
    ):
        parse_duration_ms("100001 days", option="idleTimeout")
    assert utc(10**18) == f"{10**18}ms"


def test_an_event_time_and_twelve_of_the_longest_durations_are_a_time_that_can_be_stored() -> None:
    longest_ms = parse_duration_ms("100000 days", option="delay")
    for sign in (-1, 1):
        assert time_ms(sign * (MAX_EVENT_TIME_MS + 12 * longest_ms))
