"""Fetches records as confluent-kafka's message objects: works with every installation of confluent-kafka.

Created by ``range_reader`` where the native fetcher is not available. Source: librdkafka's partition EOF event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias

import confluent_kafka
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError

from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_kafka.client.messages import headers_of, size_of
from streamgroups_kafka.read.arrow_columns import to_arrow
from streamgroups_kafka.read.fetcher import BATCH_BYTES, POLL_MS, PartitionError, ReadSettings, client_settings

#: confluent-kafka declares every field of a message as optional. Here each message has either an error or all fields.
_Message: TypeAlias = Any
_Key: TypeAlias = tuple[str, int]

_BATCH_RECORDS = 8_192
#: The number of messages in one call of librdkafka.
_CHUNK = 2_048
_BOUNDS_TIMEOUT_S = 30


class PlainFetcher:
    """See :class:`~streamgroups_kafka.read.fetcher.Fetcher`."""

    def __init__(self, ranges: Sequence[OffsetRange], schema: pa.Schema, settings: ReadSettings) -> None:
        self._schema, self._has_headers = schema, "headers" in schema.names
        self._ends = {_key(r.topic_partition): r.end_offset for r in ranges}
        self._next = {_key(r.topic_partition): r.next_offset for r in ranges}
        #: Messages that arrived and are not in the batch yet.
        self._at_hand: deque[_Message] = deque()
        self._held: list[_Message] = []
        #: Whether the next record would exceed the limit, and waits.
        self._is_full = False
        self._held_bytes = 0
        self._errors: list[PartitionError] = []
        self._consumer = Consumer({**client_settings(settings), "error_cb": self._on_client_error})
        self._consumer.assign([confluent_kafka.TopicPartition(t, p, self._next[t, p]) for t, p in self._ends])

    def fill(self) -> tuple[bool, Sequence[PartitionError]]:
        """See :meth:`Fetcher.fill`."""
        held, open_ranges = len(self._held), len(self._ends)
        if not self._at_hand:
            self._at_hand.extend(self._consumer.consume(_CHUNK, 0))
        if not self._at_hand and (message := self._consumer.poll(POLL_MS / 1000)) is not None:
            self._at_hand.append(message)
        while self._at_hand and not self.full():
            self._take(self._at_hand[0])
            if not self._is_full:
                self._at_hand.popleft()
        errors, self._errors = self._errors, []
        return len(self._held) > held or len(self._ends) < open_ranges, errors

    def full(self) -> bool:
        """See :meth:`Fetcher.full`."""
        return self._is_full or len(self._held) >= _BATCH_RECORDS or self._held_bytes >= BATCH_BYTES

    def take(self) -> pa.RecordBatch:
        """See :meth:`Fetcher.take`."""
        held, self._held, self._held_bytes, self._is_full = self._held, [], 0, False
        return to_arrow(held, self._schema)

    def n_open(self) -> int:
        """See :meth:`Fetcher.n_open`."""
        return len(self._ends)

    def remaining(self) -> Sequence[OffsetRange]:
        """See :meth:`Fetcher.remaining`."""
        return [OffsetRange(TopicPartition(*key), self._next[key], end) for key, end in self._ends.items()]

    def find(self, topic_partition: TopicPartition) -> OffsetRange | None:
        """See :meth:`Fetcher.find`."""
        key = _key(topic_partition)
        return OffsetRange(topic_partition, self._next[key], self._ends[key]) if key in self._ends else None

    def end(self, topic_partition: TopicPartition) -> None:
        """See :meth:`Fetcher.end`."""
        self._end(_key(topic_partition))

    def seek(self, topic_partition: TopicPartition, next_offset: int) -> None:
        """See :meth:`Fetcher.seek`."""
        key = _key(topic_partition)
        self._next[key] = next_offset
        at = confluent_kafka.TopicPartition(*key, next_offset)
        self._consumer.incremental_unassign([at])
        self._consumer.incremental_assign([at])

    def bounds(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """See :meth:`Fetcher.bounds`."""
        tp = confluent_kafka.TopicPartition(*_key(topic_partition))
        earliest, end = self._consumer.get_watermark_offsets(tp, timeout=_BOUNDS_TIMEOUT_S)
        return earliest, end

    def close(self) -> None:
        """See :meth:`Fetcher.close`."""
        self._consumer.close()

    def _take(self, message: _Message) -> None:
        """Processes a message: it advances its range, ends it, or is an error."""
        error = message.error()
        key = message.topic(), message.partition()
        end = self._ends.get(key)
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                self._errors.append((TopicPartition(*key) if key in self._next else None, error))
            elif end is not None and message.offset() >= end:
                self._end(key)
            return
        if end is None:
            return
        offset = message.offset()
        if offset < self._next[key]:
            # The message precedes a seek of its range.
            return
        if offset < end:
            size = size_of(message, headers_of(message) if self._has_headers else None)
            if self._held and self._held_bytes + size > BATCH_BYTES:
                self._is_full = True
                return
            self._held.append(message)
            self._held_bytes += size
        self._next[key] = offset + 1
        if offset >= end - 1:
            self._end(key)

    def _end(self, key: _Key) -> None:
        del self._ends[key]
        if self._ends:
            self._consumer.pause([confluent_kafka.TopicPartition(*key)])

    def _on_client_error(self, error: KafkaError) -> None:
        self._errors.append((None, error))


def _key(topic_partition: TopicPartition) -> _Key:
    return topic_partition.topic, topic_partition.partition
