"""Writes the output of one task in a micro-batch, from Arrow data to the partitions of a topic.

``streamgroups_spark.sinks.kafka`` calls it in Spark's Python workers. It selects the partition of each record as
Kafka's producer does: the partition column, else the hash of the key, else a partition reserved for this task. Then it
encodes and writes the records. In a transaction, two tasks must not write to one partition. Each task returns its
partitions, and the driver compares them (:func:`written_twice`). Two attempts of one task differ in their first batches
(``write.first_cut``). Source: KIP-98; the columns of Spark's Kafka sink; Kafka's ``BuiltInPartitioner``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import takewhile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.errors import InvalidOption, RecordRejected, UnknownTopic
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.client.clock import now_ms
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.free_memory import return_free_memory
from streamgroups_kafka.transactions.transaction_requests import OpenTransaction
from streamgroups_kafka.transactions.writer import RejectedBatch, TransactionWriter
from streamgroups_kafka.write.encoder import EncodedBatch
from streamgroups_kafka.write.first_cut import FirstCut, random_number, waiting
from streamgroups_kafka.write.partitioner import partitions_of_keys
from streamgroups_kafka.write.record_batches import BatchSettings, encode

#: The size of one encoded chunk. It fills a batch for each of several partitions, and fits into the memory of a worker.
_CHUNK_BYTES = 8 << 20
#: The column with the number of a row in its task.
_NUMBER = "streamgroups.row"
#: The column ``partition`` of the user. The one with the selected partitions replaces it.
_GIVEN = "streamgroups.partition"


@dataclass(frozen=True, slots=True)
class OutputSettings:
    """The settings of an output.

    Args:
        topic: the topic of all records; ``None`` if each record has its own in a column ``topic``.
        batches: the settings of record batches.
        with_headers: whether to write the column ``headers``.
        tasks: the usual number of tasks. A task writes records without key and partition to every ``tasks``-th
            partition.
    """

    topic: str | None = None
    batches: BatchSettings = field(default_factory=BatchSettings)
    with_headers: bool = True
    tasks: int = 1


@dataclass(frozen=True, slots=True)
class Written:
    """The result of one task.

    Args:
        task: the number of the task in the batch.
        partitions: the partitions that it has written to.
        records: the number of records.
    """

    task: int
    partitions: frozenset[TopicPartition]
    records: int


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """A record that a broker rejects, or would reject.

    Args:
        topic: its topic.
        row: the record, with the columns of the Kafka sink. ``partition`` is that of the user: a replay can select another one.
        error: the error. It contains the number of the row in the task, its partition, and the reason of the broker.
        is_too_large: whether the broker rejects its size.
    """

    topic: str
    row: pa.RecordBatch
    error: RecordRejected
    is_too_large: bool


def written_twice(parts: Iterable[Written]) -> frozenset[TopicPartition]:
    """Partitions that more than one task has written to: the broker cannot distinguish their batches.

    >>> p0, p1 = TopicPartition("out", 0), TopicPartition("out", 1)
    >>> written_twice([Written(0, frozenset({p0, p1}), 5), Written(1, frozenset({p1}), 5)])
    frozenset({TopicPartition(topic='out', partition=1)})
    """
    seen: set[TopicPartition] = set()
    twice: set[TopicPartition] = set()
    for part in parts:
        twice |= seen & part.partitions
        seen |= part.partitions
    return frozenset(twice)


def write_records(
    records: Iterator[pa.RecordBatch],
    config: ClientConfig,
    settings: OutputSettings,
    transaction: OpenTransaction | None,
    *,
    task: int,
    reject: Callable[[RejectedRecord], None] | None = None,
    corrected: Callable[[], pa.RecordBatch | None] | None = None,
) -> Written:
    """Writes the records of one task, and returns when the brokers have acknowledged all of them.

    Args:
        records: record batches with the columns of Spark's Kafka sink.
        config: the configuration of the client.
        settings: the settings of the output.
        transaction: the transaction of the driver; ``None`` to write at least once, without a transaction.
        task: the number of the task in the batch.
        reject: receives the records that a broker rejects, or that are too large after compression. All others are written.
            ``None``: the first one is an error.
        corrected: returns records to write in place of the rejected ones, with the same columns. It is called after all others are
            written, and again until it returns ``None``. Only this call can write them: another one cannot write to the same
            partitions in the transaction.

    Raises:
        RecordRejected: if a record cannot be written. The error identifies the record.
        UnknownTopic: if a topic or partition does not exist.
        StreamGroupsError: see :meth:`streamgroups_kafka.transactions.writer.TransactionWriter.write`.
    """
    chunks = _chunks(records)
    first = next(chunks, None)
    if first is None:
        return Written(task, frozenset(), 0)
    _, is_last = first
    with closing(TransactionWriter(config, transaction)) as writer:
        output = _Output(writer, settings, task, reject, is_shared=transaction is not None)
        output.add(*first)
        for chunk in chunks:
            output.add(*chunk)
        while corrected is not None and (again := corrected()) is not None:
            output.add(again, True)
        written = Written(task, output.partitions, output.records)
    if not is_last:
        # More than one chunk.
        return_free_memory()
    return written


def _chunks(records: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Joins the batches of Spark, which have 10,000 rows: fewer large batches cost less to encode and send.

    Yields each chunk, and whether it is the last.
    """
    waiting: list[pa.RecordBatch] = []
    n_bytes = 0
    for batch in records:
        if not batch.num_rows:
            continue
        if n_bytes >= _CHUNK_BYTES:
            yield _joined(waiting), False
            waiting, n_bytes = [], 0
        waiting.append(batch)
        n_bytes += batch.nbytes
    if waiting:
        yield _joined(waiting), True


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class _Output:
    """The output of one task, with its progress."""

    def __init__(
        self,
        writer: TransactionWriter,
        settings: OutputSettings,
        task: int,
        reject: Callable[[RejectedRecord], None] | None,
        *,
        is_shared: bool,
    ) -> None:
        self._writer, self._settings, self._task, self._reject = writer, settings, task, reject
        #: The settings for a topic whose broker accepts only smaller batches.
        self._smaller: dict[str, BatchSettings] = {}
        self._n_rows = 0
        #: For the cuts of first batches, if another attempt of the task can have the same producer identity.
        self._cut_at = random_number() if is_shared else None
        self._counts: dict[str, int] = {}
        #: Rows of each topic that wait for more rows of their partitions.
        self._waiting: dict[str, pa.RecordBatch] = {}
        self._waiting_bytes = 0
        self._round = 0
        self.records = 0
        #: The next sequence number of each partition, by topic.
        self._next_sequences: defaultdict[str, dict[int, int]] = defaultdict(dict)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions to which the task has written."""
        return frozenset(TopicPartition(topic, p) for topic, of_topic in self._next_sequences.items() for p in of_topic)

    def add(self, chunk: pa.RecordBatch, is_last: bool) -> None:
        numbered = chunk.append_column(_NUMBER, pa.array(np.arange(self._n_rows, self._n_rows + chunk.num_rows)))
        self._n_rows += chunk.num_rows
        for topic, rows in _by_topic(numbered, self._settings.topic):
            self._write(topic, self._to_encode(topic, rows), is_last)
        if is_last:
            rest, self._waiting = self._waiting, {}
            for topic, rows in rest.items():
                self._write(topic, rows, is_last)
        self.records += chunk.num_rows
        self._round += 1

    def _to_encode(self, topic: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The columns to encode, with the waiting rows of the topic before the new ones."""
        if topic not in self._counts:
            self._counts[topic] = self._writer.partition_count(topic)
        columns = {"partition": self._partitions(rows, topic, self._counts[topic])}
        required = ("key", "value", "timestamp", *(("headers",) if self._settings.with_headers else ()), _NUMBER)
        columns |= {name: rows.column(name) for name in required if name in rows.schema.names}
        if "partition" in rows.schema.names:
            columns[_GIVEN] = rows.column("partition")
        new = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        if topic not in self._waiting:
            return new
        before = self._waiting.pop(topic)
        self._waiting_bytes -= before.nbytes
        return _joined([before, new])

    def _write(self, topic: str, rows: pa.RecordBatch, is_last: bool) -> None:
        if self._cut_at is not None and not is_last:
            rows = self._without_waiting(topic, rows, self._next_sequences[topic])
        settings = self._smaller.get(topic, self._settings.batches)
        while rows.num_rows:
            too_large: dict[int, RecordRejected] = {}
            batches = encode(
                rows.select([name for name in rows.schema.names if name not in (_NUMBER, _GIVEN)]),
                settings,
                topic=topic,
                now_ms=now_ms(),
                producer=self._writer.producer,
                next_sequences=self._next_sequences[topic],
                cut=None if self._cut_at is None else FirstCut(self._cut_at, is_last),
                too_large=None if self._reject is None else too_large,
            )
            if too_large:
                rows = self._without_too_large(topic, rows, too_large)
                continue
            rejected = self._writer.write(topic, batches)
            self._advance(topic, batches, rejected)
            again = [it for found in rejected for it in self._without_rejected(rows, batches, found)]
            for found in rejected:
                if not found.rejected:
                    # The broker names no record of the batch, so smaller batches find it.
                    n_bytes = max(1, min(settings.batch_bytes, len(found.batch.data)) // 2)
                    settings = replace(settings, batch_bytes=n_bytes)
                    if found.is_too_large:
                        self._smaller[topic] = settings
            rows = rows.take(pa.array(sorted(again), pa.int64()))

    def _advance(self, topic: str, batches: Iterable[EncodedBatch], rejected: Iterable[RejectedBatch]) -> None:
        """Continues the sequence of each partition: after its last batch, or at its rejected one."""
        sequences = self._next_sequences[topic]
        begun = set(sequences)
        for batch in batches:
            assert batch.next_sequence is not None, "it was encoded for a producer"
            sequences[batch.partition] = batch.next_sequence
        for found in rejected:
            assert found.batch.base_sequence is not None, "it was encoded for a producer"
            partition = found.topic_partition.partition
            sequences[partition] = found.batch.base_sequence
            if partition not in begun and found.batch.base_sequence == 0:
                # Its first batch is still to be written, and is cut again.
                del sequences[partition]

    def _without_rejected(
        self, rows: pa.RecordBatch, batches: Iterable[EncodedBatch], found: RejectedBatch
    ) -> list[int]:
        """Reports the rejected rows. Returns the others from the rejected batch on, which the broker has not written."""
        partition = found.topic_partition.partition
        places = np.flatnonzero(rows.column("partition").to_numpy() == partition)
        before = takewhile(lambda it: it is not found.batch, (it for it in batches if it.partition == partition))
        unwritten = places[sum(it.n_records for it in before) :]
        for i in found.rejected:
            self._report(rows.slice(int(unwritten[i]), 1), found, found.reasons.get(i, ""))
        return [int(it) for it in np.delete(unwritten, found.rejected)]

    def _without_too_large(
        self, topic: str, rows: pa.RecordBatch, errors: Mapping[int, RecordRejected]
    ) -> pa.RecordBatch:
        """Reports the rows that are too large also after compression, and returns the others. None is written yet."""
        assert self._reject is not None, "an error was raised otherwise"
        for row, error in errors.items():
            self._reject(RejectedRecord(topic, _as_given(rows.slice(row, 1)), error, is_too_large=True))
        self.records -= len(errors)
        return rows.take(pa.array(np.delete(np.arange(rows.num_rows), list(errors))))

    def _report(self, row: pa.RecordBatch, found: RejectedBatch, reason: str) -> None:
        number = row.column(_NUMBER)[0].as_py()
        why = f" ({' '.join(reason.split()).rstrip('.')})" if reason else ""
        error = RecordRejected(
            f"The broker rejects row {number + 1} of a task: {found.error.what.rstrip('.')}{why}.",
            remedy=found.error.remedy,
        )
        if self._reject is None:
            raise error
        self._reject(RejectedRecord(found.topic_partition.topic, _as_given(row), error, found.is_too_large))
        self.records -= 1

    def _without_waiting(self, topic: str, rows: pa.RecordBatch, begun: Collection[int]) -> pa.RecordBatch:
        """Keeps the rows of partitions that wait, and returns the others."""
        if self._waiting_bytes >= _CHUNK_BYTES:
            return rows
        partitions = rows.column("partition")
        found, counts = np.unique(np.asarray(partitions), return_counts=True)
        wait = waiting(dict(zip(found.tolist(), counts.tolist(), strict=True)), begun)
        if not wait:
            return rows
        is_waiting = pc.is_in(partitions, pa.array(wait, partitions.type))
        self._waiting[topic] = kept = rows.filter(is_waiting)
        self._waiting_bytes += kept.nbytes
        return rows.filter(pc.invert(is_waiting))

    def _partitions(self, rows: pa.RecordBatch, topic: str, count: int) -> pa.Array:
        chosen = pa.nulls(rows.num_rows, pa.int32())
        if "partition" in rows.schema.names:
            chosen = rows.column("partition").cast(pa.int32())
            highest = pc.max(chosen).as_py()
            if highest is not None and highest >= count:
                raise UnknownTopic(
                    f"A record has partition {highest}, but topic '{topic}' has {count} partitions.",
                    remedy="Correct the column 'partition', or add partitions to the topic.",
                )
        if chosen.null_count and "key" in rows.schema.names:
            chosen = pc.coalesce(chosen, partitions_of_keys(rows.column("key"), count))
        return pc.fill_null(chosen, self._own(count)) if chosen.null_count else chosen

    def _own(self, count: int) -> int:
        """A partition that no other task selects, if there are at most ``tasks`` tasks and at most as many as
        partitions.
        """
        own = range(self._task % count, count, max(self._settings.tasks, 1))
        return own[(self._round + self._writer.producer.epoch) % len(own)]


def _as_given(row: pa.RecordBatch) -> pa.RecordBatch:
    """Returns a row with the columns of the user."""
    row = row.drop_columns([_NUMBER, "partition"])
    return row.rename_columns(["partition" if name == _GIVEN else name for name in row.schema.names])


def _by_topic(chunk: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    if topic is not None:
        yield topic, chunk
        return
    if "topic" not in chunk.schema.names:
        raise InvalidOption("The output topic is not set.", remedy="Set the option 'topic', or add a column 'topic'.")
    topics = chunk.column("topic")
    if topics.null_count:
        row = pc.index(pc.is_null(topics), True).as_py()
        raise RecordRejected(f"Row {row} has no topic.", remedy="Fill the column 'topic', or set the option 'topic'.")
    for name in pc.unique(topics).to_pylist():
        yield name, chunk.filter(pc.equal(topics, name))
