"""Which task reads what: ranges are split where they are long and packed where they are short.

Called by ``streamgroups_spark`` for every batch. A Python task costs tens of milliseconds before its first record, so eight
short ranges in eight tasks cost twice the trigger time of the same ranges in one. Source: SEMANTICS S4; Spark's options
``minPartitions`` and ``maxRecordsPerPartition`` (SPARK-23541, SPARK-49259).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamgroups.partitions import OffsetRange, TopicPartition

#: Below this many offsets, and this many bytes, a further task costs more than it saves: a task starts in about 30 ms, and what
#: follows the reader in the same task takes some microseconds per record.
SMALL_TASK_OFFSETS = 15_000
SMALL_TASK_BYTES = 8 * 1024 * 1024

_NOT_KNOWN: Mapping[TopicPartition, float] = {}


@dataclass(frozen=True, slots=True)
class Packing:
    """How to make tasks.

    Args:
        cores: tasks that can run at once; no more are made unless asked for.
        min_tasks: make at least so many where there are as many offsets (``minPartitions``).
        max_task_offsets: give no task more than so many offsets (``maxRecordsPerPartition``).
    """

    cores: int
    min_tasks: int | None = None
    max_task_offsets: int | None = None


def pack(
    ranges: Iterable[OffsetRange], packing: Packing, record_bytes: Mapping[TopicPartition, float] = _NOT_KNOWN
) -> tuple[tuple[OffsetRange, ...], ...]:
    """Tasks that together read exactly the ranges, each offset once, with about as many bytes in each.

    A range is only split if the user asked for it: a split partition arrives in several tasks, so its order is kept within
    each of them only.

    Args:
        ranges: what to read.
        packing: how to make tasks.
        record_bytes: how large a record of a partition is, where that is known. Elsewhere it counts as the mean of those.

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
    wanted = min(packing.cores, worth, len(pieces))
    if packing.max_task_offsets is not None:
        most = packing.max_task_offsets
        pieces = [part for r in pieces for part in split(r, -(-len(r) // most))]
        wanted = max(wanted, -(-total // most))
    if packing.min_tasks is not None:
        pieces = _split_to(pieces, packing.min_tasks, weigh)
        wanted = max(wanted, min(packing.min_tasks, len(pieces)))
    return _fill(pieces, wanted, packing.max_task_offsets, weigh)


class _Scales:
    """What ranges weigh: bytes where a size is known, else offsets."""

    def __init__(self, record_bytes: Mapping[TopicPartition, float]) -> None:
        self._record_bytes = record_bytes
        self._else = sum(record_bytes.values()) / len(record_bytes) if record_bytes else 1.0

    def __call__(self, piece: OffsetRange) -> float:
        return len(piece) * self._record_bytes.get(piece.topic_partition, self._else)

    def tasks_worth(self, pieces: Iterable[OffsetRange]) -> int:
        """How many tasks the bytes are worth; 0 if nothing is known of them."""
        return math.ceil(sum(map(self, pieces)) / SMALL_TASK_BYTES) if self._record_bytes else 0


def split(offset_range: OffsetRange, parts: int) -> list[OffsetRange]:
    """Cuts a range into ``parts`` (at most its length) of nearly equal length.

    >>> from streamgroups.partitions import TopicPartition
    >>> [str(r) for r in split(OffsetRange(TopicPartition("t", 0), 0, 10), 3)]
    ['t-0[0,3)', 't-0[3,6)', 't-0[6,10)']
    """
    parts = max(1, min(parts, len(offset_range)))
    first, length = offset_range.next_offset, len(offset_range)
    cuts = [first + length * i // parts for i in range(parts + 1)]
    return [OffsetRange(offset_range.topic_partition, a, b) for a, b in itertools.pairwise(cuts)]


def _split_to(pieces: Sequence[OffsetRange], least: int, weigh: _Scales) -> list[OffsetRange]:
    """Splits the heaviest pieces until there are ``least``, or none can be cut."""
    parts = [1] * len(pieces)
    for _ in range(least - len(pieces)):
        can_be_cut = [i for i, piece in enumerate(pieces) if len(piece) > parts[i]]
        if not can_be_cut:
            break
        parts[max(can_be_cut, key=lambda i: weigh(pieces[i]) / parts[i])] += 1
    return [part for piece, n in zip(pieces, parts, strict=True) for part in split(piece, n)]


def _fill(
    pieces: Sequence[OffsetRange], wanted: int, max_offsets: int | None, weigh: _Scales
) -> tuple[tuple[OffsetRange, ...], ...]:
    """Heaviest piece first, each into the lightest task that may hold it; a new task where none may."""
    tasks: list[list[OffsetRange]] = [[] for _ in range(wanted)]
    weights, offsets = [0.0] * wanted, [0] * wanted
    for piece in sorted(pieces, key=lambda r: (-weigh(r), r)):
        allowed = [
            i for i, held in enumerate(offsets) if max_offsets is None or not held or held + len(piece) <= max_offsets
        ]
        if not allowed:
            tasks.append([])
            weights.append(0.0)
            offsets.append(0)
            allowed = [len(tasks) - 1]
        lightest = min(allowed, key=weights.__getitem__)
        tasks[lightest].append(piece)
        weights[lightest] += weigh(piece)
        offsets[lightest] += len(piece)
    return tuple(tuple(sorted(task)) for task in tasks if task)
