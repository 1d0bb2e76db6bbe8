"""Checks a Kafka cluster: reachable brokers, and the retention of offsets.

``streamgroups_cli.doctor`` calls this module. Everything else about a cluster (its release, its group protocols, its
ACLs) is an error of the command or the query that needs it. Source: KIP-211 (offset retention).
"""

from __future__ import annotations

from dataclasses import dataclass

from streamgroups.doctor.check_results import CheckResult, ok, problem, warning

#: The broker property with the retention of offsets.
RETENTION = "offsets.retention.minutes"
_MINUTES_A_DAY = 24 * 60
_SHORT_RETENTION_DAYS = 3


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker of the cluster, at its advertised address.

    Args:
        node_id: its id.
        address: ``host:port``.
        unreachable: why the connection failed; empty if it succeeded.
    """

    node_id: int
    address: str
    unreachable: str = ""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that is reachable.

    Args:
        cluster_id: Kafka's id of the cluster; empty if it has none.
        brokers: all of its brokers.
        retention_minutes: how long a group without members keeps its offsets; ``None`` if no broker returned it.
        silent_servers: given addresses that did not respond, with the reason.
    """

    cluster_id: str
    brokers: tuple[Broker, ...]
    retention_minutes: int | None = None
    silent_servers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterUnreachable:
    """A cluster without a reachable broker, or that rejected the login.

    Args:
        what, remedy: the message and the remedy of the client's error.
        final: whether the error is permanent.
        no_listener: whether no server listens at any of the addresses.
    """

    what: str
    remedy: str
    final: bool = False
    no_listener: bool = False


def judge_cluster(cluster: Cluster | ClusterUnreachable) -> list[CheckResult]:
    """Returns all check results of one cluster.

    >>> judge_cluster(ClusterUnreachable("localhost:1: connection refused.", "Start it."))[0].state.value
    'problem'
    """
    if isinstance(cluster, ClusterUnreachable):
        return [problem("cluster", cluster.what, cluster.remedy)]
    reachability = [*_servers(cluster), *_brokers(cluster)]
    if all(broker.unreachable for broker in cluster.brokers):
        return reachability  # no broker is available for the other check
    return [*reachability, _retention(cluster.retention_minutes)]


def _servers(cluster: Cluster) -> list[CheckResult]:
    return [
        warning(
            "cluster",
            f"{address} from the bootstrap servers is not reachable: {why}.",
            "Remove it from the list, or start that broker. A client that tries it first waits in vain.",
        )
        for address, why in cluster.silent_servers
    ]


def _brokers(cluster: Cluster) -> list[CheckResult]:
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


def _retention(minutes: int | None) -> CheckResult:
    if minutes is None:
        return warning(
            "offsets",
            "No broker returned its settings to this user, so the retention of offsets is unknown.",
            "Grant DescribeConfigs on Cluster 'kafka-cluster'. Queries do not need it.",
        )
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
