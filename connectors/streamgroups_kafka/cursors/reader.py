"""Reads messages for cursors: a limited number from given offsets, without waiting for more than are available.

Implements :class:`streamgroups.ports.Records`. ``instance_session`` uses it for the partitions of an instance, and
:class:`PartitionReaders` for cursors of single partitions. One thread uses it. The consumer joins no group. It stays
open between requests and prefetches the next messages. Source: SEMANTICS G4, G13, G16; the partition EOF event of
librdkafka. The broker's ListOffsets response decides whether more messages exist. A timeout cannot decide it: offsets
have gaps, and a wait for a record in a gap would never end.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping
from itertools import chain
from types import MappingProxyType

from confluent_kafka import Consumer, KafkaError

from streamgroups.errors import DataLoss, LoginRejected, ReadTimedOut, StreamGroupsError
from streamgroups.identity import TopicIdentity
from streamgroups.message import Message
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Batch, Cluster
from streamgroups.printable import listed
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.import_lock import KAFKA_PYTHON
from streamgroups_kafka.client.job_thread import JobThread, ThreadEnded
from streamgroups_kafka.client.logs import client_log
from streamgroups_kafka.client.messages import KafkaMessage, to_message
from streamgroups_kafka.client.partition_conversion import to_confluent
from streamgroups_kafka.cursors.closing import closed_error
from streamgroups_kafka.cursors.position_checks import TopicIds
from streamgroups_kafka.cursors.read_logs import ReadLogs

logger = logging.getLogger(__name__)

#: Settings of the user override these. After a seek, the reader waits for the response to the fetch in progress
#: (``fetch.wait.max.ms``). In a process with many instances, the prefetched messages of each use memory.
_DEFAULTS = {
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 10,
    "queued.max.messages.kbytes": 16_384,
}
#: The default of ``fetch.max.bytes`` in the Java client: the size of one fetch.
_FETCH_BYTES = 50 * 1024 * 1024
#: How long to wait for an existing record.
_RETRY_TIMEOUT_S = 15.0
#: After this time without a message, the next batches are read without librdkafka.
_STALLED_S = 5.0
#: A request that has messages returns them after this time, even if more exist.
_ENOUGH_S = 2.0
_POLL_S = 0.1
#: The memory overhead of a header: a tuple and two objects.
_HEADER_BYTES = 100
#: The maximum number of open partitions of partition cursors. Each prefetches over its own connection.
_MAX_OPEN = 8
#: How long a caller waits until the clients are closed.
_CLOSE_TIMEOUT_S = 45.0
#: The number of messages that a repeated request takes from librdkafka at once.
_REPEATED_AT_ONCE = 1_000
_NO_END: Mapping[TopicPartition, int] = MappingProxyType({})


class RecordReader:
    """See :class:`streamgroups.ports.Records`.

    Args:
        config: the configuration of the client.
        group_id: required by librdkafka. The reader neither joins the group nor commits.
        client_id: the client id in logs and quotas of the broker.
        offsets: provides beginning and end offsets, with the isolation level of the configuration.
        ids: provides topic ids.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        group_id: str,
        client_id: str | None,
        offsets: Cluster,
        ids: TopicIds,
    ) -> None:
        self._config, self._offsets = config, offsets
        self._logs = ReadLogs(offsets, ids)
        settings = {**_DEFAULTS, **config.for_reader(group_id, client_id=client_id)}
        self._max_bytes = int(config.get("fetch.max.bytes") or _FETCH_BYTES)
        self._consumer = Consumer({**settings, "error_cb": self._on_client_error})
        self._open = True
        #: The next offset of each assigned partition, after the messages that were returned.
        self._next: dict[TopicPartition, int] = {}
        #: Messages and partition EOF events that arrived and were not returned yet.
        self._waiting: deque[KafkaMessage] = deque()
        self._rejection: StreamGroupsError | None = None
        self._last_error = ""
        #: Since when a partition has no message although its log continues. Requests for other partitions do not change it.
        self._behind_s: dict[TopicPartition, float] = {}
        self._log = client_log(config.get("bootstrap.servers"))

    def read(
        self, positions: Mapping[TopicPartition, int], limit: int, until: Mapping[TopicPartition, int] = _NO_END
    ) -> Batch:
        """See :meth:`streamgroups.ports.Records.read`. It waits for one message, and adds as many as one fetch
        contains.
        """
        if until:
            return self._read_until(positions, limit, until)
        self._assign(positions)
        found: dict[tuple[str, int], list[Message]] = {}
        count = size_bytes = 0
        ends: Mapping[TopicPartition, int] | None = None
        began_s = time.monotonic()
        while count < limit and size_bytes < self._max_bytes:
            if not self._waiting:
                self._waiting.extend(self._consumer.consume(limit - count, 0))
            if not self._waiting:
                ends = self._ends(positions) if ends is None else ends
                if all(self._next[tp] >= ends[tp] for tp in positions):
                    break
                waited_s = time.monotonic() - began_s
                if found and waited_s > _ENOUGH_S and not self._stalled(ends):
                    break
                self._wait(ends, waited_s)
                continue
            message = self._take(self._waiting.popleft())
            if message is not None:
                found.setdefault((message.topic, message.partition), []).append(message)
                count += 1
                size_bytes += len(message.value or b"") + len(message.key or b"")
                size_bytes += sum(len(name) + len(value or b"") + _HEADER_BYTES for name, value in message.headers)
        messages = chain.from_iterable(found[it] for it in sorted(found))
        return Batch(tuple(messages), {tp: self._next[tp] for tp in positions})

    def _read_until(
        self, positions: Mapping[TopicPartition, int], limit: int, until: Mapping[TopicPartition, int]
    ) -> Batch:
        """Reads one partition after the other, so that no partition prefetches while another one is read."""
        messages: list[Message] = []
        reached = dict(positions)
        for tp in sorted(until):
            if len(messages) == limit:
                break
            found = self._read_range(tp, positions[tp], until[tp])
            taken = found[: limit - len(messages)]
            messages += taken
            reached[tp] = self._next[tp] if len(taken) == len(found) else taken[-1].offset + 1
        return Batch(tuple(messages), reached)

    def _read_range(self, tp: TopicPartition, next_offset: int, end_offset: int) -> list[Message]:
        self._assign({tp: next_offset})
        messages: list[Message] = []
        ends: Mapping[TopicPartition, int] | None = None
        began_s = time.monotonic()
        while self._next[tp] < end_offset:
            if not self._waiting:
                self._waiting.extend(self._consumer.consume(_REPEATED_AT_ONCE, 0))
            if not self._waiting:
                ends = self._ends({tp: next_offset}) if ends is None else ends
                if self._next[tp] >= ends[tp]:
                    break
                self._wait(ends, time.monotonic() - began_s)
                continue
            first = self._waiting[0]
            if first.error() is None and first.partition() == tp.partition and (first.offset() or 0) >= end_offset:
                # The offsets before it have no record any more. It is the next message.
                self._next[tp] = end_offset
                break
            message = self._take(self._waiting.popleft())
            messages += [] if message is None else [message]
        return messages

    def close(self) -> None:
        """See :meth:`streamgroups.ports.Records.close`."""
        if self._open:
            self._open = False
            self._consumer.close()

    def _assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Partitions that continue at their last offset in the same log stay assigned, with all prefetched messages."""
        continued = [tp for tp, n in positions.items() if self._next.get(tp) == n]
        kept = {*continued} - self._logs.replaced(continued)
        new = {tp: n for tp, n in positions.items() if tp not in kept}
        self._unassign([tp for tp in self._next if tp not in kept])
        if new:
            self._logs.begin(new)
            self._consumer.incremental_assign([to_confluent(tp, n) for tp, n in new.items()])
        self._next = dict(positions)
        self._behind_s = {tp: since_s for tp, since_s in self._behind_s.items() if tp in positions and tp not in new}

    def _unassign(self, partitions: Collection[TopicPartition]) -> None:
        """Drops partitions, with their prefetched messages."""
        if partitions:
            self._consumer.incremental_unassign([*map(to_confluent, partitions)])
            gone = {(tp.topic, tp.partition) for tp in partitions}
            self._waiting = deque(m for m in self._waiting if (m.topic(), m.partition()) not in gone)

    def _ends(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        ends = self._offsets.log_ends(list(positions))
        self._logs.observe(ends)
        for tp, end in ends.offsets.items():
            if positions[tp] > end:
                self._on_gone(tp)
        return ends.offsets

    def _wait(self, ends: Mapping[TopicPartition, int], waited_s: float) -> None:
        if self._rejection:
            # Raised once: librdkafka connects again, and the next request may succeed.
            rejection, self._rejection = self._rejection, None
            raise rejection
        if waited_s > _RETRY_TIMEOUT_S:
            missing = listed(f"{tp} ({self._next[tp]} to {end})" for tp, end in sorted(ends.items()))
            raise ReadTimedOut(
                f"No record arrived within {_RETRY_TIMEOUT_S:.0f} s from {missing}. {self._last_error}".strip(),
                remedy=(
                    "The cursor stays valid: send the request again. Check that the leaders of these partitions are up."
                ),
            )
        if stalled := self._stalled(ends):
            self._read_not_parsed(stalled)
            self._behind_s = dict.fromkeys(self._behind_s, time.monotonic())
            return
        message = self._consumer.poll(_POLL_S)
        if message is not None:
            self._waiting.append(message)

    def _stalled(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The ends of the partitions that have had no message for some time although their logs continue."""
        now_s = time.monotonic()
        behind = [tp for tp, end in ends.items() if self._next[tp] < end]
        self._behind_s = {tp: self._behind_s.get(tp, now_s) for tp in behind}
        return {tp: ends[tp] for tp in behind if now_s - self._behind_s[tp] > _STALLED_S}

    def _read_not_parsed(self, ends: Mapping[TopicPartition, int]) -> None:
        """Reads the batches that librdkafka cannot parse. It delivers neither their messages nor an error."""
        with KAFKA_PYTHON:
            from streamgroups_kafka.admin.batch_fetch import fetched_batches
        ranges = [OffsetRange(tp, self._next[tp], end) for tp, end in ends.items()]
        for required, found in fetched_batches(self._config, ranges):
            tp = required.topic_partition
            self._consumer.incremental_unassign([to_confluent(tp)])
            self._consumer.incremental_assign([to_confluent(tp, found.next_offset)])
            self._waiting.extend(found.records)
            if not found.records:
                self._next[tp] = found.next_offset

    def _take(self, message: KafkaMessage) -> Message | None:
        """Converts a message of librdkafka; ``None`` for an error or the end of a partition."""
        error = message.error()
        tp = TopicPartition(message.topic() or "", -1 if message.partition() is None else message.partition())
        if error is None and tp in self._next:
            self._next[tp] = message.offset() + 1
            self._behind_s.pop(tp, None)
            self._log.succeeded()
            self._rejection, self._last_error = None, ""
            return to_message(tp, message)
        if error is not None:
            self._on_error(tp, message)
        return None

    def _on_error(self, tp: TopicPartition, message: KafkaMessage) -> None:
        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            if tp in self._next:
                self._next[tp] = max(self._next[tp], message.offset())
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            if tp in self._next:
                self._on_gone(tp)
        else:
            what = (
                f"Reading {tp} at offset {self._next[tp]}"
                if tp in self._next
                else f"Reading {tp.topic or 'the stream'}"
            )
            translated = self._translated(error, what, tp.topic)
            if error.fatal() or not (error.retriable() or translated.retriable):
                raise translated
            self._last_error = str(translated)

    def _on_gone(self, tp: TopicPartition) -> None:
        """Handles an offset out of range. A replica that lags can report one for an existing offset."""
        next_offset = self._next.pop(tp)
        self._unassign([tp])
        earliest = self._offsets.beginning_offsets([tp])[tp]
        # The high watermark, because a reader of uncommitted records may have read past the last stable offset.
        end = self._offsets.high_watermarks([tp])[tp]
        if not earliest <= next_offset <= end:
            raise DataLoss(
                f"{tp} no longer has offset {next_offset}: it contains [{earliest}, {end}).",
                remedy=(
                    "Reset the offsets with update_group (for example to TRIM_HORIZON), or create a new cursor "
                    "at an existing offset."
                ),
                topic=tp.topic,
                partition=tp.partition,
            )
        self._logs.begin([tp])
        self._consumer.incremental_assign([to_confluent(tp, next_offset)])
        self._next[tp] = next_offset

    def _on_client_error(self, error: KafkaError) -> None:
        """Handles a connection error of librdkafka. A request does not wait for the end of an authentication error."""
        translated = self._translated(error, "Reading")
        self._last_error = str(translated)
        self._log.failed(translated.what)
        if isinstance(translated, LoginRejected):
            self._rejection = translated

    def _translated(self, error: KafkaError, what: str, topic: str | None = None) -> StreamGroupsError:
        return to_streamgroups_error(error, what, topic=topic or None, redact=self._config.redact)


