"""A broker with arbitrary bytes of a hostile producer: librdkafka's mock cluster, and hand-made record batches.

Used by ``test_hostile_records``. A real broker checks the sizes and the CRC of a batch, but not its headers or
timestamps. Source: Kafka's protocol: Produce version 7, record batches version 2.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, Producer

from streamgroups.partitions import TopicPartition
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.write.compression import CODECS, Compression


class RawBroker:
    """One mock broker. Its topics have four partitions each and are created on first use."""

    def __init__(self) -> None:
        self._cluster = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": "1", "log_level": "0"})
        (broker,) = self._cluster.list_topics(timeout=10).brokers.values()
        self._address = (broker.host, broker.port)
        self.bootstrap = f"{broker.host}:{broker.port}"
        #: The stored batches.
        self.log: defaultdict[TopicPartition, list[bytes]] = defaultdict(list)

    def create_topic(self, topic: str) -> None:
        """Creates a topic."""
        deadline_s = time.monotonic() + 10
        while self._cluster.list_topics(topic, timeout=10).topics[topic].error is not None:
            assert time.monotonic() < deadline_s, topic

    def append(self, topic: str, batch: bytes, partition: int = 0) -> None:
        """Appends the bytes of a batch unchanged."""
        assert produce(self._address, topic, batch, partition) == 0
        log = self.log[TopicPartition(topic, partition)]
        base = end_of(log[-1]) if log else 0
        log.append(struct.pack(">q", base) + batch[8:])

    def close(self) -> None:
        """Stops the broker."""
        del self._cluster


@dataclass
class RawSession:
    """Replaces ``AdminSession``, because kafka-python cannot connect to the mock cluster.

    Args:
        log: the batches of each partition.
        aborted: the aborted transactions in each response.
    """

    log: Mapping[TopicPartition, Sequence[bytes]]
    aborted: Sequence[Any] = ()
    error_code: int = 0
    requests: list[Any] = field(default_factory=list)
    closed: int = 0

    def once(self, what: str, request: Callable[..., Coroutine[Any, Any, Any]], *args: object) -> Any:
        try:
            request(*args).send(None)
        except StopIteration as e:
            return e.value
        raise AssertionError("a request waits")

    async def send(self, request: Any, node_id: int | None = None) -> Any:
        self.requests.append(request)
        if type(request).__name__ == "MetadataRequest":
            assert request.topics is not None
            partitions = [
                SimpleNamespace(partition_index=tp.partition, leader_id=7)
                for tp in self.log
                if tp.topic == request.topics[0].name
            ]
            return SimpleNamespace(topics=[SimpleNamespace(error_code=0, partitions=partitions)])
        assert node_id == 7
        (required,) = request.topics[0].partitions
        log = self.log[TopicPartition(request.topics[0].topic, required.partition)]
        records = next((it for it in log if end_of(it) > required.fetch_offset), b"")
        aborted = self.aborted if request.isolation_level else None
        part = SimpleNamespace(error_code=self.error_code, records=records, aborted_transactions=aborted)
        return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=[part])])

    def check(self, error_code: int, what: str, *, topic: str | None = None) -> None:
        if error_code:
            raise to_streamgroups_error(KafkaError(error_code), what, topic=topic)

    def close(self) -> None:
        self.closed += 1


def end_of(batch: bytes) -> int:
    """The offset after a stored batch."""
    base, _, _, _, _, _, delta = struct.unpack_from(">qiibIhi", batch)
    end: int = base + delta + 1
    return end


def produce(address: tuple[str, int], topic: str, batch: bytes, partition: int = 0) -> int:
    """Sends the bytes of a batch to the leader of a partition. Returns the error code."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    data = struct.pack(">iii", 1, partition, len(batch)) + batch
    body = struct.pack(">hhii", -1, -1, 10_000, 1) + name + data
    request = struct.pack(">hhih", 0, 7, 1, -1) + body
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        response = _exactly(connection, size)
    # Correlation id, count of topics, name, count of partitions, partition, error code.
    error_code: int = struct.unpack_from(">h", response, 8 + len(name) + 8)[0]
    return error_code


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


def record(
    number: int,
    value: bytes = b"v",
    headers: tuple[bytes, ...] = (),
    *,
    key_size: int = -1,
    value_size: int | None = None,
) -> bytes:
    """One record without a key. A size that is negative has no bytes."""
    body = b"\0\0" + varint(number) + varint(key_size)
    body += varint(len(value)) + value if value_size is None else varint(value_size)
    body += varint(len(headers)) + b"".join(headers)
    return varint(len(body)) + body


def batch(
    *records: bytes,
    timestamp_ms: int = 1_000,
    compressed: bool = False,
    codec: str = "none",
    attributes: int = 0,
    producer_id: int = -1,
    body: bytes | None = None,
) -> bytes:
    """A batch of records with one timestamp.

    Args:
        records: the records.
        timestamp_ms: the timestamp.
        compressed: whether they are compressed with gzip.
        codec: the codec, if it is not gzip.
        attributes: the attributes other than the codec.
        producer_id: the producer id.
        body: the bytes that replace the records.
    """
    codec = "gzip" if compressed else codec
    n = len(records)
    if body is None:
        body = b"".join(records)
        body = body if codec == "none" else Compression(codec).compress(memoryview(body))
    attributes |= CODECS[codec]
    after = struct.pack(">hiqqqhii", attributes, n - 1, timestamp_ms, timestamp_ms, producer_id, -1, -1, n) + body
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
