"""Reads exact ranges of offsets into Arrow: the plain reader, on confluent-kafka's message objects.

Called in Spark's Python workers, one call per task (``streamgroups_spark.source``). Several ranges are read by one consumer
at once, each to its end. Source: Spark's ``DataSourceReader.read``; librdkafka's partition EOF event. A range ends with a
record at or past its end, or with the partition's EOF at or past it: never by a time-out, for offsets have gaps
(SEMANTICS G13).

The native reader will implement the same function, :func:`read_ranges`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import confluent_kafka
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException

from streamgroups.errors import DataLoss, NotAuthorized, ReadTimedOut, StreamGroupsError
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_kafka.client_config import ClientConfig
from streamgroups_kafka.columns import to_arrow
from streamgroups_kafka.errors import to_streamgroups_error

logger = logging.getLogger(__name__)

#: confluent-kafka types every field of a message as optional; here each message either has an error or all of them.
_Message: TypeAlias = Any

#: Records and bytes per Arrow batch: enough to make the cost per batch small, few enough to stay in the cache.
_BATCH_RECORDS = 8_192
_BATCH_BYTES = 8 * 1024 * 1024
#: Messages asked of librdkafka at once.
_CHUNK = 2_048
#: How long to wait for a message before looking at the clock.
_POLL_S = 0.2

#: Overridden by the user's own ``kafka.*`` settings. A reader lives as long as its ranges: it should neither wait for more
#: records than there are (``fetch.wait.max.ms`` delays the EOF event by as much) nor pause when its queue is full.
_DEFAULTS = {
    # The requests of a new connection are short and follow each other: none may wait for the answer to the last.
    "socket.nagle.disable": "true",
    "fetch.wait.max.ms": 20,
    "fetch.queue.backoff.ms": 2,
    "queued.max.messages.kbytes": 65_536,
    "queued.min.messages": 100_000,
}


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How to read ranges.

    Args:
        client: how to reach the cluster.
        group_id: the group in whose name the broker's quotas and logs see the reader; it does not join it.
        fail_on_data_loss: whether offsets that are gone are an error, or are passed over with a warning each.
        timeout_ms: how long a range may give nothing before that is an error.
    """

    client: ClientConfig
    group_id: str
    fail_on_data_loss: bool = True
    timeout_ms: int = 120_000


