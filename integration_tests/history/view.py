"""The events of a history by partition: what all checks read. Created by :mod:`~integration_tests.history.checker`."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from integration_tests.history.events import (
    Acknowledged,
    Event,
    Gap,
    Moved,
    Position,
    Reset,
    StateWritten,
    Workload,
    Written,
    name_of,
)
from streamgroups.partitions import OffsetRange, TopicPartition

_E = TypeVar("_E", bound=Event)


@dataclass(frozen=True, slots=True)
class PartitionReset:
    """A reset of one partition.

    Args:
        number: the number of the reset.
        next_offset: its target.
        requested_ms: when it was requested.
        end_offset: the end of the partition when all members had applied it, or at the end of the history: no later record
            was read before it.
    """

    number: int
    next_offset: int
    requested_ms: int
    end_offset: int


class History:
    """A history.

    Args:
        events: its events, in the order of their times.

    Raises:
        ValueError: if it does not have exactly one workload, or watermarks without a delay.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        workloads = [it for it in events if isinstance(it, Workload)]
        if len(workloads) != 1:
            raise ValueError(f"a history has one workload, and this one has {len(workloads)}")
        self.workload = workloads[0]
        if self.records(StateWritten) and self.workload.delay_ms is None:
            raise ValueError("a history with watermarks has the delay of the watermark")

    def of(self, event_class: type[_E]) -> Iterator[_E]:
        """All events of a class, in the order of their times. Those of another group are left out."""
        for it in self.events:
            if isinstance(it, event_class) and getattr(it, "group", self.workload.group) == self.workload.group:
                yield it

    def records(self, *event_classes: type[Event]) -> bool:
        """Whether the history contains all events of these classes."""
        return all(name_of(it) in self.workload.recorded for it in event_classes)

    @cached_property
    def partitions(self) -> list[TopicPartition]:
        """The partitions of the input."""
        return sorted({it.topic_partition for it in self.of(Acknowledged)})

    @cached_property
    def acknowledged(self) -> dict[TopicPartition, list[int]]:
        """The offsets of all acknowledged records, ascending."""
        found: defaultdict[TopicPartition, set[int]] = defaultdict(set)
        for it in self.of(Acknowledged):
            found[it.topic_partition].update(it.offsets)
        return {tp: sorted(offsets) for tp, offsets in found.items()}

    @cached_property
    def written(self) -> dict[tuple[str, TopicPartition], list[int]]:
        """The offsets of the records in each sink, in the order of their commits."""
        found: defaultdict[tuple[str, TopicPartition], list[int]] = defaultdict(list)
        for it in self.of(Written):
            found[it.sink, it.topic_partition] += it.offsets
        return dict(found)

    def sink(self, sink: str, topic_partition: TopicPartition) -> list[int]:
        """The offsets of the records of one partition in one sink, in the order of their commits."""
        return self.written.get((sink, topic_partition), [])

    @cached_property
    def final(self) -> dict[TopicPartition, int]:
        """The last observed position of each partition."""
        found: dict[TopicPartition, int] = {}
        for it in self.of(Position):
            found.update(it.offsets)
        return found

    @cached_property
    def resets(self) -> dict[TopicPartition, list[PartitionReset]]:
        """The resets of each partition, in the order of their requests."""
        applied = {it.number: it.time_ms for it in self.of(Reset) if it.phase == "applied"}
        found: defaultdict[TopicPartition, list[PartitionReset]] = defaultdict(list)
        for it in self.of(Reset):
            if it.phase == "requested":
                for tp, n in it.offsets.items():
                    end = self.end_offset_at(tp, applied.get(it.number))
                    found[tp].append(PartitionReset(it.number, n, it.time_ms, end))
        return dict(found)

    def end_offset_at(self, topic_partition: TopicPartition, time_ms: int | None) -> int:
        """The offset after the last record that was acknowledged until a time; ``None``: until the end of the history."""
        own = (it for it in self.of(Acknowledged) if it.topic_partition == topic_partition)
        return max((n + 1 for it in own if time_ms is None or it.time_ms <= time_ms for n in it.offsets), default=0)

    @cached_property
    def excused(self) -> dict[TopicPartition, list[OffsetRange]]:
        """The ranges that do not exist any more, or that a reset has skipped, by partition."""
        found: defaultdict[TopicPartition, list[OffsetRange]] = defaultdict(list)
        for gap in self.of(Gap):
            for r in gap.ranges:
                found[r.topic_partition].append(r)
        for moved in self.of(Moved):
            for r in moved.ranges:
                if moved.offsets.get(r.topic_partition) == r.end_offset:
                    found[r.topic_partition].append(r)
        return dict(found)

    def is_excused(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Whether a record does not exist any more, or a reset has skipped it."""
        return covers(self.excused.get(topic_partition, ()), offset)

    def acknowledged_in(self, topic_partition: TopicPartition, next_offset: int, end_offset: int) -> list[int]:
        """The acknowledged offsets of a range."""
        offsets = self.acknowledged.get(topic_partition, [])
        return offsets[bisect_left(offsets, next_offset) : bisect_left(offsets, end_offset)]


def covers(ranges: Iterable[OffsetRange], offset: int) -> bool:
    """Whether one of the ranges contains an offset."""
    return any(r.next_offset <= offset < r.end_offset for r in ranges)
