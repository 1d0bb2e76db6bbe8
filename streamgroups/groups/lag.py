"""How far a group is behind: in records, and in time.

Called by the command line (``groups describe``, ``watch``, ``metrics``) with what the broker says. Source: SEMANTICS O3, G13.
The distance between a committed offset and the end counts offsets, and not every offset is a record: transaction markers take
one each, compaction leaves gaps, and no reader gets the records of an aborted transaction. So the records in between are counted where that is
affordable (:class:`UnreadRecords`); elsewhere the distance is an upper bound, and says so. Records behind the last stable offset, of a
transaction that is still open or written after one, are no lag: a reader of committed records cannot reach them. They are counted apart.
The first unread record is read besides, for its timestamp.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from streamgroups.partitions import Bounds, TopicPartition


@dataclass(frozen=True, slots=True)
class Unread:
    """The first record that a group has not read yet: its offset and its timestamp (milliseconds since the epoch)."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class NothingUnread:
    """Between the committed offset and the end there is no record."""


FirstUnread: TypeAlias = Unread | NothingUnread


@dataclass(frozen=True, slots=True)
class UnreadRecords:
    """How many records lie between a committed offset and the end of a partition.

    Args:
        records: before the last stable offset, without aborted ones: what any reader gets.
        open: behind it: of transactions that are still open, or written after one that is.
        is_exact: whether it is exactly so many; otherwise these are upper bounds.
    """

    records: int
    open: int = 0
    is_exact: bool = True


class PartitionError(Enum):
    """What is wrong with a committed offset."""

    #: Records after it were deleted before the group read them.
    EXPIRED = "expired"
    #: It is past the end: the topic was made anew, or truncated.
    PAST_END = "past_end"
    #: Its topic or partition does not exist any more.
    NO_PARTITION = "no_partition"
    #: Its partition has no leader now, so nobody knows its end.
    NO_LEADER = "no_leader"


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of one group.

    Args:
        topic_partition: where.
        committed_offset: the next offset the group will read; ``None`` if it never committed one.
        bounds: where the partition begins and ends; or why that is not known.
        first_unread: the first record it has not read; ``None`` if that was not looked up.
        reading_until: the end of what its owner has in flight, by its note on the board; 0 if that is not known.
        counted: the unread records; ``None`` if they were not counted.

    >>> tp = TopicPartition("flights", 0)
    >>> PartitionLag(tp, 10, Bounds(0, 15), None).records
    5
    >>> PartitionLag(tp, 10, Bounds(0, 15), Unread(12, 1_000)).records
    3
    >>> PartitionLag(tp, 14, Bounds(0, 15), NothingUnread()).records
    0
    >>> PartitionLag(tp, 10, Bounds(0, 15), Unread(12, 1_000)).time_ms(now_ms=4_500)
    3500
    >>> lag = PartitionLag(tp, 10, Bounds(0, 15), counted=UnreadRecords(1, open=2))
    >>> lag.records, lag.open_records, lag.is_exact
    (1, 2, True)
    """

    topic_partition: TopicPartition
    committed_offset: int | None
    bounds: Bounds | PartitionError
    first_unread: FirstUnread | None = None
    reading_until: int = 0
    counted: UnreadRecords | None = None

    #: Where the group would go on reading: at the committed offset, or at the oldest record if that is gone.
    reading_offset: int | None = field(init=False)
    #: How many records are unread, at most; ``None`` if nobody can say.
    records: int | None = field(init=False)

    def __post_init__(self) -> None:
        # Worked out once: a cluster has tens of thousands of these, and each is asked several times.
        at, records = self._worked_out()
        object.__setattr__(self, "reading_offset", at)
        object.__setattr__(self, "records", records)

    def _worked_out(self) -> tuple[int | None, int | None]:
        at, bounds = self.committed_offset, self.bounds
        if at is None or isinstance(bounds, PartitionError):
            return None, None
        end = bounds.end_offset
        # By hand rather than with min and max: these lines are most of what describing a large cluster costs.
        if at < bounds.beginning_offset:
            at = bounds.beginning_offset
        elif at > end:
            at = end
        first, counted = self.first_unread, self.counted
        if first is None:
            return at, end - at if counted is None else counted.records
        if isinstance(first, NothingUnread):
            return at, 0
        behind = max(end - max(at, first.offset), 0)
        return at, behind if counted is None else min(counted.records, behind)

    @property
    def is_exact(self) -> bool:
        """Whether :attr:`records` is the number of unread records, rather than an upper bound."""
        return not self.records or (self.counted is not None and self.counted.is_exact)

    @property
    def open_records(self) -> int | None:
        """How many records are behind the last stable offset, at most; ``None`` if that is not known."""
        if self.counted is not None:
            return self.counted.open
        return 0 if self.reading_offset is not None and self.reading_offset == self.end_offset else None

    def time_ms(self, now_ms: int) -> int | None:
        """For how long the first unread record has been waiting; ``None`` if nobody looked it up."""
        if not self.records:
            return self.records
        if isinstance(self.first_unread, Unread):
            # A record's timestamp is its producer's, whose clock may be ahead.
            return max(now_ms - self.first_unread.timestamp_ms, 0)
        return None

    @property
    def in_flight(self) -> int | None:
        """How many of the unread records are being read now, about; ``None`` if nobody can say how many are unread.

        >>> PartitionLag(TopicPartition("flights", 0), 10, Bounds(0, 15), reading_until=13).in_flight
        3
        """
        if self.reading_offset is None or self.records is None:
            return None
        return min(max(self.reading_until - self.reading_offset, 0), self.records)

    @property
    def end_offset(self) -> int | None:
        """Where the partition ends; ``None`` if nobody knows."""
        return self.bounds.end_offset if isinstance(self.bounds, Bounds) else None

    @property
    def lost_records(self) -> int:
        """How many offsets after the committed one are gone for good."""
        if self.committed_offset is None or isinstance(self.bounds, PartitionError):
            return 0
        return max(self.bounds.beginning_offset - self.committed_offset, 0)

    @property
    def trouble(self) -> PartitionError | None:
        """What is wrong with the committed offset, if anything."""
        if isinstance(self.bounds, PartitionError):
            return self.bounds
        if self.lost_records:
            return PartitionError.EXPIRED
        if self.committed_offset is not None and self.committed_offset > self.bounds.end_offset:
            return PartitionError.PAST_END
        return None


def total(values: list[int | None]) -> int | None:
    """The sum of what is known; ``None`` if nothing is.

    >>> total([1, None, 2]), total([None]), total([])
    (3, None, 0)
    """
    known = [value for value in values if value is not None]
    return sum(known) if known or not values else None
