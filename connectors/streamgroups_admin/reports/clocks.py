"""The times in a chart: by the clock in UTC or in the local time zone, or since the beginning.

:mod:`streamgroups_admin.reports.svg` draws the axis with this module, and the charts use it for their tooltips. Source: ISO
8601 for dates and times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum

from streamgroups.errors import InvalidOption
from streamgroups.times import utc

_DAY_MS = 86_400_000
_UNITS_MS = {"d": _DAY_MS, "h": 3_600_000, "min": 60_000, "s": 1_000}


class Clock(str, Enum):
    """How a chart shows times."""

    #: By the clock, in UTC.
    UTC = "utc"
    #: By the clock, in the time zone of this machine (or of the environment variable ``TZ``).
    LOCAL = "local"
    #: Since the first event.
    ELAPSED = "elapsed"


def parse_clock(value: str) -> Clock:
    """Returns the clock with a name.

    Raises:
        InvalidOption: if no clock has the name.

    >>> parse_clock("local")
    <Clock.LOCAL: 'local'>
    >>> parse_clock("GMT")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Argument clock is 'GMT'. Use one of: utc, local, elapsed.
    """
    try:
        return Clock(value)
    except ValueError:
        named = ", ".join(clock.value for clock in Clock)
        raise InvalidOption(f"Argument clock is '{value}'.", remedy=f"Use one of: {named}.") from None


@dataclass(frozen=True, slots=True)
class Times:
    """Formats the times of one chart.

    Args:
        clock: how it shows times.
        begin_ms: its first time, in milliseconds since the epoch.
        end_ms: its last time.

    >>> Times(Clock.ELAPSED, 1_000, 9_000).text(2_100)
    '1.1 s'
    >>> Times(Clock.UTC, 1_000, 9_000).text(2_100)
    '00:00:02.100'
    >>> Times(Clock.UTC, 1_000, 90_000_000).text(2_100)
    '1970-01-01 00:00:02.100'
    """

    clock: Clock
    begin_ms: int
    end_ms: int

    def text(self, time_ms: int) -> str:
        """Returns a time for a tooltip. It contains the date if the chart spans several days."""
        if self.clock is Clock.ELAPSED:
            return f"{(time_ms - self.begin_ms) / 1000:.1f} s"
        time = self._at(time_ms)
        if time is None:
            return f"{time_ms}ms"
        begin, end = self._at(self.begin_ms), self._at(self.end_ms)
        form = "%H:%M:%S" if begin and end and begin.date() == end.date() else "%Y-%m-%d %H:%M:%S"
        return f"{time:{form}}.{time_ms % 1000:03}"

    def date_and_time(self, time_ms: int) -> str:
        """Returns a time that is independent of the beginning of the chart, such as event time: to the second."""
        time = self._at(time_ms)
        return (utc(time_ms) or "")[:19].replace("T", " ") if time is None else f"{time:%Y-%m-%d %H:%M:%S}"

    def labels(self, step_ms: int) -> Iterator[tuple[int, str, str]]:
        """Yields the round times of an axis: the time, its label, and a second line, which is empty for most of them.

        Args:
            step_ms: the distance of two labels, a whole number of seconds.

        >>> list(Times(Clock.ELAPSED, 500, 4_600).labels(2_000))
        [(500, '0 s', ''), (2500, '2 s', ''), (4500, '4 s', '')]
        >>> list(Times(Clock.UTC, 500, 4_600).labels(2_000))
        [(2000, '00:00:02', '1970-01-01 UTC'), (4000, '00:00:04', '')]
        """
        if self.clock is Clock.ELAPSED:
            unit, unit_ms = next((unit, unit_ms) for unit, unit_ms in _UNITS_MS.items() if step_ms % unit_ms == 0)
            for time_ms in range(self.begin_ms, self.end_ms + 1, step_ms):
                yield time_ms, f"{(time_ms - self.begin_ms) // unit_ms} {unit}", ""
            return
        yield from self._clock_labels(step_ms)

    def _clock_labels(self, step_ms: int) -> Iterator[tuple[int, str, str]]:
        begin = self._at(self.begin_ms)
        offset = begin and begin.utcoffset()
        offset_ms = offset // timedelta(milliseconds=1) if offset else 0
        first_ms = -(-(self.begin_ms + offset_ms) // step_ms) * step_ms - offset_ms
        form = "%H:%M:%S" if step_ms < 60_000 else "%H:%M" if step_ms < _DAY_MS else "%Y-%m-%d"
        day = ""
        # A short chart can be between two round times.
        for time_ms in range(first_ms, self.end_ms + 1, step_ms) or [self.begin_ms]:
            time = self._at(time_ms)
            if time is None:
                yield time_ms, f"{time_ms}ms", ""
                continue
            below = "" if f"{time:%Y-%m-%d}" == day or (day and step_ms >= _DAY_MS) else f"{time:%Y-%m-%d}"
            if not day:
                below = f"{time:%Z}" if step_ms >= _DAY_MS else f"{time:%Y-%m-%d %Z}"
            day = f"{time:%Y-%m-%d}"
            yield time_ms, f"{time:{form}}", below

    def _at(self, time_ms: int) -> datetime | None:
        """Returns a time with its zone; ``None`` if the calendar does not contain it."""
        try:
            time = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=time_ms)
            return time.astimezone() if self.clock is Clock.LOCAL else time
        except (OverflowError, ValueError, OSError):
            return None
