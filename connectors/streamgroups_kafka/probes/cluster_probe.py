"""Probes a cluster: reachable brokers, their advertised addresses, and the retention of offsets.

Called by ``streamgroups_cli.doctor``, whose result :mod:`streamgroups.doctor.cluster_checks` evaluates, and by an
:class:`~streamgroups_kafka.admin.connection.AdminSession` that cannot connect. It changes nothing in the cluster. Apart
from the broker settings, it sends only requests that a member of a group sends too. Sources: KIP-35, KIP-511
(ApiVersions), KIP-226 (DescribeConfigs).
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from streamgroups.doctor.cluster_checks import RETENTION, Broker, Cluster, ClusterUnreachable
from streamgroups.errors import LoginRejected, TokenUnavailable
from streamgroups.threads import in_threads
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.errors import is_rejected_certificate, to_streamgroups_error
from streamgroups_kafka.client.private_kafka_python import ApiVersionsRequest
from streamgroups_kafka.client.properties_file import as_in_a_file
from streamgroups_kafka.client.tls import uses_tls

#: The timeout of connections and the metadata request. Authentication with a token includes a request to its endpoint.
_TIMEOUT_S = 10.0
#: The timeout of a connection to a broker.
_CONNECT_TIMEOUT_S = 5.0
_AT_ONCE = 16
_CLIENT_ID = "streamgroups-doctor"
_CORRELATION_ID = 1
#: The length of a response, and its correlation id.
_BEGIN = struct.Struct(">ii")
#: A response of ApiVersions has a few hundred bytes. An HTTP server's "HTTP" is a length of 1.2 GB.
_MAX_RESPONSE_BYTES = 1 << 20
#: Permanent errors.
_FINAL = ("_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM")

_CHECK_ADDRESSES = "Check that the broker runs, and that it listens on this address and port."
_STRANGE = (
    "If the broker requires TLS, set security.protocol to SSL or SASL_SSL in --command-config; "
    "otherwise check the port."
)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The result of a connection to one address.

    Args:
        unreachable: why the connection failed; empty if it succeeded.
        strange: why the server does not use Kafka's protocol in plaintext; empty if it does, and with TLS.
        no_listener: whether no server listens there.
    """

    unreachable: str = ""
    strange: str = ""
    no_listener: bool = False


def probe_cluster(config: ClientConfig, *, timeout_s: float = _TIMEOUT_S) -> Cluster | ClusterUnreachable:
    """Returns all data about the cluster that ``doctor`` evaluates.

    Args:
        config: the configuration of the client.
        timeout_s: the timeout of the connections and of the metadata request after them, in seconds each.

    Raises:
        InvalidOption: if librdkafka rejects the configuration.
    """
    servers = (config.get("bootstrap.servers") or "").split(",")
    connect_timeout_s = min(timeout_s, _CONNECT_TIMEOUT_S)
    seen = dict(zip(servers, _probe_all(servers, config, connect_timeout_s), strict=True))
    rejection = _rejection(seen, config)
    if rejection is not None:
        return rejection
    try:
        client = _Client(config)
    except (LoginRejected, TokenUnavailable) as e:
        shown = as_in_a_file(e)
        return ClusterUnreachable(shown.what, shown.remedy, final=True)
    silent = tuple((server, found.unreachable) for server, found in seen.items() if found.unreachable)
    try:
        metadata = client.metadata(timeout_s)
    except KafkaException as e:
        brokers = _brokers(client.advertised, config)
        if any(broker.unreachable for broker in brokers):
            return Cluster("", brokers, silent_servers=silent)
        where = f"The cluster at {config.get('bootstrap.servers')}"
        error = as_in_a_file(to_streamgroups_error(e.args[0], where, redact=config.redact))
        return ClusterUnreachable(error.what, error.remedy, final=_is_final(e.args[0]))
    brokers = _brokers({node.id: f"{node.host}:{node.port}" for node in metadata.brokers.values()}, config)
    retention = _retention_minutes(client.admin, [broker.node_id for broker in brokers if not broker.unreachable])
    return Cluster(metadata.cluster_id or "", brokers, retention, silent)


