"""The functions of ``mapInArrow`` that write and read pinned records, in Python workers.

Created by ``stable_input.batches`` on the driver. Source: Spark's ``DataFrame.mapInArrow``;
:mod:`streamgroups_operators.pinned_records`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext

from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.stable_input.pins import Pin, RecordSegment
from streamgroups.state.file_names import StateFileName
from streamgroups_operators.pin_store import reaching, record_files
from streamgroups_operators.pinned_records import RecordFiles, WrittenSegment, read_records, write_records
from streamgroups_spark.internals.pickle_checks import Shipped
from streamgroups_spark.internals.python_worker import prepare_python_worker

#: The output of :class:`WriteRecords`: one row for each segment.
REPORT = "topic string, partition int, attempt bigint, number int, rows bigint"
_REPORT = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("attempt", pa.int64()),
        ("number", pa.int32()),
        ("rows", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Effect:
    """An effect of a group, and where its records are stored.

    Args:
        location: the location. It can contain credentials.
        group_id: the group of the query.
        name: the name of the effect.
    """

    location: str = field(repr=False)
    group_id: str
    name: str


@dataclass(frozen=True)
class Attempts:
    """The names of the files that the tasks of one batch write.

    Args:
        planned_ms: when the batch was pinned, in milliseconds since the epoch.
        run_id: the id of the run of the query.
        batch: Spark's batch id.
    """

    planned_ms: int
    run_id: str
    batch: int

    def file(self, attempt: int) -> StateFileName:
        """The name of the file of an attempt of a task."""
        return StateFileName(self.planned_ms, self.run_id, self.batch, attempt)


class WriteRecords(Shipped):
    """Writes the rows of a task, and returns the segments that it has written.

    Args:
        effect: the effect.
        attempts: the names of the files.
        new: the ranges to write.
        batch: all ranges that the batch reads.
    """

    def __init__(
        self, effect: Effect, attempts: Attempts, new: tuple[OffsetRange, ...], batch: tuple[OffsetRange, ...]
    ) -> None:
        self._effect, self._attempts, self._new, self._batch = effect, attempts, new, batch
        #: Spark shows it in its plan.
        self.__name__ = "streamgroups_pin_records"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_python_worker()
        context = TaskContext.get()
        assert context is not None, "Spark calls this in tasks"
        effect, attempt = self._effect, context.taskAttemptId()
        with reaching(effect.location):
            files = record_files(effect.location, effect.group_id, effect.name)
            written = write_records(files, self._attempts.file(attempt), batches, self._new, self._batch)
        if written:
            rows = [_row(it, attempt) for it in written]
            yield pa.RecordBatch.from_pylist(rows, schema=_REPORT)


def _row(it: WrittenSegment, attempt: int) -> dict[str, str | int]:
    tp, segment = it.topic_partition, it.segment
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "attempt": attempt,
        "number": segment.number,
        "rows": segment.rows,
    }


def segments_in(
    reports: Iterable[tuple[str, int, int, int, int]], attempts: Attempts
) -> dict[TopicPartition, tuple[RecordSegment, ...]]:
    """The segments of each partition, from the rows of :data:`REPORT`.

    >>> attempts = Attempts(1732334879123, "1f3a9c2b7d10", 17)
    >>> found = segments_in([("orders", 0, 42, 1, 12), ("orders", 0, 41, 0, 5)], attempts)
    >>> [(it.file.attempt, it.number, it.rows) for it in found[TopicPartition("orders", 0)]]
    [(41, 0, 5), (42, 1, 12)]
    """
    found: dict[TopicPartition, list[RecordSegment]] = {}
    for topic, partition, attempt, number, rows in reports:
        segment = RecordSegment(attempts.file(attempt), number, rows)
        found.setdefault(TopicPartition(topic, partition), []).append(segment)
    return {tp: tuple(sorted(segments)) for tp, segments in found.items()}


class ReadRecords(Shipped):
    """Reads pinned records. Each row of its input is the number of a pin.

    Args:
        effect: the effect.
        pins: the pins to read.
    """

    def __init__(self, effect: Effect, pins: tuple[Pin, ...]) -> None:
        self._effect, self._pins = effect, pins
        self.__name__ = "streamgroups_pinned_records"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_python_worker()
        effect = self._effect
        with reaching(effect.location):
            files = RecordFiles(record_files(effect.location, effect.group_id, effect.name))
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with reaching(effect.location):
                    rows = read_records(files, self._pins[number], effect.group_id)
                if rows is not None:
                    yield from rows.to_batches()
