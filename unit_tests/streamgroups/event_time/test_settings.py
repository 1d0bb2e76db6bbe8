"""W8, W9, W11: the settings, which of them wins, and the errors that name invalid ones."""

from __future__ import annotations

import pytest

from streamgroups.errors import InvalidOption
from streamgroups.event_time.settings import TimeSettings, time_settings
from streamgroups.event_time.strategy import Generation, Period, Records
from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.windows import EventTime, ProcessingTime, Session, Windowing

MINUTE_MS = 60_000
EVERY_RECORD = Generation(Records(1))


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({"emitEvery": "10 records", "watermarkDelay": "5s"}, TimeSettings(Generation(Records(10), 5_000))),
        ({"emitEvery": "1 record"}, TimeSettings(EVERY_RECORD)),
        ({"emitEvery": "5s"}, TimeSettings(Generation(Period(5_000)))),
        ({"watermarkDelay": "10 minutes"}, TimeSettings(Generation(Records(1), 10 * MINUTE_MS))),
        ({"importFrom": "trades"}, TimeSettings(import_from="trades")),
        ({"importFrom": "Trades", "emitEvery": "5s"}, TimeSettings(Generation(Period(5_000)), "Trades")),
        (
            {"WATERMARKDELAY": "0s", "onviolation": "Adjust"},
            TimeSettings(EVERY_RECORD, on_violation=OnViolation.ADJUST),
        ),
        (
            {"watermarkDelay": "0s", "partitionIdleTimeout": "30s"},
            TimeSettings(EVERY_RECORD, partition_idle_timeout_ms=30_000),
        ),
    ],
)
def test_time(options: dict[str, str], settings: TimeSettings) -> None:
    assert time_settings(options, {}) == time_settings({}, options) == settings


@pytest.mark.parametrize(
    ("source", "query", "settings"),
    [
        (
            {"emitEvery": "10 records", "watermarkDelay": "5s"},
            {"watermarkDelay": "1s"},
            TimeSettings(Generation(Records(10), 1_000)),
        ),
        ({"watermarkDelay": "5s"}, {"importFrom": "trades"}, TimeSettings(Generation(Records(1), 5_000), "trades")),
        (
            {"watermarkDelay": "5s"},
            {"watermarkDelay": "none", "importFrom": "trades"},
            TimeSettings(import_from="trades"),
        ),
        ({"watermarkDelay": "0s", "onViolation": "drop"}, {"ONVIOLATION": "keep"}, TimeSettings(EVERY_RECORD)),
        (
            {"watermarkDelay": "0s", "partitionIdleTimeout": "1m"},
            {"partitionIdleTimeout": "none"},
            TimeSettings(EVERY_RECORD),
        ),
    ],
)
def test_W11_the_query_wins_one_by_one(source: dict[str, str], query: dict[str, str], settings: TimeSettings) -> None:
    assert time_settings(source, query) == settings


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "The watermark strategy is missing. Set 'emitEvery' or 'watermarkDelay'"),
        ({"partitionIdleTimeout": "1m", "onViolation": "drop"}, "The watermark strategy is missing"),
        ({"emitEvery": "none"}, "The watermark strategy is missing"),
        (
            {"emitEvery": "10"},
            "Option 'emitEvery' is '10', which can be a number of records or a duration. Write '10 records' or '10s'.",
        ),
        ({"emitEvery": "0 records"}, "Option 'emitEvery' is 0."),
        (
            {"emitEvery": f"{2**63} records"},
            "Option 'emitEvery' is '9223372036854775808 records', which is more than 9223372036854775807 records.",
        ),
        ({"emitEvery": "9" * 5_000 + " records"}, f"Option 'emitEvery' is '{'9' * 200}…', which is more than"),
        ({"emitEvery": "\u0663 records"}, "Option 'emitEvery' is '\u0663 records', which is not a duration."),
        ({"emitEvery": "0s"}, "Option 'emitEvery' is 0."),
        ({"emitEvery": "-5s"}, "Option 'emitEvery' is '-5s', which is negative."),
        ({"emitEvery": "often"}, "Option 'emitEvery' is 'often', which is not a duration. Write a number with a unit"),
        (
            {"watermarkDelay": "soon"},
            "Option 'watermarkDelay' is 'soon', which is not a duration. Write a number with a unit",
        ),
        ({"watermarkDelay": "10"}, "Option 'watermarkDelay' is '10', which is not a duration"),
        (
            {"watermarkDelay": "1s", "partitionIdleTimeout": "-1s"},
            "Option 'partitionIdleTimeout' is '-1s', which is negative.",
        ),
        ({"watermarkDelay": "1s", "partitionIdleTimeout": "0s"}, "Option 'partitionIdleTimeout' is 0ms."),
        (
            {"watermarkDelay": "1s", "onViolation": "ignore"},
            "Option 'onViolation' is 'ignore'. Allowed values: keep, drop, adjust.",
        ),
        (
            {"watermarkDelay": "1s", "idleTimeout": "1s"},
            "Option 'idleTimeout' is unknown. Did you mean 'partitionIdleTimeout'?",
        ),
        ({"watermarkDelay": "1s", "x": "1"}, "Option 'x' is unknown. Allowed options: emitEvery, watermarkDelay,"),
    ],
)
def test_the_error_names_an_invalid_time_setting(options: dict[str, str], named: str) -> None:
    for source, query in ((options, {}), ({}, options)):
        with pytest.raises(InvalidOption) as rejected:
            time_settings(source, query)
        assert str(rejected.value).startswith(named)


def test_settings_made_without_options_are_held_to_the_same() -> None:
    for wrong in (
        lambda: TimeSettings(),
        lambda: TimeSettings(Generation(), partition_idle_timeout_ms=0),
        lambda: Generation(Records(0)),
        lambda: Generation(Period(-1)),
        lambda: EventTime(allowed_lateness_ms=-1),
        lambda: EventTime(idle_timeout_ms=0),
        lambda: Session(0),
        lambda: Windowing(Session(1), ProcessingTime()),
    ):
        with pytest.raises(InvalidOption):
            wrong()
