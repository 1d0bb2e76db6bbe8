"""The watermark strategy: how often the watermark is emitted, by records or by event time, and with which delay.

:mod:`streamgroups.event_time.source_time` calls this module for each partition separately, so that the counts move
with the partition. Source: SEMANTICS W8, W12; StreamInsight's ``AdvanceTimeGenerationSettings``.

The watermark is the event time of the latest record less the delay. Records that are late by no more than the delay are
therefore not late. A watermark at the time of a record does not make the record final, because other records can have
the same time. A negative delay does: with -1 ms, each record is final as soon as it is read, and others of the same
time are violations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from streamgroups.errors import InvalidOption
from streamgroups.event_time.watermark import At


@dataclass(frozen=True, slots=True)
class Records:
    """Emits the watermark after this number of records."""

    count: int


@dataclass(frozen=True, slots=True)
class Period:
    """Emits the watermark after this period of event time, in milliseconds."""

    duration_ms: int


Every: TypeAlias = Records | Period


@dataclass(frozen=True, slots=True)
class Generation:
    """The watermark strategy of a stream.

    Args:
        every: how often the watermark is emitted.
        delay_ms: the delay behind the latest record. A negative delay is ahead of it.

    Raises:
        InvalidOption: if ``emitEvery`` is not above 0.
    """

    every: Every = Records(1)
    delay_ms: int = 0

    def __post_init__(self) -> None:
        amount = self.every.count if isinstance(self.every, Records) else self.every.duration_ms
        if amount <= 0:
            raise InvalidOption(
                f"Option 'emitEvery' is {amount}.",
                remedy="Set a number of records such as '10 records', or a duration such as 5s, greater than 0.",
            )


@dataclass(frozen=True, slots=True)
class Progress:
    """The records and event time since the watermark was last emitted.

    Args:
        records: the number of records.
        period_from_ms: the event time at which the current period began; ``None`` before the first record.
    """

    records: int = 0
    period_from_ms: int | None = None


NOTHING = Progress()


def progress(every: Every, before: Progress, records: int, event_time_ms: int) -> tuple[Progress, bool]:
    """Counts records, and returns whether the watermark is due.

    The remainder counts for the next time, so that the portions in which records are counted make no difference.

    Args:
        every: how often the watermark is emitted.
        before: the counts before.
        records: the number of new records.
        event_time_ms: the latest event time of these and all earlier records.

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
    """Returns the watermark of a record. With a delay of 5 s it is the time of the record less 5 s (SEMANTICS W8).

    >>> asserted(Generation(Records(10), delay_ms=5_000), 60_000)
    At(time_ms=55000)
    """
    return At(event_time_ms - generation.delay_ms)
