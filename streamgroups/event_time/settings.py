"""The settings of event time and of windows: parses options, merges them, and validates all of them before any effect.

Called when a source is created and when a query uses it. Source: SEMANTICS W4-W6, W8-W11; StreamInsight, where settings
of the adapter are defaults and settings of the query's binding override them.

Time of a source:

======================== ========================================================== ====================================
option                   meaning                                                    default
======================== ========================================================== ====================================
``emitEvery``            how often the watermark is emitted: ``10 records``, ``5s`` ``1 record`` with ``watermarkDelay``
``watermarkDelay``       delay behind the latest record; can be negative            ``0ms``, with ``emitEvery``
``flush``                whether a stop advances the watermark to the end of time   ``false``
``importFrom``           the stream whose watermark this stream follows             none
``onViolation``          ``keep``, ``drop`` or ``adjust``                           ``keep``
``partitionIdleTimeout`` how long a partition without available records holds back  unlimited
                         the watermark
======================== ========================================================== ====================================

Options of windows: ``size``; ``size`` and ``hop``; or ``gap``. With ``boundary``, ``allowedLateness`` and
``idleTimeout``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.event_time.strategy import Every, Generation, Period, Records
from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.windows import (
    Boundary,
    EventTime,
    Hopping,
    ProcessingTime,
    Session,
    Shape,
    Windowing,
    tumbling,
)
from streamgroups.option_values import canonical, choice, flag

#: Options of a source, and of a query that reads it.
TIME_OPTIONS = ("emitEvery", "watermarkDelay", "flush", "importFrom", "onViolation", "partitionIdleTimeout")
_WINDOWS = ("size", "hop", "gap", "boundary", "allowedLateness", "idleTimeout")
_RECORDS = re.compile(r"(\d+)\s*records?")
_NONE = "none"


@dataclass(frozen=True, slots=True)
class TimeSettings:
    """The event-time settings of a source.

    Args:
        generation: its watermark strategy; ``None`` if it generates no watermark.
        import_from: the stream whose watermark it follows; ``None`` if it follows none.
        on_violation: how records before the watermark are handled.
        partition_idle_timeout_ms: how long a partition without available records holds back the watermark. ``None``:
            unlimited.

    Raises:
        InvalidOption: if the source would have no watermark, or the timeout is not above 0.
    """

    generation: Generation | None = None
    import_from: str | None = None
    on_violation: OnViolation = OnViolation.KEEP
    partition_idle_timeout_ms: int | None = None

    def __post_init__(self) -> None:
        if self.generation is None and self.import_from is None:
            raise InvalidOption(
                "The watermark strategy is missing.",
                remedy="Set 'emitEvery' or 'watermarkDelay' to generate the watermark from records, or 'importFrom' to import it from another stream.",
            )
        _check_idle_timeout(self.partition_idle_timeout_ms)


def _check_idle_timeout(timeout_ms: int | None) -> None:
    if timeout_ms is not None and timeout_ms <= 0:
        raise InvalidOption(
            f"Option 'partitionIdleTimeout' is {timeout_ms}ms.",
            remedy="It must be longer than 0. Omit it if no partition is ever idle.",
        )


class _BoundaryName(Enum):
    EVENT_TIME = "eventTime"
    PROCESSING_TIME = "processingTime"


def time_settings(source: Mapping[str, str], query: Mapping[str, str]) -> TimeSettings:
    """Returns the event-time settings from the options of the source and of the query that reads it (SEMANTICS W11).

    Args:
        source: defaults, set on the source; names in any case.
        query: options set on the query. Each overrides its default; the value ``none`` removes the default.

    Raises:
        InvalidOption: for the first invalid option, with its name, its value and the allowed values.

    >>> time_settings({"emitEvery": "10 records", "watermarkDelay": "5s"}, {"watermarkDelay": "0s"}).generation
    Generation(every=Records(count=10), delay_ms=0, flush=False)
    >>> time_settings({"emitEvery": "10 records"}, {"emitEvery": "none"})
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: The watermark strategy is missing. Set 'emitEvery' or 'watermarkDelay' to generate the watermark from records, \
or 'importFrom' to import it from another stream.
    """
    merged = {canonical(name, TIME_OPTIONS): value.strip() for name, value in (*source.items(), *query.items())}
    given = {name: value for name, value in merged.items() if value.lower() != _NONE}
    generation = None
    if "emitEvery" in given or "watermarkDelay" in given:
        every = _every(given["emitEvery"]) if "emitEvery" in given else Records(1)
        delay_ms = (
            parse_duration_ms(given["watermarkDelay"], option="watermarkDelay", signed=True)
            if "watermarkDelay" in given
            else 0
        )
        generation = Generation(every, delay_ms, flag(given, "flush", default=False))
    elif flag(given, "flush", default=False):
        raise InvalidOption(
            "Option 'flush' is 'true', but the stream generates no watermark.",
            remedy="Set 'emitEvery' or 'watermarkDelay' too.",
        )
    return TimeSettings(
        generation,
        given.get("importFrom"),
        choice(given, "onViolation", OnViolation, OnViolation.KEEP),
        _duration_ms(given, "partitionIdleTimeout"),
    )


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


def window_settings(options: Mapping[str, str], time: TimeSettings | None) -> Windowing:
    """Returns how records are assigned to windows.

    Args:
        options: the options of the windows; names in any case.
        time: the event-time settings; ``None`` if they are unknown.

    Raises:
        InvalidOption: for the first invalid option, for event-time windows without a watermark, and for a timeout or
            lateness with processing time (SEMANTICS W6).

    >>> window_settings({"size": "5m", "allowedLateness": "2m"}, TimeSettings(Generation())).boundary
    EventTime(allowed_lateness_ms=120000, idle_timeout_ms=None)
    >>> window_settings({"size": "5m", "boundary": "processingTime", "idleTimeout": "1m"}, None)
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'idleTimeout' cannot be combined with boundary=processingTime. Omit one of them.
    """
    given = {canonical(name, _WINDOWS): value.strip() for name, value in options.items()}
    return Windowing(_shape(given), _boundary(given, time))


def _shape(given: Mapping[str, str]) -> Shape:
    if "gap" in given:
        for name in ("size", "hop"):
            if name in given:
                raise InvalidOption(
                    f"Options 'gap' and '{name}' cannot be combined.",
                    remedy="Set 'gap' for session windows, 'size' for tumbling windows, 'size' and 'hop' for hopping windows.",
                )
        return Session(parse_duration_ms(given["gap"], option="gap"))
    if "size" not in given:
        raise InvalidOption("The size of the windows is missing.", remedy="Set 'size', or 'gap' for session windows.")
    size_ms = parse_duration_ms(given["size"], option="size")
    return Hopping(size_ms, parse_duration_ms(given["hop"], option="hop")) if "hop" in given else tumbling(size_ms)


def _boundary(given: Mapping[str, str], time: TimeSettings | None) -> Boundary:
    if choice(given, "boundary", _BoundaryName, _BoundaryName.EVENT_TIME) is _BoundaryName.PROCESSING_TIME:
        for name in ("allowedLateness", "idleTimeout"):
            if name in given:
                raise InvalidOption(
                    f"Option '{name}' cannot be combined with boundary=processingTime.", remedy="Omit one of them."
                )
        return ProcessingTime()
    if time is None:
        raise InvalidOption(
            "The windows use event time, but the stream has no watermark: they would never close.",
            remedy="Set 'emitEvery', 'watermarkDelay' or 'importFrom', or use boundary=processingTime.",
        )
    return EventTime(_duration_ms(given, "allowedLateness") or 0, _duration_ms(given, "idleTimeout"))


def _every(value: str) -> Every:
    if value.isdigit():
        raise InvalidOption(
            f"Option 'emitEvery' is '{value}', which can be a number of records or a duration.",
            remedy=f"Write '{value} records' or '{value}s'.",
        )
    match = _RECORDS.fullmatch(value.lower())
    return Records(int(match[1])) if match else Period(parse_duration_ms(value, option="emitEvery"))


def _duration_ms(given: Mapping[str, str], name: str) -> int | None:
    return parse_duration_ms(given[name], option=name) if name in given else None
