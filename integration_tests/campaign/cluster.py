"""The cluster of a campaign: its properties, and the proof that it has them. Used by ``integration_tests.campaign``.

With three brokers each write needs two of them: a broker can fail, and no acknowledged record or transaction is lost with it.
Source: Kafka's broker configuration reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from integration_tests.campaign.compaction import COMPACTION_PROPERTIES
from integration_tests.campaign.expiry import EXPIRY_PROPERTIES
from integration_tests.campaign.rotation import ROTATION, ROTATION_PROPERTIES
from integration_tests.campaign.settings import Settings, has_fault
from integration_tests.campaign.targets import patiently
from integration_tests.campaign.unclean_elections import N_NODES, UNCLEAN_ELECTION
from integration_tests.secured_brokers import Listeners, secured_broker
from streamgroups_broker import DEFAULT_KAFKA_VERSION, EmbeddedKafka
from streamgroups_testkit.broker import BROKER_PROPERTIES


@contextmanager
def cluster_of(settings: Settings, directory: Path) -> Iterator[tuple[EmbeddedKafka, Listeners | None]]:
    """Starts the brokers of campaigns.

    Args:
        settings: the options.
        directory: an empty directory.

    Returns:
        The brokers, and their listeners if the queries log in.

    Raises:
        ValueError: if the queries log in to several brokers, or to one of another release. And if an unclean election has too few.
    """
    if has_fault(settings, UNCLEAN_ELECTION) and settings.n_nodes != N_NODES:
        raise ValueError(f"{UNCLEAN_ELECTION} needs --nodes {N_NODES}")
    properties = properties_of(settings.n_nodes, expires=has_fault(settings, "expiry"))
    if any(has_fault(settings, it) for it in ("credentials", ROTATION)):
        if (settings.n_nodes, settings.kafka_version) != (1, DEFAULT_KAFKA_VERSION):
            raise ValueError("queries that log in have one broker of the usual release")
        with secured_broker(directory, properties | ROTATION_PROPERTIES) as listeners:
            yield listeners.kafka, listeners
        return
    with EmbeddedKafka(
        settings.n_nodes, version=settings.kafka_version, data_dir=directory, properties=properties
    ) as kafka:
        yield kafka, None


@dataclass(frozen=True, slots=True)
class Durability:
    """The replication of a topic.

    Args:
        replicas: the smallest number of replicas of a partition.
        min_insync: the number of replicas that each write needs.
    """

    replicas: int
    min_insync: int


def min_insync_of(n_nodes: int) -> int:
    """The number of brokers that each write needs.

    >>> [min_insync_of(it) for it in (1, 2, 3)]
    [1, 1, 2]
    """
    return 2 if n_nodes == 3 else 1


def properties_of(n_nodes: int, *, expires: bool = False) -> dict[str, str]:
    """The properties of the brokers. The embedded broker sets the replication factors to the number of nodes.

    Args:
        n_nodes: the number of brokers.
        expires: whether they forget offsets and ids within a minute.

    >>> {name: properties_of(3)[name] for name in ("min.insync.replicas", "transaction.state.log.min.isr")}
    {'min.insync.replicas': '2', 'transaction.state.log.min.isr': '2'}
    """
    needed = str(min_insync_of(n_nodes))
    return {
        **BROKER_PROPERTIES,
        "min.insync.replicas": needed,
        "transaction.state.log.min.isr": needed,
        "share.coordinator.state.topic.min.isr": needed,
        **(EXPIRY_PROPERTIES if expires else {}),
        **COMPACTION_PROPERTIES,
    }


def durability(bootstrap: str) -> dict[str, Durability]:
    """The replication of all topics, as the brokers describe it."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = admin.list_topics(timeout=30).topics
    described = admin.describe_configs([ConfigResource(ResourceType.TOPIC, it) for it in topics])
    needed = {it.name: int(found.result(30)["min.insync.replicas"].value) for it, found in described.items()}
    return {
        name: Durability(min(len(p.replicas) for p in topic.partitions.values()), needed[name])
        for name, topic in topics.items()
    }


def problems_of(found: Mapping[str, Durability], n_nodes: int) -> list[str]:
    """The topics that do not have the replication of a campaign, as text.

    >>> problems_of({"in": Durability(3, 2), "__transaction_state": Durability(3, 1)}, 3)
    ['__transaction_state has 3 replicas and min.insync.replicas=1']
    """
    expected = Durability(n_nodes, min_insync_of(n_nodes))
    return [
        f"{name} has {it.replicas} replicas and min.insync.replicas={it.min_insync}"
        for name, it in sorted(found.items())
        if it != expected
    ]


def checked_min_insync(bootstrap: str, n_nodes: int, other_prefix: str | None = None) -> int:
    """The number of brokers that each write has needed. Called after a campaign, when all topics exist.

    Args:
        bootstrap: the brokers.
        n_nodes: their number.
        other_prefix: the beginning of the names of topics with another replication.

    Raises:
        AssertionError: if a topic of the campaign, of the offsets or of the transactions has another replication.
    """
    found = patiently(partial(durability, bootstrap))
    problems = problems_of(
        {name: it for name, it in found.items() if other_prefix is None or not name.startswith(other_prefix)}, n_nodes
    )
    assert not problems, f"the cluster is not that of the campaign: {problems}"
    return min_insync_of(n_nodes)
