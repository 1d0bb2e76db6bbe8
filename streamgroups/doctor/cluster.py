"""Checks a Kafka cluster: reachable brokers, release, group protocols and retention of offsets.

``streamgroups_cli.doctor`` calls this module. Sources: KIP-35 and KIP-584 (supported and finalized features), KIP-848
(``group.version``), Kafka's ``MetadataVersion`` (the release of a level), KIP-211 (offset retention).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamgroups.doctor.check_results import Finding, ok, problem, warning

#: Feature levels of ``metadata.version``, by the release that added them. A level between two belongs to the lower one.
_RELEASES = (
    ("3.3", 7),
    ("3.4", 8),
    ("3.5", 9),
    ("3.6", 12),
    ("3.7", 15),
    ("3.8", 20),
    ("3.9", 21),
    ("4.0", 22),
    ("4.1", 26),
    ("4.2", 28),
    ("4.3", 30),
)
_LAST_KNOWN_LEVEL = 30
_FIRST_LEVEL_OF_4_0 = 22
#: OffsetFetch with ``require_stable`` (KIP-447), in Kafka 2.5. Without it, a member can start at offsets that are not
#: stable.
_OFFSET_FETCH = 9
_STABLE_OFFSET_FETCH = 7

RETENTION = "offsets.retention.minutes"
METADATA_BYTES = "offset.metadata.max.bytes"
PROTOCOLS = "group.coordinator.rebalance.protocols"
#: The broker properties that are checked here.
SETTINGS = (RETENTION, METADATA_BYTES, PROTOCOLS)

_MINUTES_A_DAY = 24 * 60
_SHORT_RETENTION_DAYS = 3
_DEFAULT_METADATA_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Supported:
    """The features that one broker supports, and those that the cluster has finalized.

    Args:
        apis: the maximum version of each request, by its key.
        features: the maximum level of each feature that the broker supports.
        finalized: the level of each feature that is in use.
    """

    apis: Mapping[int, int]
    features: Mapping[str, int]
    finalized: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker of the cluster, at its advertised address.

    Args:
        node_id: its id.
        address: ``host:port``.
        unreachable: why the connection failed; empty if it succeeded.
        supported: its features; None if it did not return them.
    """

    node_id: int
    address: str
    unreachable: str = ""
    supported: Supported | None = None


