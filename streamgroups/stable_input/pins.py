"""Decides which pinned records a batch uses, and which ranges it computes.

Called by ``streamgroups_spark.stable_input`` on the driver, before a side effect. A *pin* names the stored records of the
offsets ``[from, to)`` of one partition. A pin file contains the pins of one batch. The batch that runs can have other
boundaries than the batch that has pinned: a replay is smaller if the group has moved partitions, and the next owner of a
partition begins at the same offset with another end. So the decision is made offset by offset.

Of pins that overlap, the one with the highest generation of the group is used. Each owner pins its whole batch before an
effect, also the ranges that it has found pinned: with the same records, and in its own generation. Then the broker confirms
its membership (``streamgroups_spark.stable_input``). So a later owner, which has a higher generation, finds these pins and
continues with their records. A pin of a zombie, which no owner has found, has a lower generation than theirs.

A group that was deleted counts its generations from 1 again. So a member that the broker does not confirm deletes its pins. Only
if it is killed before, its pins with a higher generation remain, and the next owner of the new group uses their records. Source:
SEMANTICS X7, S11.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.file_names import StateFileName


@dataclass(frozen=True, slots=True, order=True)
class RecordSegment:
    """Stored records of one partition, from one task.

    Args:
        file: the file of records.
        number: the number of the segment in the file.
        rows: how many rows it has.
    """

    file: StateFileName
    number: int
    rows: int


@dataclass(frozen=True, slots=True)
class Pin:
    """The stored records of a range. Without segments the range has no rows: a filter has removed them.

    Args:
        range: the offsets.
        identity: the topic of the partition.
        segments: the records.
    """

    range: OffsetRange
    identity: TopicIdentity = UNKNOWN
    segments: tuple[RecordSegment, ...] = ()


@dataclass(frozen=True, slots=True)
class PinFile:
    """The pins of one batch.

    Args:
        file: the name of the file.
        group_id: the group of the query.
        name: the name of the effect.
        generation: the generation of the group, or the member epoch (KIP-848), in which the batch was pinned.
        columns: the columns of the records, as text.
        pins: the pins, at most one for each range.
    """

    file: StateFileName
    group_id: str
    name: str
    generation: int
    columns: str
    pins: tuple[Pin, ...]

    @property
    def record_files(self) -> frozenset[StateFileName]:
        """The files of its records."""
        return frozenset(segment.file for pin in self.pins for segment in pin.segments)


@dataclass(frozen=True, slots=True)
class PinnedPart:
    """A part of a batch whose records are pinned.

    Args:
        range: the offsets of the part.
        pin: the pin. Its range can be larger.
        origin: the file of the pin.
    """

    range: OffsetRange
    pin: Pin
    origin: PinFile


@dataclass(frozen=True, slots=True)
class Cover:
    """A batch, divided into pinned and new ranges.

    Args:
        pinned: the parts with pinned records, by partition and offset.
        new: the ranges to compute, by partition and offset.
    """

    pinned: tuple[PinnedPart, ...]
    new: tuple[OffsetRange, ...]

    def pins(
        self,
        segments: Mapping[TopicPartition, tuple[RecordSegment, ...]],
        identities: Mapping[TopicPartition, TopicIdentity],
    ) -> tuple[Pin, ...]:
        """The pins of the whole batch, by partition and offset.

        Args:
            segments: the records of the new ranges. A partition without segments has no rows in them.
            identities: the topics of the new ranges.
        """
        found = [Pin(part.range, part.pin.identity, part.pin.segments) for part in self.pinned]
        for it in self.new:
            tp = it.topic_partition
            found.append(Pin(it, identities.get(tp, UNKNOWN), segments.get(tp, ())))
        return tuple(sorted(found, key=lambda pin: pin.range))


def cover(
    ranges: Iterable[OffsetRange],
    files: Iterable[PinFile],
    identities: Mapping[TopicPartition, TopicIdentity],
) -> Cover:
    """Divides the ranges of a batch.

    Args:
        ranges: the ranges that the batch reads.
        files: all pin files of the effect.
        identities: the topics of the ranges. A pin of another cluster, or of an earlier topic of the same name, is left
            out: it has the records of other offsets.

    >>> p0, name = TopicPartition("orders", 0), StateFileName(1732334879123, "1f3a9c2b7d10", 17, 0)
    >>> file = PinFile(name, "billing", "effect", 3, "", (Pin(OffsetRange(p0, 100, 200)),))
    >>> found = cover([OffsetRange(p0, 150, 300)], [file], {})
    >>> [str(part.range) for part in found.pinned], [str(r) for r in found.new]
    (['orders-0[150,200)'], ['orders-0[200,300)'])
    """
    by_partition: dict[TopicPartition, list[tuple[PinFile, Pin]]] = {}
    for file in sorted(files, key=lambda it: (it.generation, it.file), reverse=True):
        for pin in file.pins:
            tp = pin.range.topic_partition
            if not pin.identity.differs_from(identities.get(tp, UNKNOWN)):
                by_partition.setdefault(tp, []).append((file, pin))
    pinned: list[PinnedPart] = []
    new: list[OffsetRange] = []
    for it in ranges:
        rest = [it] if len(it) else []
        for file, pin in by_partition.get(it.topic_partition, []):
            found = [both for r in rest if (both := _both(r, pin.range)) is not None]
            pinned += [PinnedPart(both, pin, file) for both in found]
            rest = [left for r in rest for left in _without(r, pin.range)]
        new += rest
    return Cover(tuple(sorted(pinned, key=lambda part: part.range)), tuple(sorted(new)))


def _both(one: OffsetRange, other: OffsetRange) -> OffsetRange | None:
    next_offset, end_offset = max(one.next_offset, other.next_offset), min(one.end_offset, other.end_offset)
    return OffsetRange(one.topic_partition, next_offset, end_offset) if next_offset < end_offset else None


def _without(one: OffsetRange, other: OffsetRange) -> list[OffsetRange]:
    if _both(one, other) is None:
        return [one]
    before = OffsetRange(one.topic_partition, one.next_offset, max(one.next_offset, other.next_offset))
    after = OffsetRange(one.topic_partition, min(one.end_offset, other.end_offset), one.end_offset)
    return [left for left in (before, after) if len(left)]
