"""Parses and formats durations: one grammar for options, arguments and command-line flags, and the form in tables.

Used by the options of the source, the sinks, event time, windows and the command line. Source: the durations of Spark's
options (``maxTriggerDelay``) and of ``withWatermark`` ("10 minutes"); ISO 8601, which ``kafka-consumer-groups.sh
--by-duration`` reads.
"""

from __future__ import annotations

import re

from streamgroups.errors import InvalidOption

#: A day has 24 hours, as in Java's ``Duration``. Weeks and longer units are invalid: Java has no weeks, and months
#: differ in length.
_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_COUNT = r"[0-9]{1,18}"
_SECONDS = rf"{_COUNT}(?:\.[0-9]{{1,3}})?"
_WORDS = re.compile(
    rf"(?P<sign>[-+]?)(?:(?P<d>{_COUNT}) ?(?:d|days?))? ?(?:(?P<h>{_COUNT}) ?(?:h|hours?))? ?"
    rf"(?:(?P<m>{_COUNT}) ?(?:m|min|minutes?))? ?(?:(?P<s>{_SECONDS}) ?(?:s|seconds?))? ?(?:(?P<ms>{_COUNT}) ?(?:ms|milliseconds?))?"
)
_ISO = re.compile(
    rf"(?P<sign>[-+]?)p(?:(?P<d>{_COUNT})d)?(?:t(?=[0-9])(?:(?P<h>{_COUNT})h)?(?:(?P<m>{_COUNT})m)?(?:(?P<s>{_SECONDS})s)?)?"
)
#: Python cannot wait for longer than 292 years.
_MAX_DAYS = 100_000
FORMS = "Write a number with a unit, as in 500ms, 30s, 10 minutes, 1h30m or PT1H30M."


def parse_duration_ms(text: str, *, option: str, signed: bool = False) -> int:
    """Parses a duration.

    Every number has a unit (``d``, ``h``, ``m``, ``s`` or ``ms``), as a letter or a word, the largest first.

    Args:
        text: the text of the user.
        option: the name of the option, argument or flag, for the error.
        signed: whether it may be negative.

    Returns:
        Milliseconds.

    Raises:
        InvalidOption: if it is not a duration, is longer than 100,000 days, or is negative and must not be.

    >>> [parse_duration_ms(text, option="delay") for text in ("500ms", "10 minutes", "1h30m", "PT1H30M", "0.5s")]
    [500, 600000, 5400000, 5400000, 500]
    >>> parse_duration_ms("-1ms", option="delay", signed=True)
    -1
    >>> parse_duration_ms("10", option="delay")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'delay' is '10', which is not a duration. Write a number with a unit, as in 500ms, 30s, \
10 minutes, 1h30m or PT1H30M.
    """
    # The value may be a number by mistake: ``stage_retention=3600``.
    plain = " ".join(str(text).lower().split())
    match = _ISO.fullmatch(plain) or _WORDS.fullmatch(plain)
    parts = (
        {} if match is None else {unit: count for unit, count in match.groupdict().items() if count and unit != "sign"}
    )
    if match is None or not parts:
        raise _invalid(text, option, "is not a duration")
    ms = sum(_ms(count, _UNITS_MS[unit]) for unit, count in parts.items())
    if ms > _MAX_DAYS * _UNITS_MS["d"]:
        raise _invalid(text, option, f"is longer than {_MAX_DAYS:,} days")
    if match["sign"] != "-":
        return ms
    if not signed:
        raise _invalid(text, option, "is negative")
    return -ms


def _ms(count: str, unit_ms: int) -> int:
    """Milliseconds in integer arithmetic: a float would sometimes lose a millisecond."""
    whole, _, fraction = count.partition(".")
    return int(whole) * unit_ms + int(fraction.ljust(3, "0") or 0) * unit_ms // 1_000


def _invalid(text: str, option: str, why: str) -> InvalidOption:
    return InvalidOption(f"Option '{option}' is '{text}', which {why}.", remedy=FORMS)


def duration(ms: int | None) -> str | None:
    """The two largest units of a duration; ``None`` for an unknown one.

    >>> [duration(ms) for ms in (0, 250, 61_000, 3_600_000, 90_061_000, -1_500, None)]
    ['0s', '0.2s', '1m 1s', '1h', '1d 1h', '-1.5s', None]
    """
    if ms is None:
        return None
    sign, rest = ("-" if ms < 0 else ""), abs(ms)
    if 0 < rest < 10_000:
        return f"{sign}{rest / 1000:.1f}".removesuffix(".0") + "s"
    parts = []
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, _UNITS_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return sign + (" ".join(parts[:2]) or "0s")


def exact(ms: int) -> str:
    """A duration that :func:`parse_duration_ms` parses to the same value.

    >>> [exact(ms) for ms in (0, 1_500, 5_400_000)]
    ['0ms', '1s500ms', '1h30m']
    """
    parts, rest = [], abs(ms)
    for unit, size_ms in _UNITS_MS.items():
        count, rest = divmod(rest, size_ms)
        if count:
            parts.append(f"{count}{unit}")
    return ("-" if ms < 0 else "") + ("".join(parts) or "0ms")
