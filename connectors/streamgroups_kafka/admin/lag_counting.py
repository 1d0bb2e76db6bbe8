"""Counts the records between committed offsets and the ends of many partitions at once, within limits of bytes and
time.

Called by :mod:`streamgroups_kafka.admin.topics`. It joins no group, commits nothing, and neither decompresses nor parses
records: the header of a batch contains the number of records, the producer, and whether the batch is a transaction marker. So
the count excludes transaction markers, compacted gaps and aborted records, and costs only the transfer. One Fetch request for
each broker and round contains all partitions. So thousands of partitions with a lag of one transaction marker cost little; the
limit applies to the bytes of the responses. Source: SEMANTICS G13, O3; KIP-98 (the record format, the last stable offset and
aborted transactions in Fetch responses); the rule for aborted transactions is that of Kafka's consumer.

Up to the last stable offset, the isolation level of the requests is ``read_committed``. Behind it, it is
``read_uncommitted``: those records belong to open transactions, or follow them.
"""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streamgroups.groups.lag import CountedLag
from streamgroups.partitions import OffsetRange, TopicPartition, by_topic
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.client.private_kafka_python import FetchRequest

#: How long a display of lag may wait for the count.
TIME_LIMIT_S = 3.0
#: The bytes of one partition in the first request. Most batches fit.
_FIRST_BYTES = 64 << 10
#: If a batch did not fit, the next request has this factor more bytes. The maximum is above the default maximum size of
#: a batch.
_GROWTH, _MAX_BYTES = 4, 2 << 20
#: The last version with topic names; later versions contain topic ids.
_MIN_VERSION, _MAX_VERSION = 4, 12
_COMMITTED_ONLY, _ALL = 1, 0
#: Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and maximum timestamp, producer id
#: and epoch, base sequence, count of records.
_HEADER = struct.Struct(">qiibIhiqqqhii")
#: The size of base offset and length, which the length field excludes.
_LOG_OVERHEAD = 12
_MAGIC = 2
_TRANSACTIONAL, _CONTROL = 0x10, 0x20


@dataclass(slots=True)
class _Count:
    """The progress of one partition from the committed offset to the end."""

    range: OffsetRange
    next_offset: int
    #: The last stable offset, or the end offset if that is lower; ``None`` before the first response.
    stable_offset: int | None = None
    records: int = 0
    open: int = 0
    is_exact: bool = True
    fetch_bytes: int = _FIRST_BYTES
    failed: bool = False

    @property
    def isolation(self) -> int:
        return _COMMITTED_ONLY if self.stable_offset is None or self.next_offset < self.stable_offset else _ALL

    @property
    def limit(self) -> int:
        """The end of the range that has the current isolation level."""
        return self.range.end_offset if self.isolation == _ALL or self.stable_offset is None else self.stable_offset

    @property
    def is_done(self) -> bool:
        return self.failed or (self.stable_offset is not None and self.next_offset >= self.range.end_offset)

    def add(self, counted: CountedBatches, *, was_first: bool) -> None:
        limit, isolation = self.limit, self.isolation
        self.is_exact = self.is_exact and counted.is_exact
        if isolation == _ALL:
            self.open += counted.records
        else:
            self.records += counted.records
        if counted.next_offset > self.next_offset:
            self.next_offset = min(counted.next_offset, limit)
        elif was_first and self.fetch_bytes >= _MAX_BYTES:
            # A broker returns the first batch of a request at any size. So no batch remains: compaction has removed the
            # last ones.
            self.next_offset = limit
        else:
            self.fetch_bytes = min(self.fetch_bytes * _GROWTH, _MAX_BYTES)

    def result(self) -> CountedLag | None:
        if self.stable_offset is None:
            return None
        rest = max(self.stable_offset - self.next_offset, 0)
        open_rest = max(self.range.end_offset - max(self.next_offset, self.stable_offset), 0)
        is_exact = self.is_exact and not rest and not open_rest
        return CountedLag(self.records + rest, self.open + open_rest, is_exact=is_exact)


@dataclass(slots=True)
class _Budget:
    limit_bytes: int
    deadline_s: float
    used_bytes: int = 0

    @property
    def is_used_up(self) -> bool:
        return self.used_bytes >= self.limit_bytes or time.monotonic() >= self.deadline_s


async def count_lag(
    session: AdminSession,
    leaders: Mapping[TopicPartition, int],
    ranges: Collection[OffsetRange],
    limit_bytes: int,
    time_limit_s: float = TIME_LIMIT_S,
) -> dict[TopicPartition, CountedLag]:
    """See :meth:`streamgroups.ports.TopicAdmin.count_lag`.

    Args:
        session: the connection to the cluster.
        leaders: the leaders of the partitions. Partitions without one are left out of the result.
        ranges: the ranges to count.
        limit_bytes: the maximum size of all responses, in bytes.
        time_limit_s: the time limit, in seconds.
    """
    counts = {r.topic_partition: _Count(r, r.next_offset) for r in ranges if r.topic_partition in leaders}
    budget = _Budget(limit_bytes, time.monotonic() + time_limit_s)
    while not budget.is_used_up:
        open_ = [c for c in counts.values() if not c.is_done]
        if not open_:
            break
        for isolation in (_COMMITTED_ONLY, _ALL):
            await _round(
                session, leaders, [c for c in open_ if not c.is_done and c.isolation == isolation], isolation, budget
            )
    return {tp: found for tp, c in counts.items() if (found := c.result()) is not None}


