"""The settings of event time: parses options, merges them, and validates all of them before any effect.

Called when a source is created and when a query uses it. Source: SEMANTICS W3, W8-W11; StreamInsight, where settings
of the adapter are defaults and settings of the query's binding override them.

The table of settings is in ``docs/event-time.rst``, "Event time in a query".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.event_time.strategy import Every, Generation, Period, Records
from streamgroups.event_time.violations import OnViolation
from streamgroups.json_values import MAX_INT64
from streamgroups.option_values import canonical, choice, shown_value, whole_number

#: Options of a stream, and of a query that reads it.
STREAM_TIME_OPTIONS = ("emitEvery", "watermarkDelay", "importFrom", "onViolation", "partitionIdleTimeout")
#: All options that determine event time. The last one also applies to batch reads, which have marker records too.
TIME_OPTIONS = (*STREAM_TIME_OPTIONS, "watermarkHeader")
_RECORDS = re.compile(r"([0-9]+)\s*records?")
_NONE = "none"


@dataclass(frozen=True, slots=True)
class TimeSettings:
    """The event-time settings of a source.

    Args:
        generation: its watermark strategy; ``None`` if its records advance no watermark.
        import_from: the group whose watermark it follows; ``None`` if it follows none.
        on_violation: how records before the watermark are handled.
        partition_idle_timeout_ms: how long a partition without available records holds back the watermark. ``None``:
            unlimited.
        watermark_header: the header with watermarks of the producer; ``None`` if producers emit no watermarks.

    Raises:
        InvalidOption: if the source would have no watermark, or the timeout is not above 0.
    """

    generation: Generation | None = None
    import_from: str | None = None
    on_violation: OnViolation = OnViolation.KEEP
    partition_idle_timeout_ms: int | None = None
    watermark_header: str | None = None

    def __post_init__(self) -> None:
        if not self.has_own_watermark and self.import_from is None:
            raise InvalidOption(
                "The watermark strategy is missing.",
                remedy="Set 'emitEvery' or 'watermarkDelay' to generate the watermark from records, 'watermarkHeader' on the source if "
                "producers emit it, or 'importFrom' to import it from another group.",
            )
        _check_idle_timeout(self.partition_idle_timeout_ms)

    @property
    def has_own_watermark(self) -> bool:
        """Whether its records or its producers advance its watermark."""
        return self.generation is not None or self.watermark_header is not None


def _check_idle_timeout(timeout_ms: int | None) -> None:
    if timeout_ms is not None and timeout_ms <= 0:
        raise InvalidOption(
            f"Option 'partitionIdleTimeout' is {timeout_ms}ms.",
            remedy="It must be longer than 0. Omit it if no partition is ever idle.",
        )


def time_settings(source: Mapping[str, str], query: Mapping[str, str]) -> TimeSettings:
    """Returns the event-time settings from the options of the source and of the query that reads it (SEMANTICS W11).

    Args:
        source: defaults, set on the source; names in any case.
        query: options set on the query. Each overrides its default; the value ``none`` removes the default.

    Raises:
        InvalidOption: for the first invalid option, with its name, its value and the allowed values.

    >>> time_settings({"emitEvery": "10 records", "watermarkDelay": "5s"}, {"watermarkDelay": "0s"}).generation
    Generation(every=Records(count=10), delay_ms=0)
    >>> time_settings({"emitEvery": "10 records"}, {"emitEvery": "none"})
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: The watermark strategy is missing. Set 'emitEvery' or 'watermarkDelay' to generate the watermark from records, \
'watermarkHeader' on the source if producers emit it, or 'importFrom' to import it from another group.
    """
    merged = {canonical(name, TIME_OPTIONS): value.strip() for name, value in (*source.items(), *query.items())}
    given = {name: value for name, value in merged.items() if value.lower() != _NONE}
    return TimeSettings(
        generation_of(given),
        imported_group(given),
        on_violation(given),
        _duration_ms(given, "partitionIdleTimeout"),
        given.get("watermarkHeader"),
    )


def generation_of(options: Mapping[str, str]) -> Generation | None:
    """Returns the watermark strategy; ``None`` if no option sets one.

    Args:
        options: options under their documented names.

    Raises:
        InvalidOption: if ``emitEvery`` or ``watermarkDelay`` is invalid.

    >>> generation_of({"watermarkDelay": "5s", "emitEvery": "none"}).delay_ms, generation_of({"emitEvery": "none"})
    (5000, None)
    """
    given = {name: it.strip() for name in ("emitEvery", "watermarkDelay") if (it := options.get(name)) is not None}
    given = {name: value for name, value in given.items() if value.lower() != _NONE}
    if not given:
        return None
    every = _every(given["emitEvery"]) if "emitEvery" in given else Records(1)
    return Generation(every, watermark_delay(given) or 0)


def watermark_delay(options: Mapping[str, str]) -> int | None:
    """Returns the delay of the watermark in milliseconds; ``None`` if the option is not set.

    Args:
        options: options under their documented names.

    Raises:
        InvalidOption: if the option is not a duration.

    >>> watermark_delay({"watermarkDelay": "10m"}), watermark_delay({"watermarkDelay": "none"})
    (600000, None)
    """
    value = options.get("watermarkDelay", _NONE).strip()
    return None if value.lower() == _NONE else parse_duration_ms(value, option="watermarkDelay", signed=True)


def imported_group(options: Mapping[str, str]) -> str | None:
    """Returns the group whose watermark a stream imports; ``None`` if it imports no watermark.

    Args:
        options: options under their documented names.

    Raises:
        InvalidOption: if the option is empty.

    >>> imported_group({"importFrom": " trades"}), imported_group({"importFrom": "none"}), imported_group({})
    ('trades', None, None)
    """
    group_id = options.get("importFrom", _NONE).strip()
    if not group_id:
        raise InvalidOption(
            f"Option 'importFrom' is '{options['importFrom']}', which is empty.",
            remedy="Set it to the 'group.id' of another group, or omit it.",
        )
    return None if group_id.lower() == _NONE else group_id


def partition_idle_timeout(options: Mapping[str, str]) -> int | None:
    """Returns the partition idle timeout in milliseconds; ``None`` if no partition is ever idle.

    Args:
        options: options under their documented names.

    Raises:
        InvalidOption: if the option is not a duration, or not above 0.

    >>> partition_idle_timeout({"partitionIdleTimeout": "30s"}), partition_idle_timeout({"partitionIdleTimeout": "none"})
    (30000, None)
    """
    if options.get("partitionIdleTimeout", _NONE).strip().lower() == _NONE:
        return None
    timeout_ms = _duration_ms(options, "partitionIdleTimeout")
    _check_idle_timeout(timeout_ms)
    return timeout_ms


def on_violation(options: Mapping[str, str]) -> OnViolation:
    """Returns how records before the watermark are handled, from the options of a source.

    Args:
        options: options under their documented names.

    Raises:
        InvalidOption: if the option has another value.

    >>> on_violation({"onViolation": "drop"}), on_violation({"onViolation": "none"})
    (<OnViolation.DROP: 'drop'>, <OnViolation.KEEP: 'keep'>)
    """
    if options.get("onViolation", _NONE).strip().lower() == _NONE:
        return OnViolation.KEEP
    return choice(options, "onViolation", OnViolation, OnViolation.KEEP)


def _every(value: str) -> Every:
    if value.isdigit():
        value = shown_value(value)
        raise InvalidOption(
            f"Option 'emitEvery' is '{value}', which can be a number of records or a duration.",
            remedy=f"Write '{value} records' or '{value}s'.",
        )
    match = _RECORDS.fullmatch(value.lower())
    if match is None:
        return Period(parse_duration_ms(value, option="emitEvery"))
    try:
        return Records(whole_number(match[1]))
    except ValueError:
        what = f"Option 'emitEvery' is '{shown_value(value)}', which is more than {MAX_INT64} records."
        raise InvalidOption(what, remedy="Write a smaller number, as in '100 records'.") from None


def _duration_ms(given: Mapping[str, str], name: str) -> int | None:
    return parse_duration_ms(given[name], option=name) if name in given else None
