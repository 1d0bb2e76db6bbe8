"""Topic partitions and ranges of offsets.

Used by the whole domain and by all connectors. Offsets follow Kafka's convention: a range is ``[next_offset,
end_offset)``. Its length is an upper bound for the number of its records, since offsets are not dense. Source:
SEMANTICS G13.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from streamgroups.errors import InvalidOption

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition of a topic.

    >>> str(TopicPartition("flights", 3))
    'flights-3'
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(entries: Iterable[tuple[TopicPartition, _T]]) -> dict[str, list[_T]]:
    """Groups entries of partitions by topic, as Kafka's requests do.

    >>> by_topic([(TopicPartition("a", 2), 20), (TopicPartition("b", 0), 0), (TopicPartition("a", 1), 10)])
    {'a': [20, 10], 'b': [0]}
    """
    found: dict[str, list[_T]] = {}
    for tp, entry in entries:
        found.setdefault(tp.topic, []).append(entry)
    return found


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets ``[next_offset, end_offset)`` of one partition.

    Args:
        topic_partition: the partition.
        next_offset: the first offset to read.
        end_offset: the first offset after the range.

    Raises:
        InvalidOption: if the range begins before 0, or ends before it begins.

    >>> r = OffsetRange(TopicPartition("flights", 3), 10, 25)
    >>> len(r), str(r)
    (15, 'flights-3[10,25)')
    """

    topic_partition: TopicPartition
    next_offset: int
    end_offset: int

    def __post_init__(self) -> None:
        if not 0 <= self.next_offset <= self.end_offset:
            raise InvalidOption(
                f"{self.topic_partition}: [{self.next_offset}, {self.end_offset}) is not a range of offsets.",
                remedy="A range begins at 0 or later and does not end before it begins.",
            )

    def __len__(self) -> int:
        return self.end_offset - self.next_offset

    def __str__(self) -> str:
        return f"{self.topic_partition}[{self.next_offset},{self.end_offset})"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The earliest offset and the end of a partition.

    Args:
        beginning_offset: the earliest offset.
        end_offset: the offset after the last record that a reader may read (the last stable offset under
            ``read_committed``).
    """

    beginning_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class LogEnds:
    """The ends of the logs of partitions, as of one response of their leaders.

    Args:
        offsets: the offset after the last record that a reader may read.
        leader_epochs: the epoch of the leader that responded: no record before the offset has a greater one. Partitions whose
            leader returned none are left out.
    """

    offsets: Mapping[TopicPartition, int]
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StampedOffset:
    """An offset and the timestamp of its record, in milliseconds since the epoch; ``None`` if the record has none."""

    offset: int
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """The brokers of one partition.

    Args:
        partition: its number.
        replicas: the ids of the brokers that store it.
        has_leader: whether one of them is its leader.
    """

    partition: int
    replicas: tuple[int, ...]
    has_leader: bool = True


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic.

    Args:
        name: its name.
        partitions: its partitions, by number.
    """

    name: str
    partitions: tuple[PartitionDescription, ...]
