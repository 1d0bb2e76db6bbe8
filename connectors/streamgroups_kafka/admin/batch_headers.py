"""Counts the records in fetched record batches by the batch headers, without decompressing or parsing records.

Called by ``lag_counting``. A batch header contains the number of records, the producer, and whether the batch is a
transaction marker. So the count excludes transaction markers, compacted gaps and aborted records, and costs only the
transfer. Source: Kafka's record format (KIP-98); the rule for aborted transactions is that of Kafka's consumer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

#: Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and maximum timestamp, producer id
#: and epoch, base sequence, count of records.
_HEADER = struct.Struct(">qiibIhiqqqhii")
#: The size of base offset and length, which the length field excludes.
_LOG_OVERHEAD = 12
_MAGIC = 2
_TRANSACTIONAL, _CONTROL = 0x10, 0x20


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
