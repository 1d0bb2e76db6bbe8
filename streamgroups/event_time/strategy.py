"""When time is asserted, and how much of it: every so many records or so much event time, less a delay.

Called by :mod:`streamgroups.event_time.partition_time` for each partition by itself, so that what is counted travels with the partition.
Source: SEMANTICS W8, W12; StreamInsight's ``AdvanceTimeGenerationSettings(frequency, delay, flush)``.

The time asserted is that of the latest record less the delay, which gives records that are late by no more than the delay the time to come.
A watermark at a record's own time does not make the record final, for others may happen at the same time. A negative delay does: with
-1 ms each record is final as soon as it is read (and others of the same time are violations).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from streamgroups.errors import InvalidOption
from streamgroups.event_time.watermark import At


@dataclass(frozen=True, slots=True)
class Records:
    """After this many records."""

    count: int


@dataclass(frozen=True, slots=True)
class Period:
    """After this much event time, in milliseconds."""

    duration_ms: int


Every: TypeAlias = Records | Period


@dataclass(frozen=True, slots=True)
class Generation:
    """How a stream asserts its own time.

    Args:
        every: how often.
        delay_ms: how far behind the latest record. Negative: ahead of it.
        flush: whether the end of time is asserted when the stream is stopped, which closes everything that is open.

    Raises:
        InvalidOption: if ``emitEvery`` is not above 0.
    """

    every: Every = Records(1)
    delay_ms: int = 0
    flush: bool = False

    def __post_init__(self) -> None:
        amount = self.every.count if isinstance(self.every, Records) else self.every.duration_ms
        if amount <= 0:
            raise InvalidOption(
                f"Option 'emitEvery' is {amount}.",
                remedy="Set a number of records such as '10 records', or a duration such as 5s, greater than 0.",
            )


@dataclass(frozen=True, slots=True)
class Progress:
    """What has come since time was last asserted.

    Args:
        records: how many records.
        period_from_ms: the event time at which the present period began; ``None`` before the first record.
    """

    records: int = 0
    period_from_ms: int | None = None


NOTHING = Progress()


def progress(every: Every, before: Progress, records: int, event_time_ms: int) -> tuple[Progress, bool]:
    """Counts records, and says whether it is time to assert time.

    What is over counts for the next time, so that it makes no difference in which portions records are counted.

    Args:
        every: how often time is asserted.
        before: what was counted before.
        records: how many more there are.
        event_time_ms: the latest event time, of these and all before.

    >>> progress(Records(10), Progress(), 9, 0)
    (Progress(records=9, period_from_ms=None), False)
    >>> progress(Records(10), Progress(9), 4, 0)
    (Progress(records=3, period_from_ms=None), True)
    >>> progress(Period(5_000), Progress(0, 1_000), 1, 7_500)
    (Progress(records=0, period_from_ms=6000), True)
    """
    if isinstance(every, Records):
        total = before.records + records
        return Progress(records=total % every.count), total >= every.count
    began_ms = event_time_ms if before.period_from_ms is None else before.period_from_ms
    periods = (event_time_ms - began_ms) // every.duration_ms
    return Progress(period_from_ms=began_ms + periods * every.duration_ms), periods > 0


def asserted(generation: Generation, event_time_ms: int) -> At:
    """The time that a record asserts (SEMANTICS W8: delay 5 s: the last record's, less 5 s).

    >>> asserted(Generation(Records(10), delay_ms=5_000), 60_000)
    At(time_ms=55000)
    """
    return At(event_time_ms - generation.delay_ms)
