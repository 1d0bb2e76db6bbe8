"""Topic partitions and ranges of offsets: the nouns every other module speaks in.

Used by the whole domain and by all connectors. Offsets follow Kafka's convention: a range is ``[next_offset, end_offset)``,
so its length is an upper bound for the number of records in it (SEMANTICS G13: offsets are not dense).
"""

from __future__ import annotations

from dataclasses import dataclass

from streamgroups.errors import InvalidOption


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one topic.

    >>> str(TopicPartition("flights", 3))
    'flights-3'
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets ``[next_offset, end_offset)`` of one partition.

    Args:
        topic_partition: where.
        next_offset: the first offset to read.
        end_offset: the first offset not to read.

    Raises:
        InvalidOption: if the range is negative in place or length.

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
    """Where a partition begins and ends.

    Args:
        beginning_offset: the oldest offset that is still there.
        end_offset: the offset after the last record a reader may see (the last stable one under ``read_committed``).
    """

    beginning_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """Where one partition lives.

    Args:
        partition: its number.
        leader: the id of the broker that leads it; ``None`` while there is none.
        replicas: the ids of the brokers that keep it.
        in_sync: those of them that are up to date.
    """

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic.

    Args:
        name: its name.
        topic_id: its id, which a topic made anew under the same name does not share (KIP-516).
        internal: whether it is one of Kafka's own.
        partitions: its partitions, by number.
    """

    name: str
    topic_id: str
    internal: bool
    partitions: tuple[PartitionDescription, ...]
