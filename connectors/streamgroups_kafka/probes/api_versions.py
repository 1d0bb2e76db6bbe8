"""Requests the supported API versions of one broker. librdkafka sends ApiVersions too, but does not expose the
response.

Called by ``streamgroups_kafka.probes.cluster``. A broker responds before authentication, so no credentials are needed.
With TLS it may require a certificate. Sources: the protocol guide (ApiVersions v3), KIP-482 (compact types, tagged
fields), KIP-511 (names the client), KIP-584 (features).
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from streamgroups.doctor.cluster import Supported

_API_VERSIONS = 18
_VERSION = 3
_CORRELATION_ID = 1
_CLIENT = "streamgroups-doctor"

_UNSUPPORTED_VERSION = 35
_SUPPORTED_FEATURES, _FINALIZED_FEATURES = 0, 2
#: A response has a few hundred bytes. A much larger length is not Kafka's protocol (an HTTP server's "HTTP" is 1.2 GB).
_MAX_BYTES = 1 << 20


class NotKafka(Exception):
    """The server does not use Kafka's protocol, or not over this kind of connection."""


def request() -> bytes:
    """Returns the request with its length prefix.

    >>> request()[4:10].hex()
    '001200030000'
    """
    header = struct.pack(">hhi", _API_VERSIONS, _VERSION, _CORRELATION_ID) + _string(_CLIENT) + b"\0"
    body = header + _compact(_CLIENT) + _compact("1") + b"\0"
    return struct.pack(">i", len(body)) + body


def parse(response: bytes) -> Supported:
    """Parses a response.

    Args:
        response: the bytes without the length prefix.

    Raises:
        NotKafka: if these are not the bytes of a response.

    >>> parse(bytes.fromhex("00000001 0000 02 0012 0000 0004 00 00000000 00")).apis
    {18: 4}
    """
    fields = _Fields(response)
    try:
        if fields.int32() != _CORRELATION_ID:
            raise NotKafka("the response has an unexpected correlation id")
        error = fields.int16()
        if error == _UNSUPPORTED_VERSION:
            # Brokers before 2.4 do not support version 3. They respond with version 0, whose array is not compact.
            return Supported(_apis(fields, fields.int32(), tagged=False), {}, {})
        if error:
            raise NotKafka(f"the response contains error {error}")
        apis = _apis(fields, fields.uvarint() - 1, tagged=True)
        fields.int32()  # throttle time in ms
        tags = fields.tags()
        return Supported(apis, _features(tags.get(_SUPPORTED_FEATURES)), _finalized(tags.get(_FINALIZED_FEATURES)))
    except (struct.error, IndexError, UnicodeDecodeError) as e:
        raise NotKafka("the response is incomplete") from e


def ask(connection: socket.socket) -> Supported:
    """Requests the API versions over a new connection, with TLS if the broker requires it.

    Args:
        connection: the connection. Its timeout applies to each read.

    Raises:
        OSError: if the connection breaks, or the timeout expires.
        NotKafka: if the server does not use Kafka's protocol.
    """
    connection.sendall(request())
    (length,) = struct.unpack(">i", _exactly(connection, 4))
    if not 0 < length <= _MAX_BYTES:
        raise NotKafka("the response is not in Kafka's protocol")
    return parse(_exactly(connection, length))


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        part = connection.recv(count - len(received))
        if not part:
            raise NotKafka("the server closed the connection")
        received += part
    return received


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _compact(text: str) -> bytes:
    # A length below 127 is one byte of a varint. The compact types encode the length plus one.
    return bytes([len(text) + 1]) + text.encode()


@dataclass
class _Fields:
    """Reads Kafka's primitive types one after the other."""

    data: bytes
    at: int = 0

    def int16(self) -> int:
        return self._fixed(">h", 2)

    def int32(self) -> int:
        return self._fixed(">i", 4)

    def uvarint(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def take(self, count: int) -> bytes:
        taken = self.data[self.at : self.at + count]
        if len(taken) != count:
            raise IndexError(count)
        self.at += count
        return taken

    def text(self) -> str:
        return self.take(self.uvarint() - 1).decode()

    def tags(self) -> dict[int, bytes]:
        return {self.uvarint(): self.take(self.uvarint()) for _ in range(self.uvarint())}

    def _fixed(self, form: str, count: int) -> int:
        (value,) = struct.unpack(form, self.take(count))
        return int(value)


def _apis(fields: _Fields, count: int, *, tagged: bool) -> dict[int, int]:
    """Request types: key, lowest version, highest version."""
    newest = {}
    for _ in range(count):
        key, _oldest, newest_version = fields.int16(), fields.int16(), fields.int16()
        newest[key] = newest_version
        if tagged:
            fields.tags()
    return newest


def _features(data: bytes | None) -> dict[str, int]:
    """Supported features: name, lowest level, highest level."""
    return {name: highest for name, _lowest, highest in _levels(data)}


def _finalized(data: bytes | None) -> dict[str, int]:
    """Finalized features: name, highest level, lowest level."""
    return {name: highest for name, highest, _lowest in _levels(data)}


def _levels(data: bytes | None) -> list[tuple[str, int, int]]:
    levels = []
    fields = _Fields(data or b"\1")
    for _ in range(fields.uvarint() - 1):
        levels.append((fields.text(), fields.int16(), fields.int16()))
        fields.tags()
    return levels
