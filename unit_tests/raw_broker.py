"""A broker with arbitrary bytes of a hostile producer: librdkafka's mock cluster, and hand-made record batches.

Used by ``test_hostile_records``. A real broker checks the sizes and the CRC of a batch, but not its headers or
timestamps. Source: Kafka's protocol: Produce version 7, record batches version 2.
"""

from __future__ import annotations

import gzip
import socket
import struct
import time

from confluent_kafka import Producer


class RawBroker:
    """One mock broker. Its topics have four partitions each and are created on first use."""

    def __init__(self) -> None:
        self._cluster = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": "1", "log_level": "0"})
        (broker,) = self._cluster.list_topics(timeout=10).brokers.values()
        self._address = (broker.host, broker.port)
        self.bootstrap = f"{broker.host}:{broker.port}"

    def create_topic(self, topic: str) -> None:
        """Creates a topic."""
        deadline_s = time.monotonic() + 10
        while self._cluster.list_topics(topic, timeout=10).topics[topic].error is not None:
            assert time.monotonic() < deadline_s, topic

    def append(self, topic: str, batch: bytes, partition: int = 0) -> None:
        """Appends the bytes of a batch unchanged."""
        name = struct.pack(">h", len(topic)) + topic.encode()
        data = struct.pack(">iii", 1, partition, len(batch)) + batch
        body = struct.pack(">hhii", -1, -1, 10_000, 1) + name + data
        request = struct.pack(">hhih", 0, 7, 1, -1) + body
        with socket.create_connection(self._address, timeout=10) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            _exactly(connection, size)

    def close(self) -> None:
        """Stops the broker."""
        del self._cluster


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        part = connection.recv(count - len(received))
        assert part, "the mock broker closed the connection"
        received += part
    return received


def varint(number: int) -> bytes:
    """A signed number in the encoding of records."""
    left = (number << 1 ^ number >> 63) & (1 << 64) - 1
    found = b""
    while left >= 0x80:
        found += bytes([left & 0x7F | 0x80])
        left >>= 7
    return found + bytes([left])


def header(name: bytes, value: bytes | None = b"") -> bytes:
    """One header."""
    return varint(len(name)) + name + (varint(-1) if value is None else varint(len(value)) + value)


def record(number: int, value: bytes = b"v", headers: tuple[bytes, ...] = ()) -> bytes:
    """One record without a key."""
    body = b"\0\0" + varint(number) + varint(-1) + varint(len(value)) + value + varint(len(headers)) + b"".join(headers)
    return varint(len(body)) + body


def batch(*records: bytes, timestamp_ms: int = 1_000, compressed: bool = False) -> bytes:
    """A batch of records with one timestamp."""
    body, n = b"".join(records), len(records)
    if compressed:
        body = gzip.compress(body)
    after = struct.pack(">hiqqqhii", int(compressed), n - 1, timestamp_ms, timestamp_ms, -1, -1, -1, n) + body
    tail = struct.pack(">ibI", 0, 2, _crc32c(after)) + after
    return struct.pack(">qi", 0, len(tail)) + tail


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = [_entry(byte) for byte in range(256)]


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
