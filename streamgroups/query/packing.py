"""Assigns ranges to tasks: long ranges are split, short ranges are packed together.

Called for every batch by ``streamgroups.query.micro_batches``, and by ``streamgroups_spark.source.readers`` for
batch reads. A Python task takes tens of milliseconds before its first record. Eight short ranges in eight tasks
therefore take twice the trigger time of the same ranges in one task. Source: SEMANTICS S4; Spark's options
``minPartitions`` and ``maxRecordsPerPartition`` (SPARK-23541, SPARK-49259).
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamgroups.partitions import OffsetRange, TopicPartition

#: Below this number of offsets and of bytes, another task costs more than it saves. A task starts in about 30 ms, and
#: the operators after the reader take some microseconds per record.
SMALL_TASK_OFFSETS = 15_000
SMALL_TASK_BYTES = 8 * 1024 * 1024

_NOT_KNOWN: Mapping[TopicPartition, float] = {}


@dataclass(frozen=True, slots=True)
class Packing:
    """How ranges are packed into tasks.

    Args:
        cores: the number of tasks that can run at once, and the maximum unless another option requires more.
        min_tasks: the minimum number of tasks, if there are as many offsets (``minPartitions``).
        max_task_offsets: the maximum number of offsets of a task (``maxRecordsPerPartition``).
    """

    cores: int
    min_tasks: int | None = None
    max_task_offsets: int | None = None


def pack(
    ranges: Iterable[OffsetRange], packing: Packing, record_bytes: Mapping[TopicPartition, float] = _NOT_KNOWN
) -> tuple[tuple[OffsetRange, ...], ...]:
    """Tasks that together read exactly the ranges, each offset once, with about the same number of bytes in each.

    A range is split only if an option requires it. A split partition arrives in several tasks, so its order is kept
    only within each of them.

    Args:
        ranges: the ranges to read.
        packing: how ranges are packed into tasks.
        record_bytes: the average record size of a partition, where it is known. Elsewhere the mean of the known sizes
            applies.

    >>> from streamgroups.partitions import TopicPartition
    >>> eight_short = [OffsetRange(TopicPartition("t", p), 0, 100) for p in range(8)]
    >>> [len(task) for task in pack(eight_short, Packing(cores=2))]
    [8]
    >>> eight_long = [OffsetRange(TopicPartition("t", p), 0, 1_000_000) for p in range(8)]
    >>> [len(task) for task in pack(eight_long, Packing(cores=2))]
    [4, 4]
    >>> photos = {TopicPartition("t", 0): 300_000.0, TopicPartition("t", 1): 100.0}
    >>> [len(task) for task in pack(eight_short, Packing(cores=2), photos)]
    [4, 4]
    """
    pieces = sorted(r for r in ranges if len(r))
    if not pieces:
        return ()
    total = sum(map(len, pieces))
    weigh = _Scales(record_bytes)
    worth = max(-(-total // SMALL_TASK_OFFSETS), weigh.tasks_worth(pieces))
    required = min(packing.cores, worth, len(pieces))
    if packing.max_task_offsets is not None:
        most = packing.max_task_offsets
        pieces = [part for r in pieces for part in split(r, -(-len(r) // most))]
        required = max(required, -(-total // most))
    if packing.min_tasks is not None:
        pieces = _split_to(pieces, packing.min_tasks, weigh)
        required = max(required, min(packing.min_tasks, len(pieces)))
    return _fill(pieces, required, packing.max_task_offsets, weigh)


def with_empty(
    tasks: Sequence[tuple[OffsetRange, ...]], empty: Sequence[OffsetRange], packing: Packing
) -> tuple[tuple[OffsetRange, ...], ...]:
    """Adds ranges without offsets to tasks, where an operator with state runs without new records.

    Args:
        tasks: the tasks.
        empty: the ranges to add.
        packing: without tasks, at most this number of cores is used.

    >>> from streamgroups.partitions import TopicPartition
    >>> p = [OffsetRange(TopicPartition("t", number), 5, 5) for number in range(3)]
    >>> [len(task) for task in with_empty((), p, Packing(cores=2))]
    [2, 1]
    """
    count = len(tasks) or min(packing.cores, len(empty))
    return tuple(tuple(sorted((*(tasks[i] if tasks else ()), *empty[i::count]))) for i in range(count))


def pack_together(
    units: Collection[tuple[OffsetRange, ...]],
    packing: Packing,
    record_bytes: Mapping[TopicPartition, float] = _NOT_KNOWN,
) -> tuple[tuple[OffsetRange, ...], ...]:
    """Tasks that read units of ranges, each unit in one task, with about the same number of bytes in each.

    Args:
        units: the ranges that one task must read. A range can have no offsets.
        packing: the number of cores.
        record_bytes: see :func:`pack`.

    >>> from streamgroups.partitions import TopicPartition
    >>> units = [tuple(OffsetRange(TopicPartition(t, p), 0, 20_000) for t in ("a", "b")) for p in range(3)]
    >>> [[str(r) for r in task] for task in pack_together(units, Packing(cores=2))]
    [['a-0[0,20000)', 'a-2[0,20000)', 'b-0[0,20000)', 'b-2[0,20000)'], ['a-1[0,20000)', 'b-1[0,20000)']]
    """
    if not units:
        return ()
    ranges = [r for unit in units for r in unit]
    weigh = _Scales(record_bytes)
    worth = max(-(-sum(map(len, ranges)) // SMALL_TASK_OFFSETS), weigh.tasks_worth(ranges), 1)
    tasks: list[list[OffsetRange]] = [[] for _ in range(min(packing.cores, worth, len(units)))]
    by_weight = [(0.0, i) for i in range(len(tasks))]
    for weight, unit in sorted((-sum(map(weigh, unit)), unit) for unit in units):
        before, lightest = by_weight[0]
        tasks[lightest] += unit
        heapq.heapreplace(by_weight, (before - weight, lightest))
    return tuple(tuple(sorted(task)) for task in tasks if task)


class _Scales:
    """The weight of a range: bytes if a record size is known, otherwise offsets."""

    def __init__(self, record_bytes: Mapping[TopicPartition, float]) -> None:
        self._record_bytes = record_bytes
        self._else = sum(record_bytes.values()) / len(record_bytes) if record_bytes else 1.0

    def __call__(self, piece: OffsetRange) -> float:
        return len(piece) * self._record_bytes.get(piece.topic_partition, self._else)

    def tasks_worth(self, pieces: Iterable[OffsetRange]) -> int:
        """The number of tasks that these bytes justify; 0 if no record size is known."""
        return math.ceil(sum(map(self, pieces)) / SMALL_TASK_BYTES) if self._record_bytes else 0


def split(offset_range: OffsetRange, parts: int) -> list[OffsetRange]:
    """Splits a range into ``parts`` ranges (at most its length) of nearly equal length.

    >>> from streamgroups.partitions import TopicPartition
    >>> [str(r) for r in split(OffsetRange(TopicPartition("t", 0), 0, 10), 3)]
    ['t-0[0,3)', 't-0[3,6)', 't-0[6,10)']
    """
    parts = max(1, min(parts, len(offset_range)))
    first, length = offset_range.next_offset, len(offset_range)
    cuts = [first + length * i // parts for i in range(parts + 1)]
    return [OffsetRange(offset_range.topic_partition, a, b) for a, b in itertools.pairwise(cuts)]


def _split_to(pieces: Sequence[OffsetRange], least: int, weigh: _Scales) -> list[OffsetRange]:
    """Splits the heaviest pieces until there are ``least`` pieces, or until no piece can be split."""
    parts = [1] * len(pieces)
    heaviest = [(-weigh(piece), i) for i, piece in enumerate(pieces) if len(piece) > 1]
    heapq.heapify(heaviest)
    for _ in range(least - len(pieces)):
        if not heaviest:
            break
        _, i = heapq.heappop(heaviest)
        parts[i] += 1
        if len(pieces[i]) > parts[i]:
            heapq.heappush(heaviest, (-weigh(pieces[i]) / parts[i], i))
    return [part for piece, n in zip(pieces, parts, strict=True) for part in split(piece, n)]


def _fill(
    pieces: Sequence[OffsetRange], required: int, max_offsets: int | None, weigh: _Scales
) -> tuple[tuple[OffsetRange, ...], ...]:
    """Assigns the heaviest piece first, each to the lightest task with enough room, or to a new task."""
    tasks: list[list[OffsetRange]] = [[] for _ in range(required)]
    offsets = [0] * required
    by_weight = [(0.0, i) for i in range(required)]
    #: Tasks without enough room for an earlier piece, those with most room first: the room as a negative number, and the weight.
    by_room: list[tuple[int, float, int]] = []
    for piece in sorted(pieces, key=lambda r: (-weigh(r), r)):
        if max_offsets is not None:
            while by_room and -by_room[0][0] >= len(piece):
                _, weight, i = heapq.heappop(by_room)
                heapq.heappush(by_weight, (weight, i))
            while by_weight and (held := offsets[by_weight[0][1]]) and held + len(piece) > max_offsets:
                weight, i = heapq.heappop(by_weight)
                heapq.heappush(by_room, (held - max_offsets, weight, i))
        if not by_weight:
            by_weight = [(0.0, len(tasks))]
            tasks.append([])
            offsets.append(0)
        weight, i = by_weight[0]
        tasks[i].append(piece)
        offsets[i] += len(piece)
        heapq.heapreplace(by_weight, (weight + weigh(piece), i))
    return tuple(tuple(sorted(task)) for task in tasks if task)
