"""Probes a cluster for ``streamgroups doctor``: reachable brokers, their advertised addresses, features and settings.

Called by ``streamgroups_cli.doctor``; :mod:`streamgroups.doctor.cluster` evaluates the result. It changes nothing in
the cluster. Apart from the broker settings, it sends only requests that a member of a group sends too. Sources: KIP-35,
KIP-226 (DescribeConfigs).
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from streamgroups.doctor.cluster import SETTINGS, Broker, Cluster, ClusterUnreachable, OffsetsTopic, Supported
from streamgroups.errors import NotAuthorized, TokenUnavailable
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.errors import is_rejected_certificate, to_streamgroups_error
from streamgroups_kafka.client.properties_file import as_in_a_file
from streamgroups_kafka.client.tls import tls_context, uses_tls
from streamgroups_kafka.probes.api_versions import NotKafka, request_versions

#: The timeout of connections and the metadata request. Authentication with a token includes a request to its endpoint.
_TIMEOUT_S = 10.0
#: The timeout of a connection to a broker.
_CONNECT_TIMEOUT_S = 5.0
_AT_ONCE = 16
_OFFSETS_TOPIC = "__consumer_offsets"
#: Permanent errors.
_FINAL = ("_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM")

_NOBODY = "Check that the broker runs, and that it listens on this address and port."
_STRANGE = (
    "If the broker requires TLS, set security.protocol to SSL or SASL_SSL in --command-config; "
    "otherwise check the port."
)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The result of a connection to one address.

    Args:
        unreachable: why the connection failed; empty if it succeeded.
        supported: the response of the broker; ``None`` without one.
        strange: the defect of the response.
    """

    unreachable: str = ""
    supported: Supported | None = None
    strange: str = ""


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
    seen = dict(zip(servers, _look_at(servers, config, connect_timeout_s), strict=True))
    rejection = _rejection(seen, config)
    if rejection is not None:
        return rejection
    try:
        client = _Client(config)
    except (NotAuthorized, TokenUnavailable) as e:
        shown = as_in_a_file(e)
        return ClusterUnreachable(shown.what, shown.remedy, final=True)
    silent = tuple((server, found.unreachable) for server, found in seen.items() if found.unreachable)
    try:
        metadata = client.metadata(timeout_s)
    except KafkaException as e:
        brokers = _brokers(client.learned, config)
        if any(broker.unreachable for broker in brokers):
            return Cluster("", brokers, settings={}, silent_servers=silent)
        where = f"The cluster at {config.get('bootstrap.servers')}"
        error = as_in_a_file(to_streamgroups_error(e.args[0], where, redact=config.redact))
        return ClusterUnreachable(error.what, error.remedy, final=_is_final(e.args[0]))
    brokers = _brokers({node.id: f"{node.host}:{node.port}" for node in metadata.brokers.values()}, config)
    settings = _broker_settings(client.admin, [broker.node_id for broker in brokers if not broker.unreachable])
    return Cluster(metadata.cluster_id or "", brokers, _offsets_topic(metadata), settings, silent)


class _Client:
    """A librdkafka client, with the data of its callbacks: authentication errors, and the brokers in its metadata.

    After the first metadata response, librdkafka uses only the advertised addresses. If they are wrong, a request of
    this probe may reach no broker. Then only the statistics contain the addresses.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.errors: list[KafkaError] = []
        self.learned: dict[int, str] = {}
        settings: dict[str, Any] = {**config.for_admin(client_id="streamgroups-doctor"), "log_level": 0}
        settings |= {"error_cb": self.errors.append, "stats_cb": self._learn, "statistics.interval.ms": 100}
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
        return any(error.name() == "_RESOLVE" for error in self.errors) and bool(self.learned)

    def _learn(self, statistics: str) -> None:
        for broker in json.loads(statistics)["brokers"].values():
            if broker["source"] == "learned":
                self.learned[broker["nodeid"]] = broker["nodename"]


def _is_final(error: KafkaError) -> bool:
    return error.name() in _FINAL or is_rejected_certificate(error)


def _rejection(seen: Mapping[str, _Seen], config: ClientConfig) -> ClusterUnreachable | None:
    """Returns an error that makes further requests pointless: librdkafka would retry them and report no reason."""
    if all(found.unreachable for found in seen.values()):
        told = "; ".join(f"{server}: {found.unreachable}" for server, found in seen.items())
        return ClusterUnreachable(f"No broker can be reached. {told}.", _NOBODY)
    if not uses_tls(config) and all(found.unreachable or found.strange for found in seen.values()):
        told = "; ".join(f"{server}: {found.unreachable or found.strange}" for server, found in seen.items())
        return ClusterUnreachable(
            f"No server at these addresses uses Kafka's protocol in plaintext. {told}.", _STRANGE, final=True
        )
    return None


def _brokers(addresses: Mapping[int, str], config: ClientConfig) -> tuple[Broker, ...]:
    """Returns the brokers at their advertised addresses, ordered by id."""
    node_ids = sorted(addresses)
    seen = _look_at([addresses[node_id] for node_id in node_ids], config)
    return tuple(
        Broker(node_id, addresses[node_id], found.unreachable, found.supported)
        for node_id, found in zip(node_ids, seen, strict=True)
    )


def _look_at(addresses: Sequence[str], config: ClientConfig, timeout_s: float = _CONNECT_TIMEOUT_S) -> list[_Seen]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda address: _look_at_one(address, config, timeout_s), addresses))


def _look_at_one(address: str, config: ClientConfig, timeout_s: float) -> _Seen:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        connection = socket.create_connection((host, int(port)), timeout=timeout_s)
    except socket.gaierror:
        return _Seen("unknown host")
    except TimeoutError:
        return _Seen(f"no response within {timeout_s:g} s")
    except OSError as e:
        return _Seen(os.strerror(e.errno).lower() if e.errno else str(e))
    with connection:
        try:
            tls = tls_context(config)
            if tls is None:
                return _Seen(supported=request_versions(connection))
            with tls.wrap_socket(connection, server_hostname=host) as wrapped:
                return _Seen(supported=request_versions(wrapped))
        except NotKafka as e:
            return _Seen(strange=str(e))
        except OSError:
            # Python's TLS does not support all settings of librdkafka, so the result of librdkafka decides.
            return _Seen()


def _offsets_topic(metadata: Any) -> OffsetsTopic | None:
    # A topic that this user may not describe has no partitions.
    topic = metadata.topics.get(_OFFSETS_TOPIC)
    if topic is None or not topic.partitions:
        return None
    partitions = topic.partitions.values()
    return OffsetsTopic(
        len(partitions), sum(p.leader < 0 for p in partitions), min(len(p.replicas) for p in partitions)
    )


def _broker_settings(admin: AdminClient, node_ids: Sequence[int]) -> dict[str, str] | None:
    """Returns the settings of the first broker that responds; empty without a response, ``None`` if this user is not
    authorized.
    """
    for node_id in node_ids:
        resource = ConfigResource(ResourceType.BROKER, str(node_id))
        try:
            found = admin.describe_configs([resource], request_timeout=_CONNECT_TIMEOUT_S)[resource].result()
        except KafkaException as e:
            if e.args[0].name() == "CLUSTER_AUTHORIZATION_FAILED":
                return None
            continue
        return {name: found[name].value for name in SETTINGS if name in found and found[name].value is not None}
    return {}
