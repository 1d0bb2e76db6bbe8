"""Which task reads what: ranges are split where they are long and packed where they are short.

Called by ``streamgroups_spark`` for every batch. A Python task costs tens of milliseconds before its first record, so eight
short ranges in eight tasks cost twice the trigger time of the same ranges in one. Source: SEMANTICS S4; Spark's options
``minPartitions`` and ``maxRecordsPerPartition`` (SPARK-23541, SPARK-49259).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streamgroups.partitions import OffsetRange

#: Below this many offsets a further task costs more than it saves: a task starts in about 30 ms and the plain reader gives
#: about 450 records per millisecond.
SMALL_TASK_OFFSETS = 15_000


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


def pack(ranges: Iterable[OffsetRange], packing: Packing) -> tuple[tuple[OffsetRange, ...], ...]:
    """Tasks that together read exactly the ranges, each offset once.

    A range is only split if the user asked for it: a split partition arrives in several tasks, so its order is kept within
    each of them only.

    >>> from streamgroups.partitions import TopicPartition
    >>> eight_short = [OffsetRange(TopicPartition("t", p), 0, 100) for p in range(8)]
    >>> [len(task) for task in pack(eight_short, Packing(cores=2))]
    [8]
    >>> eight_long = [OffsetRange(TopicPartition("t", p), 0, 1_000_000) for p in range(8)]
    >>> [len(task) for task in pack(eight_long, Packing(cores=2))]
    [4, 4]
    """
    pieces = sorted(r for r in ranges if len(r))
    if not pieces:
        return ()
    total = sum(map(len, pieces))
    wanted = min(packing.cores, -(-total // SMALL_TASK_OFFSETS), len(pieces))
    if packing.max_task_offsets is not None:
        most = packing.max_task_offsets
        pieces = [part for r in pieces for part in split(r, -(-len(r) // most))]
        wanted = max(wanted, -(-total // most))
    if packing.min_tasks is not None:
        pieces = _split_to(pieces, packing.min_tasks)
        wanted = max(wanted, min(packing.min_tasks, len(pieces)))
    return _fill(pieces, wanted, packing.max_task_offsets)


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


def _split_to(pieces: Sequence[OffsetRange], least: int) -> list[OffsetRange]:
    """Splits the longest pieces until there are ``least``, or none can be cut."""
    parts = [1] * len(pieces)
    for _ in range(least - len(pieces)):
        longest = max(range(len(pieces)), key=lambda i: len(pieces[i]) / parts[i])
        if len(pieces[longest]) <= parts[longest]:
            break
        parts[longest] += 1
    return [part for piece, n in zip(pieces, parts, strict=True) for part in split(piece, n)]


def _fill(pieces: Sequence[OffsetRange], wanted: int, most: int | None) -> tuple[tuple[OffsetRange, ...], ...]:
    """Longest piece first, each into the emptiest task; a new task where it would hold too much."""
    tasks: list[list[OffsetRange]] = [[] for _ in range(wanted)]
    sizes = [0] * wanted
    for piece in sorted(pieces, key=lambda r: (-len(r), r)):
        emptiest = min(range(len(tasks)), key=sizes.__getitem__)
        if most is not None and sizes[emptiest] and sizes[emptiest] + len(piece) > most:
            tasks.append([])
            sizes.append(0)
            emptiest = len(tasks) - 1
        tasks[emptiest].append(piece)
        sizes[emptiest] += len(piece)
    return tuple(tuple(sorted(task)) for task in tasks if task)
