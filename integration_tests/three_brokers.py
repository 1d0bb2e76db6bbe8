"""A cluster of three brokers. Used by the tests of brokers that are killed or hang."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient, NewTopic

from streamgroups_broker import EmbeddedKafka


@contextmanager
def three_brokers(*topics: str, partitions: int) -> Iterator[EmbeddedKafka]:
    """Starts three nodes, and creates topics with three replicas of every partition."""
    with EmbeddedKafka(nodes=3) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        for made in admin.create_topics([NewTopic(name, partitions, 3) for name in topics]).values():
            made.result(30)
        yield kafka
