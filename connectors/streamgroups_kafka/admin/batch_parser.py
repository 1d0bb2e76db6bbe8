"""Parses a record batch in the format of the broker, also one that librdkafka cannot parse.

Called by :mod:`streamgroups_kafka.admin.batch_fetch`. A key or value with a length below -1 is null for brokers and for the
Java client. librdkafka stops at such a record, without an error. Source: KIP-98 (message format 2); ``DefaultRecordBatch``,
``DefaultRecord`` and the codecs of Kafka's Java client.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME

from streamgroups.partitions import TopicPartition
from streamgroups_kafka.client.private_kafka_python import calc_crc32c

#: Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and maximum timestamp, producer id
#: and epoch, base sequence, count of records.
_HEADER = struct.Struct(">qiibIhiqqqhii")
#: The size of base offset and length, which the length field excludes.
_LOG_OVERHEAD = 12
_AT_ATTRIBUTES = 21
#: Where each format has its number, and the one of record batches.
AT_MAGIC = 16
MAGIC = 2
_CODEC, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_NONE, _SNAPPY = 0, 2
_STREAMS = {1: "gzip", 3: "lz4", 4: "zstd"}
#: The start of snappy-java's format, before its two versions.
_SNAPPY_JAVA = b"\x82SNAPPY\x00"
_SNAPPY_START_BYTES = 16
_NO_VALUE = -1
_LONG = 1 << 64

_Headers: TypeAlias = list[tuple[str, bytes | None]]


@dataclass(slots=True)
class ParsedRecord:
    """A record with the methods of ``confluent_kafka.Message`` that this library uses."""

    _tp: TopicPartition
    _offset: int
    _timestamp: tuple[int, int]
    _key: bytes | None
    _value: bytes | None
    _headers: list[tuple[bytes, bytes | None]]

    def error(self) -> None:
        """A record is not an error."""

    def topic(self) -> str:
        """The topic."""
        return self._tp.topic

    def partition(self) -> int:
        """The number of the partition."""
        return self._tp.partition

    def offset(self) -> int:
        """The offset."""
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        """The type of the timestamp, and milliseconds."""
        return self._timestamp

    def key(self) -> bytes | None:
        """The key."""
        return self._key

    def value(self) -> bytes | None:
        """The value."""
        return self._value

    def headers(self) -> _Headers:
        """The headers. Raises ``UnicodeDecodeError`` if a name is not UTF-8."""
        return [(name.decode(), value) for name, value in self._headers]

    def set_headers(self, headers: _Headers) -> None:
        """Replaces the headers."""
        self._headers = [(name.encode(), value) for name, value in headers]


@dataclass(frozen=True, slots=True)
class ParsedBatch:
    """A record batch.

    Args:
        base_offset: the offset of its first record.
        next_offset: the offset after the batch.
        transactional_producer: the producer id, if the batch is part of a transaction.
        bad_length_offset: the offset of the first record with a length below -1. librdkafka cannot parse such a batch.
            ``None`` without such a record.
        records: its records. A batch of transaction markers has none.
    """

    base_offset: int
    next_offset: int
    transactional_producer: int | None
    bad_length_offset: int | None
    records: tuple[ParsedRecord, ...]


def parse_batch(tp: TopicPartition, data: bytes, max_bytes: int) -> ParsedBatch:
    """Parses the first record batch of a response.

    Args:
        tp: the partition.
        data: the records of a Fetch response.
        max_bytes: the maximum size of the decompressed records.

    Raises:
        ValueError: if the batch is damaged, is too large, or has a message format before version 2.
    """
    try:
        base, length, _, magic, crc, attributes, delta, base_ms, max_ms, producer, _, _, n = _HEADER.unpack_from(data)
        end = _LOG_OVERHEAD + length
        if magic != MAGIC:
            raise ValueError(f"its message format {magic} is not supported")
        if not _HEADER.size <= end <= len(data):
            raise ValueError("it is truncated")
        if calc_crc32c(data[_AT_ATTRIBUTES:end]) != crc:
            raise ValueError("its CRC is wrong")
        found: tuple[ParsedRecord, ...] = ()
        parser = _Parser(b"")
        if not attributes & _CONTROL:
            parser = _Parser(_decompressed(attributes & _CODEC, data[_HEADER.size : end], max_bytes))
            log_append_ms = max_ms if attributes & _LOG_APPEND_TIME else None
            found = tuple(parser.record(tp, base, base_ms, log_append_ms) for _ in range(n))
            if not parser.is_at_end:
                raise ValueError("it has more records than its header states")
    except (struct.error, IndexError, OSError) as e:
        raise ValueError(f"it is damaged ({e})") from None
    transactional_producer = producer if attributes & _TRANSACTIONAL else None
    return ParsedBatch(base, base + delta + 1, transactional_producer, parser.bad_length_offset, found)


class _Parser:
    """Parses records one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self.bad_length_offset: int | None = None

    def record(self, tp: TopicPartition, base: int, base_ms: int, log_append_ms: int | None) -> ParsedRecord:
        size = self._number()
        end = self._at + size
        self._at += 1
        timestamp_ms = (base_ms + self._number() + _LONG // 2) % _LONG - _LONG // 2
        offset = base + self._number()
        key, value = self._bytes(offset), self._bytes(offset)
        n_headers = self._number()
        if n_headers < 0:
            raise ValueError("it has a negative number of headers")
        headers = [self._header() for _ in range(n_headers)]
        if self._at != end:
            raise ValueError("the size of a record is wrong")
        timestamp = TIMESTAMP_CREATE_TIME, timestamp_ms
        if log_append_ms is not None:
            timestamp = TIMESTAMP_LOG_APPEND_TIME, log_append_ms
        return ParsedRecord(tp, offset, timestamp, key, value, headers)

    def _header(self) -> tuple[bytes, bytes | None]:
        name = self._exactly(self._number())
        size = self._number()
        return name, None if size < 0 else self._exactly(size)

    def _bytes(self, offset: int) -> bytes | None:
        size = self._number()
        if size < _NO_VALUE and self.bad_length_offset is None:
            self.bad_length_offset = offset
        return None if size < 0 else self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if size < 0 or self._at > len(self._data):
            raise ValueError("a record is truncated")
        return self._data[start : self._at]

    def _number(self) -> int:
        """A signed number in the variable-length encoding of Protocol Buffers."""
        number = self.unsigned()
        return number >> 1 ^ -(number & 1)

    def unsigned(self) -> int:
        number = 0
        for shift in range(0, 64, 7):
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise ValueError("a number is longer than 64 bits")

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)


def _decompressed(codec: int, data: bytes, max_bytes: int) -> bytes:
    if codec == _NONE:
        return data
    if codec == _SNAPPY:
        found = _snappy(data, max_bytes)
    elif codec in _STREAMS:
        found = pa.CompressedInputStream(pa.BufferReader(data), _STREAMS[codec]).read(max_bytes + 1)
    else:
        raise ValueError(f"its codec {codec} is unknown")
    if len(found) > max_bytes:
        raise ValueError(f"its records are larger than {max_bytes} bytes")
    return found


def _snappy(data: bytes, max_bytes: int) -> bytes:
    """Decompresses blocks of snappy-java, or one block."""
    blocks, at = [data], len(data)
    if data.startswith(_SNAPPY_JAVA):
        blocks, at = [], _SNAPPY_START_BYTES
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        blocks.append(data[at + 4 : at + 4 + size])
        at += 4 + max(size, 0)
    found = bytearray()
    for block in blocks:
        # A block starts with its decompressed size.
        size = _Parser(block).unsigned()
        if len(found) + size > max_bytes:
            raise ValueError(f"its records are larger than {max_bytes} bytes")
        found += pa.decompress(block, decompressed_size=size, codec="snappy", asbytes=True)
    return bytes(found)
