"""Watermarks that the producer of a partition emits: in a header of its records, or in marker records without data.

Producers call :func:`watermark_header`. ``streamgroups_spark.source.watermark_header`` reads the header in tasks,
and ``streamgroups_operators.producer_time`` applies the watermarks to the records after them. Source: SEMANTICS W15;
StreamInsight, where an input adapter enqueues CTIs; Flink's punctuated watermarks.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TypeAlias

from streamgroups.errors import InvalidOption
from streamgroups.partitions import TopicPartition

#: The header that producers set. The option ``watermarkHeader`` of a source names the header to read.
WATERMARK_HEADER = "streamgroups-watermark"
#: A time as producers pass it: a datetime with a time zone, or milliseconds since the epoch.
WatermarkTime: TypeAlias = datetime | int
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: The source reads at most 15 digits. More digits are microseconds or nanoseconds.
_END_MS = 10**15


def watermark_header(time: WatermarkTime, *, name: str = WATERMARK_HEADER) -> tuple[str, bytes]:
    """Returns a header for a record: no later record of its partition has an event time before ``time``.

    The watermark applies to the records after this one, whichever producer writes them. Any Kafka client can send the
    header; its value is decimal milliseconds since the epoch.

    Args:
        time: a datetime with a time zone, or milliseconds since the epoch. A fraction of a millisecond is cut off.
        name: the name of the header. The option ``watermarkHeader`` of the source must be the same.

    Returns:
        The name and the value.

    Raises:
        InvalidOption: if the time has no time zone, is before 1970, or is no time; or if the name is empty.

    >>> watermark_header(datetime(2013, 1, 1, 5, tzinfo=timezone.utc))
    ('streamgroups-watermark', b'1357016400000')
    >>> watermark_header(1_357_016_400_000, name="complete-until")
    ('complete-until', b'1357016400000')
    >>> watermark_header(datetime(2013, 1, 1, 5))
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'time' is 2013-01-01T05:00:00, which has no time zone. Pass a datetime with \
a time zone, such as datetime.now(timezone.utc), or milliseconds since the epoch.
    """
    if not name.strip():
        raise InvalidOption(
            f"Option 'name' is '{name}', which is empty.", remedy="Pass the name of a header, or leave it out."
        )
    return name, str(producer_time_ms(time)).encode()


def producer_time_ms(time: WatermarkTime) -> int:
    """Returns a time in milliseconds since the epoch.

    Raises:
        InvalidOption: see :func:`watermark_header`.

    >>> producer_time_ms(1_357_016_400.5)
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'time' is 1357016400.5, which is not a time. Pass a datetime with a time \
zone, such as datetime.now(timezone.utc), or milliseconds since the epoch.
    """
    if isinstance(time, datetime):
        if time.utcoffset() is None:
            raise _invalid(time.isoformat(), "has no time zone")
        time_ms = (time - _EPOCH) // timedelta(milliseconds=1)
    elif isinstance(time, int) and not isinstance(time, bool):
        time_ms = time
    else:
        raise _invalid(repr(time), "is not a time")
    if time_ms < 0:
        raise _invalid(str(time), "is before 1970")
    if time_ms >= _END_MS:
        raise _invalid(str(time), "has more than 15 digits")
    return time_ms


def _invalid(time: str, why: str) -> InvalidOption:
    return InvalidOption(
        f"Option 'time' is {time}, which {why}.",
        remedy="Pass a datetime with a time zone, such as datetime.now(timezone.utc), or milliseconds since the epoch.",
    )


@dataclass(frozen=True, slots=True)
class ProducerWatermarks:
    """Watermarks of the producer of one partition. Each is later than the one before it.

    Args:
        topic_partition: the partition.
        offsets: the offset of the record of each watermark, ascending.
        times_ms: each watermark, ascending, in milliseconds since the epoch.
    """

    topic_partition: TopicPartition
    offsets: tuple[int, ...]
    times_ms: tuple[int, ...]

    def split(self, next_offset: int) -> tuple[ProducerWatermarks | None, ProducerWatermarks | None]:
        """Returns the watermarks before an offset, and the others; ``None`` for an empty part.

        >>> both = ProducerWatermarks(TopicPartition("flights", 0), (3, 5), (100, 200))
        >>> before, others = both.split(5)
        >>> before.offsets, others.offsets, both.split(3)[0]
        ((3,), (5,), None)
        """
        count = bisect_left(self.offsets, next_offset)
        return self._part(0, count), self._part(count, len(self.offsets))

    def _part(self, first: int, end: int) -> ProducerWatermarks | None:
        if first == end:
            return None
        return ProducerWatermarks(self.topic_partition, self.offsets[first:end], self.times_ms[first:end])