class _Client:
    """A librdkafka client, with the data of its callbacks: authentication errors, and the brokers in its metadata.

    After the first metadata response, librdkafka uses only the advertised addresses. If they are wrong, a request of
    this probe may reach no broker. Then only the statistics contain the addresses.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.errors: list[KafkaError] = []
        self.advertised: dict[int, str] = {}
        settings: dict[str, Any] = {**config.for_admin(client_id=_CLIENT_ID), "log_level": 0}
        settings |= {"error_cb": self.errors.append, "stats_cb": self._read_statistics, "statistics.interval.ms": 100}
        self.admin = AdminClient(settings)

    def metadata(self, timeout_s: float) -> Any:
        """Returns the list of brokers in the cluster.

        Raises:
            KafkaException: the reason if the list is not available; without delay if the error is permanent.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return self.admin.list_topics(timeout=min(timeout_s, 1.0))
            except KafkaException as e:
                self.admin.poll(0)
                final = [error for error in self.errors if _is_final(error)]
                if final:
                    raise KafkaException(final[0]) from e
                if time.monotonic() > deadline or self._misled():
                    # The error that librdkafka was retrying has more information than the timeout.
                    raise KafkaException(self.errors[0] if self.errors else e.args[0]) from e

    def _misled(self) -> bool:
        """Whether the host names of the advertised brokers cannot be resolved: then retries cannot succeed."""
        return any(error.name() == "_RESOLVE" for error in self.errors) and bool(self.advertised)

    def _read_statistics(self, statistics: str) -> None:
        for broker in json.loads(statistics)["brokers"].values():
            if broker["source"] == "learned":
                self.advertised[broker["nodeid"]] = broker["nodename"]


def _is_final(error: KafkaError) -> bool:
    return error.name() in _FINAL or is_rejected_certificate(error)


def _rejection(seen: Mapping[str, _Seen], config: ClientConfig) -> ClusterUnreachable | None:
    """Returns an error that makes further requests pointless: librdkafka would retry them and report no reason."""
    if all(found.unreachable for found in seen.values()):
        details = "; ".join(f"{server}: {found.unreachable}" for server, found in seen.items())
        no_listener = all(found.no_listener for found in seen.values())
        return ClusterUnreachable(f"No broker can be reached. {details}.", _CHECK_ADDRESSES, no_listener=no_listener)
    if not uses_tls(config) and all(found.unreachable or found.strange for found in seen.values()):
        details = "; ".join(f"{server}: {found.unreachable or found.strange}" for server, found in seen.items())
        return ClusterUnreachable(
            f"No server at these addresses uses Kafka's protocol in plaintext. {details}.", _STRANGE, final=True
        )
    return None


def _brokers(addresses: Mapping[int, str], config: ClientConfig) -> tuple[Broker, ...]:
    """Returns the brokers at their advertised addresses, ordered by id."""
    node_ids = sorted(addresses)
    seen = _probe_all([addresses[node_id] for node_id in node_ids], config)
    return tuple(
        Broker(node_id, addresses[node_id], found.unreachable) for node_id, found in zip(node_ids, seen, strict=True)
    )


def _probe_all(addresses: Sequence[str], config: ClientConfig, timeout_s: float = _CONNECT_TIMEOUT_S) -> list[_Seen]:
    # The lookup of a name can hang, and the program can end before.
    return list(in_threads(lambda address: _probe_one(address, config, timeout_s), addresses, _AT_ONCE))


def _probe_one(address: str, config: ClientConfig, timeout_s: float) -> _Seen:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        connection = socket.create_connection((host, int(port)), timeout=timeout_s)
    except (socket.gaierror, UnicodeError):
        # Python encodes a name before it resolves it: an empty or a long label is a UnicodeError.
        return _Seen("unknown host")
    except TimeoutError:
        return _Seen(f"no response within {timeout_s:g} s")
    except OSError as e:
        reason = os.strerror(e.errno).lower() if e.errno else str(e)
        return _Seen(reason, no_listener=isinstance(e, ConnectionRefusedError))
    with connection:
        # librdkafka reports the errors of TLS in detail.
        return _Seen() if uses_tls(config) else _Seen(strange=strangeness(connection))


def strangeness(connection: socket.socket) -> str:
    """Returns why a server does not use Kafka's protocol over this connection; empty if it does.

    A broker responds to ApiVersions before authentication, so no credentials are needed.

    Args:
        connection: a new connection. Its timeout applies to each read.
    """
    request = ApiVersionsRequest(version=3, client_software_name=_CLIENT_ID, client_software_version="1")
    request.with_header(correlation_id=_CORRELATION_ID, client_id=_CLIENT_ID)
    begin = b""
    try:
        connection.sendall(bytes(request.encode(header=True, framed=True)))
        while len(begin) < _BEGIN.size:
            if not (part := connection.recv(_BEGIN.size - len(begin))):
                return "the server closed the connection"
            begin += part
    except OSError:
        # It may respond later: librdkafka decides.
        return ""
    length, correlation_id = _BEGIN.unpack(begin)
    is_kafka = _BEGIN.size <= length <= _MAX_RESPONSE_BYTES and correlation_id == _CORRELATION_ID
    return "" if is_kafka else "the response is not in Kafka's protocol"


def _retention_minutes(admin: AdminClient, node_ids: Sequence[int]) -> int | None:
    """Returns the setting of the first broker that returns it to this user."""
    for node_id in node_ids:
        resource = ConfigResource(ResourceType.BROKER, str(node_id))
        try:
            found = admin.describe_configs([resource], request_timeout=_CONNECT_TIMEOUT_S)[resource].result()
        except KafkaException:
            continue
        if RETENTION in found and found[RETENTION].value is not None:
            return int(found[RETENTION].value)
    return None
