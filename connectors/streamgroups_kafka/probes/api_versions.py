"""Requests the supported API versions of one broker. librdkafka sends ApiVersions too, but does not expose the
response.

Called by ``streamgroups_kafka.probes.cluster``. A broker responds before authentication, so no credentials are needed.
With TLS it may require a certificate. ``kafka.protocol`` encodes the request and decodes the response. Its connections
are not used: they authenticate, and do not distinguish a server that is no broker. Sources: the protocol guide
(ApiVersions v3), KIP-511 (names the client), KIP-584 (features).
"""

from __future__ import annotations

import socket
import struct

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from streamgroups.doctor.cluster import Supported

_VERSION = 3
_CORRELATION_ID = 1
_CLIENT = "streamgroups-doctor"

_UNSUPPORTED_VERSION = 35
#: A response has a few hundred bytes. A much larger length is not Kafka's protocol (an HTTP server's "HTTP" is 1.2 GB).
_MAX_BYTES = 1 << 20


class NotKafka(Exception):
    """The server does not use Kafka's protocol, or not over this kind of connection."""


def request() -> bytes:
    """Returns the request with its length prefix.

    >>> request()[4:10].hex()
    '001200030000'
    """
    message = ApiVersionsRequest(version=_VERSION, client_software_name=_CLIENT, client_software_version="1")
    message.with_header(correlation_id=_CORRELATION_ID, client_id=_CLIENT)
    return bytes(message.encode(header=True, framed=True))


def parse(response: bytes) -> Supported:
    """Parses a response.

    Args:
        response: the bytes without the length prefix.

    Raises:
        NotKafka: if these are not the bytes of a response.

    >>> parse(bytes.fromhex("00000001 0000 02 0012 0000 0004 00 00000000 00")).apis
    {18: 4}
    """
    try:
        correlation_id, error = struct.unpack_from(">ih", response)
        if correlation_id != _CORRELATION_ID:
            raise NotKafka("the response has an unexpected correlation id")
        if error not in (0, _UNSUPPORTED_VERSION):
            raise NotKafka(f"the response contains error {error}")
        # Brokers before 2.4 do not support version 3. They respond with an error and version 0, which it decodes too.
        message = ApiVersionsResponse.decode(response, version=_VERSION, header=True)
    # kafka-python asserts that fields contain no tags of later versions.
    except (struct.error, IndexError, ValueError, AssertionError) as e:
        raise NotKafka("the response is incomplete") from e
    return Supported(
        {api.api_key: api.max_version for api in message.api_keys or ()},
        {feature.name: feature.max_version for feature in message.supported_features or ()},
        {feature.name: feature.max_version_level for feature in message.finalized_features or ()},
    )


def request_versions(connection: socket.socket) -> Supported:
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
