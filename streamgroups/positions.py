"""The positions that a user can name, as variants: where reading starts.

Created by option parsing (``streamgroups_spark.source.source_options``) and by the CLI.
:mod:`streamgroups.query.offset_lookup` converts them to offsets. Source: SEMANTICS G1, G16, S4; Kafka's ListOffsets
API.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import TypeAlias

from streamgroups.errors import InvalidOption
from streamgroups.partitions import TopicPartition
from streamgroups.times import utc


@dataclass(frozen=True, slots=True)
class TrimHorizon:
    """The earliest record of the partition."""


@dataclass(frozen=True, slots=True)
class Latest:
    """Only records that are written from now on."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record whose timestamp is at or after ``timestamp_ms`` (milliseconds since the epoch, UTC)."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtOffset:
    """Exactly this offset."""

    next_offset: int


@dataclass(frozen=True, slots=True)
class AfterOffset:
    """The offset after this one."""

    last_offset: int


Position: TypeAlias = TrimHorizon | Latest | AtTime | AtOffset | AfterOffset


class WhenNoRecordMatches(Enum):
    """The offset of :class:`AtTime` in a partition without a matching record (Spark's ``...ByTimestampStrategy``)."""

    ERROR = "error"
    LATEST = "latest"


#: Kafka's times are int64.
_MAX_TIME_MS = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: YYYYMMDD, also with HHMM, HHMMSS and milliseconds.
_PLAIN_DATE = re.compile(
    r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:(?:[01]\d|2[0-3])[0-5]\d(?:[0-5]\d(?:\d{3})?)?)?"
)
#: A date, and a time after it with or without an offset.
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)"
    r"(?:[Tt ]([01]\d|2[0-3])(?::(\d\d)(?::(\d\d)(?:[.,](\d+))?)?)?(?: ?(?:([Zz])|([+-]\d\d(?::?\d\d(?::?\d\d)?)?)))?)?",
    re.ASCII,
)
#: Seconds have it from 2001 to 2286. As milliseconds these are times in the first four months of 1970.
_SECONDS_LENGTH = 10
_TIME_REMEDY = "Write it like 2026-01-31T12:00:00Z or as milliseconds since 1970-01-01T00:00:00Z."


@dataclass(frozen=True, slots=True)
class Positions:
    """A position for every partition: one for all, or one for each.

    Args:
        default: the position of each partition that is not named in ``by_partition``; ``None`` if every partition must
            be named there (Spark's rule for ``startingOffsets`` as JSON).
        by_partition: positions of single partitions.
        when_no_record_matches: see :class:`WhenNoRecordMatches`.

    >>> Positions(Latest()).of(TopicPartition("flights", 0))
    Latest()
    """

    default: Position | None
    by_partition: Mapping[TopicPartition, Position] = field(default_factory=dict)
    when_no_record_matches: WhenNoRecordMatches = WhenNoRecordMatches.ERROR

    def of(self, topic_partition: TopicPartition) -> Position:
        """The position of one partition.

        Raises:
            InvalidOption: if it is not named and no default is set.
        """
        position = self.by_partition.get(topic_partition, self.default)
        if position is None:
            raise InvalidOption(
                f"The position of {topic_partition} is missing.",
                remedy="Positions by partition must contain every partition of every subscribed topic.",
            )
        return position