@dataclass(frozen=True, slots=True)
class OffsetsTopic:
    """``__consumer_offsets``, which stores groups.

    Args:
        partitions: the number of partitions.
        leaderless: the number of partitions without a leader.
        replicas: the minimum number of replicas of a partition.
    """

    partitions: int
    leaderless: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that is reachable.

    Args:
        cluster_id: Kafka's id of the cluster; empty if it has none.
        brokers: all of its brokers.
        offsets_topic: None before the first commit of any group, or without permission to describe it.
        settings: broker properties by name; None without permission to read them, empty if no broker returned them.
        silent_servers: given addresses that did not respond, with the reason.
    """

    cluster_id: str
    brokers: tuple[Broker, ...]
    offsets_topic: OffsetsTopic | None = None
    settings: Mapping[str, str] | None = None
    silent_servers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterUnreachable:
    """A cluster without a reachable broker, or that rejected the login.

    Args:
        what, remedy: the message and the remedy of the client's error.
        final: whether the error is permanent.
    """

    what: str
    remedy: str
    final: bool = False


def judge_cluster(cluster: Cluster | ClusterUnreachable) -> list[Finding]:
    """Returns all check results of one cluster.

    >>> judge_cluster(ClusterUnreachable("localhost:1: connection refused.", "Start it."))[0].state.value
    'problem'
    """
    if isinstance(cluster, ClusterUnreachable):
        return [problem("cluster", cluster.what, cluster.remedy)]
    reachability = [*_servers(cluster), *_brokers(cluster)]
    if all(broker.unreachable for broker in cluster.brokers):
        return reachability  # no broker is available for the other checks
    return [
        *reachability,
        _release(cluster),
        _protocols(cluster),
        *_settings(cluster.settings),
        *_offsets_topic(cluster),
    ]


def release_of(level: int) -> str:
    """Returns the Kafka release that added a level of ``metadata.version``.

    >>> [release_of(level) for level in (1, 7, 25, 27, 30, 31)]
    ['before 3.3', '3.3', '4.0', '4.1', '4.3', 'after 4.3']
    """
    if level > _LAST_KNOWN_LEVEL:
        return f"after {_RELEASES[-1][0]}"
    return next((release for release, first in reversed(_RELEASES) if level >= first), "before 3.3")


def _servers(cluster: Cluster) -> list[Finding]:
    return [
        warning(
            "cluster",
            f"{address} from the bootstrap servers is not reachable: {why}.",
            "Remove it from the list, or start that broker. A client that tries it first waits in vain.",
        )
        for address, why in cluster.silent_servers
    ]


def _brokers(cluster: Cluster) -> list[Finding]:
    """Checks the advertised addresses, which clients use whichever address they connect to first."""
    count = len(cluster.brokers)
    in_use = f"{count} broker{'' if count == 1 else 's'}"
    away = [broker for broker in cluster.brokers if broker.unreachable]
    unreachable = [
        problem(
            "cluster",
            f"Broker {broker.node_id} advertises {broker.address}, which is not reachable: {broker.unreachable}.",
            "Set 'advertised.listeners' of that broker to an address that is reachable from this machine.",
        )
        for broker in away
    ]
    if len(away) == count:
        return unreachable
    named = f"Cluster {cluster.cluster_id} is reachable" if cluster.cluster_id else "The cluster is reachable"
    at = ", ".join(broker.address for broker in cluster.brokers if not broker.unreachable)
    return [ok("cluster", f"{named} at {at}.", in_use), *unreachable]


def _release(cluster: Cluster) -> Finding:
    told = [broker.supported for broker in cluster.brokers if broker.supported is not None]
    if not told:
        return ok("kafka", "The version of the brokers could not be read over this connection.")
    if any(supported.apis.get(_OFFSET_FETCH, 0) < _STABLE_OFFSET_FETCH for supported in told):
        return problem("kafka", "A broker is older than Kafka 2.5.", "Upgrade the brokers.", "before 2.5")
    levels = sorted({supported.features.get("metadata.version", 0) for supported in told})
    releases = list(dict.fromkeys(release_of(level) for level in levels))
    agreed = max(supported.finalized.get("metadata.version", 0) for supported in told)
    if len(releases) > 1:
        return warning(
            "kafka",
            f"The brokers run different releases. All of them support the features of {release_of(agreed)}.",
            "Finish the upgrade of the brokers.",
            ", ".join(releases),
        )
    if not agreed:
        return ok(
            "kafka", "The release is unknown: the brokers are older than 3.3, use ZooKeeper, or are not Apache Kafka."
        )
    behind = (
        "" if release_of(agreed) == releases[0] else f", of release {release_of(agreed)}: some features are disabled"
    )
    return ok("kafka", f"metadata.version is {agreed}{behind}.", releases[0])


def _protocols(cluster: Cluster) -> Finding:
    """Checks KIP-848, which requires the feature group.version and a coordinator in which it is not disabled."""
    told = [broker.supported for broker in cluster.brokers if broker.supported is not None]
    configured = (cluster.settings or {}).get(PROTOCOLS, "")
    if not told:
        return ok("groups", "The state of the consumer protocol (KIP-848) could not be read.", "classic")
    if any(supported.finalized.get("group.version", 0) < 1 for supported in told):
        # Not by the range of group.version: brokers hide features that can be disabled from clients before KIP-1022.
        possible = all(supported.features.get("metadata.version", 0) >= _FIRST_LEVEL_OF_4_0 for supported in told)
        upgrade = (
            "kafka-features.sh upgrade --feature group.version=1 enables it" if possible else "Kafka 4.0 supports it"
        )
        return ok("groups", f"The consumer protocol (KIP-848) is disabled; {upgrade}.", "classic")
    if configured and "consumer" not in configured:
        return ok(
            "groups",
            f"The consumer protocol (KIP-848) is disabled: the brokers' {PROTOCOLS} does not contain it.",
            "classic",
        )
    return ok("groups", "Both values of 'kafka.group.protocol' are supported.", "classic, consumer")


def _settings(settings: Mapping[str, str] | None) -> list[Finding]:
    if settings is None:
        return [
            warning(
                "offsets",
                "This user cannot read the settings of the brokers, so the retention of offsets is unknown.",
                "Grant DescribeConfigs on Cluster 'kafka-cluster'. Queries do not need it.",
            )
        ]
    if not settings:
        what = "No broker returned its settings, so the retention of offsets is unknown."
        return [warning("offsets", what, "Run the command again, and check the logs of the brokers.")]
    findings = [_retention(int(settings[RETENTION]))] if RETENTION in settings else []
    metadata_bytes = int(settings.get(METADATA_BYTES, _DEFAULT_METADATA_BYTES))
    if metadata_bytes < _DEFAULT_METADATA_BYTES:
        what = (
            f"The brokers accept {metadata_bytes} bytes of metadata with an offset; streamgroups assumes the default."
        )
        findings.append(warning("offsets", what, f"Set the brokers' {METADATA_BYTES} to {_DEFAULT_METADATA_BYTES}."))
    return findings


def _retention(minutes: int) -> Finding:
    in_use = f"{minutes} minutes" if minutes % _MINUTES_A_DAY else f"{minutes // _MINUTES_A_DAY} days"
    what = "A group without members loses its committed offsets after that time"
    if minutes < _SHORT_RETENTION_DAYS * _MINUTES_A_DAY:
        return warning(
            "offsets",
            f"{what}, which is shorter than a long weekend. A query that restarts later has no position.",
            f"Set the brokers' {RETENTION} to Kafka's default, 10080 (7 days), or more.",
            in_use,
        )
    return ok("offsets", f"{what}.", in_use)


def _offsets_topic(cluster: Cluster) -> list[Finding]:
    topic = cluster.offsets_topic
    if topic is None:
        return []
    if topic.leaderless:
        return [
            problem(
                "offsets",
                f"{topic.leaderless} of {topic.partitions} partitions of __consumer_offsets have no leader: members cannot "
                "join or commit in the groups of these partitions.",
                "Start the brokers that hold them.",
            )
        ]
    if topic.replicas == 1 and len(cluster.brokers) > 1:
        return [
            warning(
                "offsets",
                f"__consumer_offsets has one replica on {len(cluster.brokers)} brokers: the loss of a broker loses groups.",
                "Add replicas with kafka-reassign-partitions.sh. Set offsets.topic.replication.factor for new clusters.",
            )
        ]
    return []
