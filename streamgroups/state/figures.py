"""Figures about states: their sizes, and the work of tasks for them.

Tasks report them (``streamgroups_spark.state.stage``), and ``sg.reports.MetricsListener`` exports those of the last batch.
Source: SEMANTICS S10, O3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from streamgroups.partitions import TopicPartition
from streamgroups.state.manifest import PartitionState


@dataclass(frozen=True, slots=True)
class StateSize:
    """The size of the state of a partition.

    Args:
        rows: its rows.
        row_bytes: their bytes, uncompressed.
        files: the number of files that contain them.
    """

    rows: int = 0
    row_bytes: int = 0
    files: int = 0

    @classmethod
    def of(cls, state: PartitionState) -> StateSize:
        """The size of a state.

        >>> from streamgroups.identity import UNKNOWN
        >>> from streamgroups.partitions import OffsetRange
        >>> StateSize.of(PartitionState(OffsetRange(TopicPartition("flights", 0), 0, 5), 0, UNKNOWN))
        StateSize(rows=0, row_bytes=0, files=0)
        """
        segments = [segment for part in state.parts.values() for segment in part]
        return cls(sum(it.rows for it in segments), sum(it.row_bytes for it in segments), len(state.files))


def sum_of_sizes(sizes: Iterable[StateSize]) -> StateSize:
    """The size of the states of several operators, for one partition.

    >>> sum_of_sizes([StateSize(1, 10, 1), StateSize(2, 30, 2)])
    StateSize(rows=3, row_bytes=40, files=3)
    """
    found = list(sizes)
    return StateSize(sum(it.rows for it in found), sum(it.row_bytes for it in found), sum(it.files for it in found))


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """The work of one task for its states.

    Args:
        read_files: the number of state files that it has read.
        read_bytes: their bytes.
        load_s: the duration of these reads, in seconds.
        written_rows: the rows that it has added.
        written_bytes: the bytes of its state file.
        write_s: the duration of the write, in seconds.
        direct_records: the records that its operator has received directly from the reader. Spark has passed the others.
    """

    read_files: int = 0
    read_bytes: int = 0
    load_s: float = 0.0
    written_rows: int = 0
    written_bytes: int = 0
    write_s: float = 0.0
    direct_records: int = 0


def total(tasks: Collection[TaskFigures]) -> TaskFigures:
    """The work of all tasks of a batch. Durations are those of the slowest task, because tasks run in parallel.

    >>> total([TaskFigures(1, 10, 0.5, direct_records=7), TaskFigures(2, 30, 0.25)])
    TaskFigures(read_files=3, read_bytes=40, load_s=0.5, written_rows=0, written_bytes=0, write_s=0.0, direct_records=7)
    """
    return TaskFigures(
        sum(it.read_files for it in tasks),
        sum(it.read_bytes for it in tasks),
        max((it.load_s for it in tasks), default=0.0),
        sum(it.written_rows for it in tasks),
        sum(it.written_bytes for it in tasks),
        max((it.write_s for it in tasks), default=0.0),
        sum(it.direct_records for it in tasks),
    )


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """The states of a query after its last batch.

    Args:
        sizes: the sizes of the states that this run of the query has written, of the partitions that it owns.
        work: the work of all tasks of the batch.
    """

    sizes: Mapping[TopicPartition, StateSize]
    work: TaskFigures
