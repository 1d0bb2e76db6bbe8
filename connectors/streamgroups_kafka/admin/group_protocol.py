"""Checks that the brokers support the group protocol of a query, before it joins.

Called by ``admin.cluster`` at the start of queries and cursors. librdkafka requires version 1 of ConsumerGroupHeartbeat,
which Kafka 4.0 introduced. With older brokers it retries forever and reports no error. A broker responds to ApiVersions
before a login, so one exchange over a new connection suffices. kafka-python would need 90 ms for its import and 4 ms for a
session, in which it requests more. Version 0 of the request has a header only, and its response has numbers only. Source:
KIP-848, KIP-35; the protocol guide (request header v1, ApiVersions v0).
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Iterable, Mapping

from streamgroups.errors import GroupRejected, InvalidOption
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.tls import tls_context

logger = logging.getLogger(__name__)

_API_VERSIONS, _HEARTBEAT, _MIN_VERSION = 18, 68, 1
#: The key and the version of the request, a correlation id, and the length of a client id that is null.
_REQUEST = struct.pack(">ihhih", 10, _API_VERSIONS, 0, 1, -1)
#: How long one broker may take.
_TIMEOUT_S = 3.0
#: A response has a few hundred bytes.
_MAX_BYTES = 1 << 20


def check_group_protocol(config: ClientConfig, brokers: Iterable[tuple[str, int]]) -> None:
    """Checks the brokers of a client with the protocol ``consumer``. Every broker supports ``classic``.

    Without a response there is no error. librdkafka has connected before, and has TLS settings that Python's TLS does not
    have.

    Args:
        config: the configuration of the client.
        brokers: the hosts and ports of the brokers. The first one that responds decides.

    Raises:
        GroupRejected: if a broker does not support the protocol.
    """
    for host, port in brokers:
        try:
            found = request_versions(config, host, port)
        except (OSError, ValueError, InvalidOption) as e:
            logger.debug("%s:%d did not return its versions: %s", host, port, config.redact(str(e)))
            continue
        if supports_consumer_protocol(found):
            return
        raise GroupRejected(
            f"The brokers at {config.get('bootstrap.servers')} do not support 'kafka.group.protocol=consumer' (KIP-848).",
            remedy="Upgrade the brokers to Kafka 4.0 or newer, or set 'kafka.group.protocol=classic', also for the other "
            "members of the group.",
        )


def request_versions(config: ClientConfig, host: str, port: int) -> dict[int, int]:
    """Requests the latest version of each request that a broker supports, over a new connection.

    Args:
        config: the configuration of the client.
        host, port: the address of the broker.

    Returns:
        The versions, by the key of the request.

    Raises:
        OSError: if the connection fails, or a part of the response does not arrive in time.
        ValueError: if the response is invalid.
        InvalidOption: if a store for TLS is invalid.
    """
    tls = tls_context(config)
    with socket.create_connection((host, port), timeout=_TIMEOUT_S) as plain:
        connection = plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
        with connection, connection.makefile("rb") as answer:
            connection.sendall(_REQUEST)
            size = int.from_bytes(answer.read(4), "big")
            return parse_versions(answer.read(min(size, _MAX_BYTES)))


def parse_versions(response: bytes) -> dict[int, int]:
    """Parses a response.

    Args:
        response: the bytes without the length prefix: a correlation id, an error, and for each request its key, its first
            and its latest version.

    Returns:
        The latest version of each request, by its key.

    Raises:
        ValueError: if these are not the bytes of a response.

    >>> parse_versions(bytes.fromhex("00000001 0000 00000002 0012 0000 0004 0044 0000 0001"))
    {18: 4, 68: 1}
    """
    try:
        correlation_id, error, count = struct.unpack_from(">ihi", response)
        if (correlation_id, error) != (1, 0) or count < 0:
            raise ValueError("it is no response to ApiVersions")
        found = [struct.unpack_from(">hhh", response, 10 + 6 * i) for i in range(count)]
    except struct.error as e:
        raise ValueError("the response is incomplete") from e
    return {key: latest for key, _, latest in found}


def supports_consumer_protocol(max_versions: Mapping[int, int]) -> bool:
    """Returns whether a broker supports the group protocol ``consumer`` as librdkafka requires it.

    Args:
        max_versions: the latest version of each request that the broker supports, by the key of the request.

    >>> supports_consumer_protocol({68: 1}), supports_consumer_protocol({68: 0}), supports_consumer_protocol({})
    (True, False, False)
    """
    return max_versions.get(_HEARTBEAT, -1) >= _MIN_VERSION