async def _round(
    session: AdminSession,
    leaders: Mapping[TopicPartition, int],
    counts: Collection[_Count],
    isolation: int,
    budget: _Budget,
) -> None:
    by_leader: defaultdict[int, list[_Count]] = defaultdict(list)
    # Partitions whose batch did not fit come first, because a broker always returns the first batch. Then the shortest
    # ranges, so that most counts become exact.
    for c in sorted(counts, key=lambda c: (-c.fetch_bytes, c.range.end_offset - c.next_offset, c.range)):
        by_leader[leaders[c.range.topic_partition]].append(c)
    left_bytes = max(budget.limit_bytes - budget.used_bytes, 1)
    requests = {leader: _request(of, isolation, left_bytes) for leader, of in by_leader.items()}
    answers = await session.send_all(requests)
    for leader, answer in answers.items():
        first = by_leader[leader][0]
        requested = {c.range.topic_partition: c for c in by_leader[leader]}
        if answer.error_code:
            # The response contains no partitions. A new request would have the same response.
            for c in by_leader[leader]:
                c.failed = True
        for t in answer.responses:
            for p in t.partitions:
                found = requested.get(TopicPartition(t.topic, p.partition_index))
                if found is not None:
                    budget.used_bytes += _take(found, p, was_first=found is first)


def _request(counts: Iterable[_Count], isolation: int, max_bytes: int) -> FetchRequest:
    partition = FetchRequest.FetchTopic.FetchPartition
    requested = by_topic(
        (tp, partition(partition=tp.partition, fetch_offset=c.next_offset, partition_max_bytes=c.fetch_bytes))
        for c in counts
        for tp in [c.range.topic_partition]
    )
    topics = [FetchRequest.FetchTopic(topic=name, partitions=of_topic) for name, of_topic in requested.items()]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=topics,
        min_version=_MIN_VERSION,
        max_version=_MAX_VERSION,
    )


def _take(c: _Count, answer: Any, *, was_first: bool) -> int:
    """Counts the batches of one partition in a response. Returns their size in bytes."""
    if answer.error_code != 0:
        # The partition was deleted, has a new leader, or is not authorized. Its lag stays an upper bound.
        c.failed = True
        return 0
    if c.stable_offset is None:
        c.stable_offset = max(min(answer.last_stable_offset, c.range.end_offset), c.range.next_offset)
    if c.is_done:
        return 0
    batches = bytes(answer.records or b"")
    aborted = [AbortedTransaction(a.producer_id, a.first_offset) for a in answer.aborted_transactions or ()]
    c.add(count_records(batches, c.next_offset, c.limit, aborted), was_first=was_first)
    return len(batches)


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """An aborted transaction. The broker lists those that overlap the fetched records; ``read_committed`` consumers
    skip them.
    """

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class CountedBatches:
    """The result of a count.

    Args:
        next_offset: the offset after the last complete batch; the first offset of the count if there is no batch.
        records: the number of records.
        is_exact: whether the number is exact. Otherwise it is an upper bound.
    """

    next_offset: int
    records: int
    is_exact: bool = True


def count_records(
    batches: bytes, next_offset: int, end_offset: int, aborted: Iterable[AbortedTransaction] = ()
) -> CountedBatches:
    """Counts the records at or after an offset.

    Args:
        batches: record batches in the format of the broker. The last one may be truncated.
        next_offset: the first offset to count. The first batch may begin before it.
        end_offset: batches that begin here or later are not counted.
        aborted: transactions whose records are not counted.

    >>> count_records(b"", 5, 9)
    CountedBatches(next_offset=5, records=0, is_exact=True)
    """
    waiting = sorted(aborted, key=lambda a: a.first_offset, reverse=True)
    ended_badly: set[int] = set()
    at, records, is_exact, position = next_offset, 0, True, 0
    while len(batches) - position >= _HEADER.size:
        base, length, _, magic, _, attributes, delta, _, _, producer, _, _, count = _HEADER.unpack_from(
            batches, position
        )
        position += _LOG_OVERHEAD + length
        if length < _HEADER.size - _LOG_OVERHEAD or position > len(batches) or base >= end_offset:
            break
        if magic < _MAGIC:
            # Before Kafka 0.11: one message, or a compressed set of messages, with the offset of its last message.
            last, inside, exact = base, max(base - at + 1, 0), False
        else:
            last = base + max(delta, 0)
            inside, exact = _inside(base, last, count, next_offset)
        if last < at:
            continue
        while waiting and waiting[-1].first_offset <= last:
            ended_badly.add(waiting.pop().producer_id)
        if magic >= _MAGIC and attributes & _CONTROL:
            ended_badly.discard(producer)
        elif not (magic >= _MAGIC and attributes & _TRANSACTIONAL and producer in ended_badly):
            records += inside
            is_exact = is_exact and exact
        at = last + 1
    return CountedBatches(at, records, is_exact)


def _inside(base: int, last: int, count: int, next_offset: int) -> tuple[int, bool]:
    """The maximum number of records in a batch at or after an offset, and whether it is exact."""
    held = min(max(count, 0), last - base + 1)
    if base >= next_offset:
        return held, True
    after = max(last - next_offset + 1, 0)
    # If compaction has left gaps in a batch, its header does not contain their positions.
    return min(held, after), held == last - base + 1
