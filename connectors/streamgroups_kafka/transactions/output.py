"""One task's share of a micro-batch, from Arrow to a topic's partitions.

Called in Spark's Python workers by ``streamgroups_spark.sinks.kafka``. It decides which partition a record goes to, as Kafka's own producer
would (the record's own, else the key's hash, else one of those that this task has to itself), encodes and writes. In a
transaction no two tasks may write to one partition: each says which it has written to, and the driver compares
(:func:`written_twice`). Source: KIP-98; the columns of Spark's Kafka sink; Kafka's ``BuiltInPartitioner``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.errors import InvalidOption, RecordRejected, UnknownTopic
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.transactions.session import OpenTransaction
from streamgroups_kafka.transactions.writer import TransactionWriter
from streamgroups_kafka.write.partitioner import partitions_of_keys
from streamgroups_kafka.write.record_batches import BatchSettings, encode

#: So much is encoded at once: enough for a full batch of each of several partitions, little enough for a worker's memory.
_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class OutputSettings:
    """Where records go and how.

    Args:
        topic: of all records; ``None``: each has its own in a column ``topic``.
        batches: how record batches are made.
        with_headers: whether a column ``headers`` is written.
        tasks: how many tasks there usually are: records without key and partition go to every so-manieth partition.
    """

    topic: str | None = None
    batches: BatchSettings = field(default_factory=BatchSettings)
    with_headers: bool = True
    tasks: int = 1


@dataclass(frozen=True, slots=True)
class Written:
    """What a task has written.

    Args:
        task: its number in the batch.
        partitions: where to.
        records: how many.
    """

    task: int
    partitions: frozenset[TopicPartition]
    records: int


def written_twice(parts: Iterable[Written]) -> frozenset[TopicPartition]:
    """Partitions that more than one task has written to: the broker cannot tell their batches apart.

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
) -> Written:
    """Writes what a task has, and returns when the brokers have it all.

    Args:
        records: with the columns of Spark's Kafka sink.
        config: how to reach the cluster.
        settings: where to and how.
        transaction: what the driver has begun; ``None`` to write at least once, without one.
        task: its number in the batch.

    Raises:
        RecordRejected: if a record cannot be written, naming it.
        UnknownTopic: if a topic or partition does not exist.
        StreamGroupsError: see :meth:`streamgroups_kafka.transactions.writer.TransactionWriter.write`.
    """
    chunks = _chunks(records)
    first = next(chunks, None)
    if first is None:
        return Written(task, frozenset(), 0)
    with closing(TransactionWriter(config, transaction)) as writer:
        output = _Output(writer, settings, task)
        output.add(first)
        for chunk in chunks:
            output.add(chunk)
        return Written(task, frozenset(output.next_sequences), output.records)


def _chunks(records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Spark hands over 10,000 rows at a time; few and large ones are encoded and sent with less effort."""
    waiting: list[pa.RecordBatch] = []
    n_bytes = 0
    for batch in records:
        if batch.num_rows:
            waiting.append(batch)
            n_bytes += batch.nbytes
        if n_bytes >= _CHUNK_BYTES:
            yield _joined(waiting)
            waiting, n_bytes = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class _Output:
    """What one task has written so far."""

    def __init__(self, writer: TransactionWriter, settings: OutputSettings, task: int) -> None:
        self._writer, self._settings, self._task = writer, settings, task
        self._counts: dict[str, int] = {}
        self._round = 0
        self.records = 0
        self.next_sequences: dict[TopicPartition, int] = {}

    def add(self, chunk: pa.RecordBatch) -> None:
        for topic, rows in _by_topic(chunk, self._settings.topic):
            self._write(topic, rows)
        self.records += chunk.num_rows
        self._round += 1

    def _write(self, topic: str, rows: pa.RecordBatch) -> None:
        if topic not in self._counts:
            self._counts[topic] = self._writer.partition_count(topic)
        count = self._counts[topic]
        columns = {"partition": self._partitions(rows, topic, count)}
        wanted = ("key", "value", "timestamp", *(("headers",) if self._settings.with_headers else ()))
        columns |= {name: rows.column(name) for name in wanted if name in rows.schema.names}
        batches = encode(
            pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)),
            self._settings.batches,
            topic=topic,
            now_ms=time.time_ns() // 1_000_000,
            producer=self._writer.producer,
            next_sequences={tp.partition: n for tp, n in self.next_sequences.items() if tp.topic == topic},
        )
        self._writer.write(topic, batches)
        for batch in batches:
            assert batch.next_sequence is not None, "it was encoded for a producer"
            self.next_sequences[TopicPartition(topic, batch.partition)] = batch.next_sequence

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
        """A partition that no other task picks, if there are no more tasks than were told and than there are partitions."""
        own = range(self._task % count, count, max(self._settings.tasks, 1))
        return own[(self._round + self._writer.producer.epoch) % len(own)]


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