def parse_time_ms(text: str, *, option: str) -> int:
    """Parses a point in time: ISO 8601, or milliseconds since the epoch.

    Without a time zone it is UTC, as in Kafka's tools. A date without a time is midnight UTC, and has no zone. Seconds and dates without separators are rejected: see
    :func:`check_time_ms`.

    Args:
        text: the text of the user.
        option: the name of the option, for the error.

    Returns:
        Milliseconds since the epoch, UTC.

    Raises:
        InvalidOption: if it is neither, is before the epoch, is more than an int64, or seems to be another form.

    >>> [parse_time_ms(f"2013-01-01T05:00:00{zone}", option="startingTimestamp") for zone in ("Z", "", "+01:00")]
    [1357016400000, 1357016400000, 1357012800000]
    >>> parse_time_ms("1357016400000", option="startingTimestamp")
    1357016400000
    >>> parse_time_ms("yesterday", option="startingTimestamp")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'startingTimestamp' is 'yesterday', which is not a time. Write it like \
2026-01-31T12:00:00Z or as milliseconds since 1970-01-01T00:00:00Z.
    """
    stripped = text.strip()
    if stripped.isascii() and stripped.isdigit():
        # The length first: Python does not convert texts of thousands of digits.
        if len(stripped) > len(str(_MAX_TIME_MS)) or int(stripped) > _MAX_TIME_MS:
            raise InvalidOption(
                f"Option '{option}' is more than {_MAX_TIME_MS}, the last time of Kafka.", remedy=_TIME_REMEDY
            )
        return check_time_ms(int(stripped), option=option)
    try:
        time = datetime.fromisoformat(_uniform(stripped))
    except ValueError:
        raise InvalidOption(f"Option '{option}' is '{text}', which is not a time.", remedy=_TIME_REMEDY) from None
    if time.tzinfo is None:
        # The time zone of the machine would result in another position on another machine.
        time = time.replace(tzinfo=timezone.utc)
    # Integer arithmetic: seconds as a float would sometimes lose a millisecond.
    time_ms = (time - _EPOCH) // timedelta(milliseconds=1)
    if time_ms < 0:
        raise InvalidOption(f"Option '{option}' is '{text}', which is before 1970.", remedy=_TIME_REMEDY)
    return time_ms


def _uniform(text: str) -> str:
    """Returns a time in the one form that all releases of Python parse alike.

    Their ``fromisoformat`` accepts any separator, so it reads the offset of ``2026-01-31+02:00`` as a time of day.

    Raises:
        ValueError: if the text has no form of ISO 8601 that names a date.

    >>> _uniform("2026-01-31 05:00Z"), _uniform("2026-01-31T05:00:00.1234567-0530")
    ('2026-01-31T05:00:00.000000+00:00', '2026-01-31T05:00:00.123456-05:30')
    """
    found = _ISO.fullmatch(text)
    if found is None:
        raise ValueError(text)
    date, hour, minute, second, fraction, utc_name, offset = found.groups()
    time = f"{date}T{hour or '00'}:{minute or '00'}:{second or '00'}.{(fraction or '')[:6]:0<6}"
    if offset is None:
        return f"{time}+00:00" if utc_name else time
    sign, digits = offset[0], offset[1:].replace(":", "")
    return f"{time}{sign}{':'.join(digits[i : i + 2] for i in range(0, len(digits), 2))}{':00' if len(digits) == 2 else ''}"


def check_time_ms(time_ms: int, *, option: str, of: str = "") -> int:
    """Checks that a number is no date without separators, such as 20130101, and no time in seconds.

    As milliseconds these are times near 1970, or far in the future. So a query would silently begin at the earliest record.

    Args:
        time_ms: the number.
        option: the name of the option, for the error.
        of: the partition that it is for; empty for all.

    Returns:
        The number.

    Raises:
        InvalidOption: if it seems to be one of them.

    >>> check_time_ms(1_357_016_400_000, option="startingTimestamp")
    1357016400000
    >>> check_time_ms(1_357_016_400, option="startingTimestamp")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'startingTimestamp' is '1357016400', which seems to be a time in seconds. As \
milliseconds it is 1970-01-16T16:56:56.400Z. Write it like 2026-01-31T12:00:00Z or as milliseconds since \
1970-01-01T00:00:00Z.
    """
    digits = str(time_ms)
    if _PLAIN_DATE.fullmatch(digits):
        form = "a date without separators"
    elif len(digits) == _SECONDS_LENGTH:
        form = "a time in seconds"
    else:
        return time_ms
    raise InvalidOption(
        f"Option '{option}'{f' of {of}' if of else ''} is '{digits}', which seems to be {form}. As milliseconds it is "
        f"{utc(time_ms)}.",
        remedy=_TIME_REMEDY,
    )
