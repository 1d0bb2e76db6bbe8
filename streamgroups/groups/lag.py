"""Computes the lag of a group, in records and in time.

Called by :mod:`streamgroups.monitoring` and the command line (``groups describe``, ``watch``, ``metrics``) with offsets
from the broker. The distance between a committed offset and the end counts offsets, and not every offset is a record.
Transaction markers take one each, compaction leaves gaps, and no reader gets the records of an aborted transaction. So
the records in between are counted where that is affordable (:class:`CountedLag`). Elsewhere the distance is an upper
bound, and is marked as one. Records after the last stable offset belong to an open transaction or follow one. They are
no lag, since a reader of committed records cannot reach them, and are counted separately. The first record of the lag
is also read, for its timestamp. Source: SEMANTICS O3, G13.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from streamgroups.partitions import Bounds, StampedOffset, TopicPartition


@dataclass(frozen=True, slots=True)
class NoLag:
    """No record exists between the committed offset and the end."""


#: The first record of the lag of a group.
FirstOfLag: TypeAlias = StampedOffset | NoLag


@dataclass(frozen=True, slots=True)
class CountedLag:
    """The number of records between a committed offset and the end of a partition.

    Args:
        records: before the last stable offset, without aborted ones: the records that any reader gets.
        open: after it: records of transactions that are still open, or written after such a record.
        is_exact: whether the numbers are exact; otherwise they are upper bounds.
    """

    records: int
    open: int = 0
    is_exact: bool = True


class PartitionError(Enum):
    """The error of a committed offset."""

    #: Records after it were deleted before the group read them.
    EXPIRED = "expired"
    #: It is past the end: the topic was recreated, or truncated.
    PAST_END = "past_end"
    #: Its topic or partition no longer exists.
    NO_PARTITION = "no_partition"
    #: Its partition has no leader now, so its end is unknown.
    NO_LEADER = "no_leader"
    #: This user may not describe its topic, so its end is unknown.
    NOT_AUTHORIZED = "not_authorized"


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of one group in one partition.

    Args:
        topic_partition: the partition.
        committed_offset: the next offset that the group will read; ``None`` without a committed offset.
        bounds: the earliest offset and the end of the partition; or the reason why they are unknown.
        first_record_of_lag: the first record of the lag; ``None`` if it was not looked up.
        reading_until: the end of the range that its owner has in flight, from its metadata entry; 0 if that is not
            known.
        counted: the number of records of the lag; ``None`` if they were not counted.

    >>> tp = TopicPartition("flights", 0)
    >>> PartitionLag(tp, 10, Bounds(0, 15), None).records
    5
    >>> PartitionLag(tp, 10, Bounds(0, 15), StampedOffset(12, 1_000)).records
    3
    >>> PartitionLag(tp, 14, Bounds(0, 15), NoLag()).records
    0
    >>> PartitionLag(tp, 10, Bounds(0, 15), StampedOffset(12, 1_000)).time_ms(now_ms=4_500)
    3500
    >>> lag = PartitionLag(tp, 10, Bounds(0, 15), counted=CountedLag(1, open=2))
    >>> lag.records, lag.open_records, lag.is_exact
    (1, 2, True)
    """

    topic_partition: TopicPartition
    committed_offset: int | None
    bounds: Bounds | PartitionError
    first_record_of_lag: FirstOfLag | None = None
    reading_until: int = 0
    counted: CountedLag | None = None

    #: Where the group would continue: at the committed offset, or at the earliest offset if its records were deleted.
    reading_offset: int | None = field(init=False)
    #: The lag in records, or an upper bound; ``None`` if it is unknown.
    records: int | None = field(init=False)

    def __post_init__(self) -> None:
        # Computed once: a cluster has tens of thousands of these objects, and each is read several times.
        at, records = self._worked_out()
        object.__setattr__(self, "reading_offset", at)
        object.__setattr__(self, "records", records)

    def _worked_out(self) -> tuple[int | None, int | None]:
        at, bounds = self.committed_offset, self.bounds
        if at is None or isinstance(bounds, PartitionError):
            return None, None
        end = bounds.end_offset
        # Comparisons instead of min and max: these lines take most of the time to describe a large cluster.
        if at < bounds.beginning_offset:
            at = bounds.beginning_offset
        elif at > end:
            at = end
        first, counted = self.first_record_of_lag, self.counted
        if first is None:
            return at, end - at if counted is None else counted.records
        if isinstance(first, NoLag):
            return at, 0
        behind = max(end - max(at, first.offset), 0)
        return at, behind if counted is None else min(counted.records, behind)

    @property
    def is_exact(self) -> bool:
        """Whether :attr:`records` is the exact lag rather than an upper bound."""
        return not self.records or (self.counted is not None and self.counted.is_exact)

    @property
    def is_unknown(self) -> bool:
        """Whether the group has a committed offset here, and its lag is unknown. A partition that does not exist has no lag.

        >>> tp = TopicPartition("flights", 0)
        >>> [PartitionLag(tp, 10, it).is_unknown for it in (PartitionError.NO_LEADER, PartitionError.NO_PARTITION)]
        [True, False]
        """
        has_offset = self.committed_offset is not None
        return self.records is None and has_offset and self.bounds is not PartitionError.NO_PARTITION

    @property
    def open_records(self) -> int | None:
        """The number of records after the last stable offset, or an upper bound; ``None`` if that is not known."""
        if self.counted is not None:
            return self.counted.open
        return 0 if self.reading_offset is not None and self.reading_offset == self.end_offset else None

    @property
    def has_available(self) -> bool:
        """Whether offsets follow the committed one, including those of open transactions.

        >>> PartitionLag(TopicPartition("flights", 0), 10, Bounds(0, 15), NoLag()).has_available
        True
        """
        return self.reading_offset is not None and self.reading_offset != self.end_offset

    def time_ms(self, now_ms: int) -> int | None:
        """How long the first record of the lag has been waiting; ``None`` if it was not looked up, or has no timestamp."""
        if not self.records:
            return self.records
        first = self.first_record_of_lag
        if isinstance(first, StampedOffset) and first.timestamp_ms is not None:
            # A record's timestamp is its producer's, whose clock may be ahead.
            return max(now_ms - first.timestamp_ms, 0)
        return None

    @property
    def in_flight(self) -> int | None:
        """How many records of the lag are about to be read; ``None`` if the lag is unknown.

        >>> PartitionLag(TopicPartition("flights", 0), 10, Bounds(0, 15), reading_until=13).in_flight
        3
        """
        if self.reading_offset is None or self.records is None:
            return None
        return min(max(self.reading_until - self.reading_offset, 0), self.records)

    @property
    def end_offset(self) -> int | None:
        """The end of the partition; ``None`` if it is unknown."""
        return self.bounds.end_offset if isinstance(self.bounds, Bounds) else None

    @property
    def lost_records(self) -> int:
        """How many offsets after the committed one no longer exist."""
        if self.committed_offset is None or isinstance(self.bounds, PartitionError):
            return 0
        return max(self.bounds.beginning_offset - self.committed_offset, 0)

    @property
    def error(self) -> PartitionError | None:
        """The error of the committed offset; ``None`` if it is valid."""
        if isinstance(self.bounds, PartitionError):
            return self.bounds
        if self.lost_records:
            return PartitionError.EXPIRED
        if self.committed_offset is not None and self.committed_offset > self.bounds.end_offset:
            return PartitionError.PAST_END
        return None


def total(values: list[int | None]) -> int | None:
    """The sum of all known values; ``None`` if no value is known.

    >>> total([1, None, 2]), total([None]), total([])
    (3, None, 0)
    """
    known = [value for value in values if value is not None]
    return sum(known) if known or not values else None


def maximum(values: list[int | None]) -> int | None:
    """The maximum of all values; ``None`` if a value is not known, or if there are no values.

    >>> maximum([1, 2]), maximum([1, None]), maximum([])
    (2, None, None)
    """
    known = [value for value in values if value is not None]
    return max(known, default=None) if len(known) == len(values) else None
