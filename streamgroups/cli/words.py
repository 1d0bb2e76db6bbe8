"""Durations as people read them and as they write them; names as a shell takes them.

Used by the commands about groups. Source: ISO 8601, which ``kafka-consumer-groups.sh --by-duration`` reads; the shell of POSIX.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from streamgroups.errors import InvalidOption

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))
_ISO_DURATION = re.compile(
    r"(?P<sign>[-+])?P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_SHORT_DURATION = re.compile(r"(?:(?P<d>\d+)d)?(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?(?:(?P<s>\d+)s)?")


def duration(ms: int | None) -> str | None:
    """The two largest units of a duration; ``None`` stays unknown.

    >>> [duration(ms) for ms in (0, 250, 61_000, 3_600_000, 90_061_000, -1_500, None)]
    ['0s', '0.2s', '1m 1s', '1h', '1d 1h', '-1.5s', None]
    """
    if ms is None:
        return None
    sign, rest = ("-" if ms < 0 else ""), abs(ms)
    if 0 < rest < 10_000:
        return f"{sign}{rest / 1000:.1f}".removesuffix(".0") + "s"
    parts = []
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return sign + (" ".join(parts[:2]) or "0s")


def parse_duration_ms(text: str, *, option: str) -> int:
    """A duration, as Kafka's tool reads it (``P7DT1H``) or short (``1h30m``), in milliseconds.

    Raises:
        InvalidOption: if it is neither.

    >>> parse_duration_ms("PT0.5S", option="--by-duration"), parse_duration_ms("1h30m", option="--by-duration")
    (500, 5400000)
    >>> parse_duration_ms("soon", option="--by-duration")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: --by-duration is 'soon', which is not a duration. Write it like 1h30m or PT1H30M.
    """
    stripped = text.strip()
    match = _ISO_DURATION.fullmatch(stripped) or _SHORT_DURATION.fullmatch(stripped)
    given = {} if match is None else {unit: match[unit] for unit, _ in _UNITS if match[unit] is not None}
    if match is None or not given:
        raise InvalidOption(f"{option} is '{text}', which is not a duration.", remedy="Write it like 1h30m or PT1H30M.")
    ms = sum(round(float(given[unit]) * size) for unit, size in _UNITS if unit in given)
    return -ms if match.groupdict().get("sign") == "-" else ms


def names(groups: Iterable[str]) -> str:
    """The names of groups as the last arguments of a command that can be pasted: anybody may call a group ``x; reboot``.

    >>> print(names(["billing", "x; reboot"]))
    billing 'x; reboot'
    >>> print(names(["--execute"]))
    -- --execute
    """
    listed = list(groups)
    return ("-- " if any(name.startswith("-") for name in listed) else "") + shlex.join(listed)