def read_ranges(ranges: Sequence[OffsetRange], schema: pa.Schema, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    """Reads ranges, all of them at once, each in order.

    Args:
        ranges: what to read; at most one of each partition is read at a time, further ones after it.
        schema: the columns wanted, a subset of :data:`streamgroups_kafka.columns.COLUMNS`.
        settings: how.

    Yields:
        Arrow record batches of that schema. Records of one partition come in order.

    Raises:
        DataLoss: if offsets of a range are gone and ``fail_on_data_loss`` is set.
        ReadTimedOut: if a range gives neither a record nor its end for ``timeout_ms``.
        StreamGroupsError: for what else the broker refuses.
    """
    remaining = list(ranges)
    while remaining:
        one_each: dict[TopicPartition, OffsetRange] = {}
        for r in sorted(remaining):
            one_each.setdefault(r.topic_partition, r)
        yield from _Reading(list(one_each.values()), schema, settings).batches()
        remaining = [r for r in remaining if r not in one_each.values()]


class _Reading:
    """The reading of at most one range per partition by one consumer. Not shared between threads."""

    def __init__(self, ranges: Sequence[OffsetRange], schema: pa.Schema, settings: ReadSettings) -> None:
        self._settings, self._schema = settings, schema
        self._ends = {(r.topic_partition.topic, r.topic_partition.partition): r.end_offset for r in ranges if len(r)}
        self._next = {(r.topic_partition.topic, r.topic_partition.partition): r.next_offset for r in ranges}
        self._trouble = ""
        self._refusal: StreamGroupsError | None = None
        self._consumer = Consumer(
            {**_DEFAULTS, **settings.client.for_reader(settings.group_id), "error_cb": self._on_trouble}
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            self._consumer.assign([confluent_kafka.TopicPartition(t, p, self._next[t, p]) for t, p in self._ends])
            held: list[_Message] = []
            held_bytes = 0
            deadline_s = self._deadline_s()
            while self._ends:
                messages = self._consumer.consume(_CHUNK, 0)
                if not messages:
                    message = self._consumer.poll(_POLL_S)
                    if message is None:
                        self._check(deadline_s)
                        continue
                    messages = [message]
                kept = self._keep(messages)
                # Only what was asked for counts as progress; a broker that repeats one error does not.
                if kept or not self._ends:
                    deadline_s = self._deadline_s()
                held += kept
                held_bytes += sum(map(len, kept))
                if len(held) >= _BATCH_RECORDS or held_bytes >= _BATCH_BYTES:
                    yield to_arrow(held, self._schema)
                    held, held_bytes = [], 0
                    # Whoever takes the batch may take its time; that is not the broker's.
                    deadline_s = self._deadline_s()
            if held:
                yield to_arrow(held, self._schema)
        finally:
            self._consumer.close()

    def _keep(self, messages: list[_Message]) -> list[_Message]:
        """The messages inside their ranges; ranges that these end are closed."""
        kept = []
        ends = self._ends
        for message in messages:
            if message.error() is not None:
                self._on_error(message)
                continue
            key = message.topic(), message.partition()
            end = ends.get(key)
            if end is None:
                continue
            offset = message.offset()
            self._next[key] = offset + 1
            if offset < end:
                kept.append(message)
            if offset >= end - 1:
                self._end(key)
        return kept

    def _end(self, key: tuple[str, int]) -> None:
        del self._ends[key]
        if self._ends:
            self._consumer.pause([confluent_kafka.TopicPartition(*key)])

    def _on_error(self, message: _Message) -> None:
        error = message.error()
        key = message.topic(), message.partition()
        if error.code() == KafkaError._PARTITION_EOF:
            end = self._ends.get(key)
            if end is not None and message.offset() >= end:
                self._end(key)
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            if key in self._ends:
                self._on_gone(key)
        elif error.fatal() or not error.retriable():
            translated = self._translated(error, f"Reading {message.topic() or 'the topic'}")
            if not translated.retriable:
                raise translated
            self._trouble = str(translated)

    def _on_trouble(self, error: KafkaError) -> None:
        """What librdkafka says of connections. A refused login is final; the rest may mend itself."""
        translated = self._translated(error, "Reading")
        self._trouble = str(translated)
        if isinstance(translated, NotAuthorized):
            self._refusal = translated

    def _translated(self, error: KafkaError, what: str) -> StreamGroupsError:
        return to_streamgroups_error(error, what, redact=self._settings.client.redact)

    def _on_gone(self, key: tuple[str, int]) -> None:
        """The broker has not got the offset any more."""
        tp = confluent_kafka.TopicPartition(*key)
        try:
            oldest, end = self._consumer.get_watermark_offsets(tp, timeout=self._settings.timeout_ms / 1000)
        except KafkaException as e:
            raise self._translated(e.args[0], f"The offsets of {key[0]}-{key[1]}") from e
        wanted = OffsetRange(TopicPartition(*key), self._next[key], self._ends[key])
        if oldest <= wanted.next_offset < end:
            # It is there after all: the broker that said so was not, or is no longer, the leader.
            self._go_on_at(key, wanted.next_offset)
            return
        gone = f"{wanted} was to be read, but {key[0]}-{key[1]} now holds [{oldest}, {end})."
        if self._settings.fail_on_data_loss:
            raise DataLoss(gone, remedy="Set failOnDataLoss=false to go on with what is left, or move the group.")
        logger.warning("%s What is missing is passed over (failOnDataLoss=false).", gone)
        if not wanted.next_offset < oldest < wanted.end_offset:
            self._end(key)
            return
        self._go_on_at(key, oldest)

    def _go_on_at(self, key: tuple[str, int], next_offset: int) -> None:
        self._next[key] = next_offset
        at = confluent_kafka.TopicPartition(*key, next_offset)
        self._consumer.incremental_unassign([at])
        self._consumer.incremental_assign([at])

    def _deadline_s(self) -> float:
        return time.monotonic() + self._settings.timeout_ms / 1000

    def _check(self, deadline_s: float) -> None:
        if self._refusal:
            raise self._refusal
        if time.monotonic() > deadline_s:
            waiting = ", ".join(f"{t}-{p} (to {end})" for (t, p), end in sorted(self._ends.items()))
            raise ReadTimedOut(
                f"No record and no end within {self._settings.timeout_ms / 1000:.0f} s from {waiting}. {self._trouble}".strip(),
                remedy="Check that the brokers leading these partitions are up; kafkaConsumer.pollTimeoutMs sets the limit.",
            )