class PartitionReaders:
    """Readers of single partitions, for cursors that belong to no group. Safe to call from any thread.

    Args:
        new_reader: creates a reader.
    """

    def __init__(self, new_reader: Callable[[], RecordReader]) -> None:
        self._new_reader = new_reader
        self._owner = JobThread("streamgroups-partitions")
        #: A reader has prefetched messages, which a topic of the same name does not contain.
        self._readers: OrderedDict[tuple[TopicPartition, TopicIdentity], RecordReader] = OrderedDict()

    def read(
        self, tp: TopicPartition, identity: TopicIdentity, next_offset: int, limit: int
    ) -> tuple[tuple[Message, ...], int]:
        """Returns at most ``limit`` messages of a topic with this identity, and the next offset.

        Raises:
            StreamGroupsError: the errors of :class:`RecordReader`; or the readers are closed.
        """
        try:
            batch = self._owner.start(lambda: self._read(tp, identity, next_offset, limit)).result()
        except ThreadEnded:
            raise closed_error() from None
        return batch.messages, batch.reached[tp]

    def close(self, then: Callable[[], None] = lambda: None) -> bool:
        """Closes all readers. Waits for that, unless the current code must not wait. Returns whether they are closed.

        Args:
            then: called after that, on the thread of the readers: a signal handler calls ``close`` in code that can hold a lock
                which this function needs.
        """

        def last() -> None:
            try:
                self._close_but(0)
            finally:
                then()

        try:
            return self._owner.wait_for(self._owner.finish(last), _CLOSE_TIMEOUT_S)
        except TimeoutError:
            logger.warning("The clients of group cursors were not closed within %.0f s", _CLOSE_TIMEOUT_S)
            return False

    def _read(self, tp: TopicPartition, identity: TopicIdentity, next_offset: int, limit: int) -> Batch:
        key = (tp, identity)
        if key not in self._readers:
            self._close_but(_MAX_OPEN - 1)
            self._readers[key] = self._new_reader()
        self._readers.move_to_end(key)
        return self._readers[key].read({tp: next_offset}, limit)

    def _close_but(self, most: int) -> None:
        while len(self._readers) > most:
            self._readers.popitem(last=False)[1].close()
