"""X2: an open transaction commits although its coordinator, the group's coordinator and the partition leaders are
killed in succession, or do not respond, as a host that hangs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from confluent_kafka.admin import AdminClient

from integration_tests.test_one_transaction_of_many_processes import assert_values
from integration_tests.three_brokers import three_brokers
from integration_tests.transaction_process import config_of, encoded
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_broker import EmbeddedKafka
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.transactions.coordinator import Transactions
from streamgroups_kafka.transactions.writer import TransactionWriter
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_offsets
from streamgroups_testkit.waits import wait_until

PARTITIONS = 3


@pytest.fixture
def cluster() -> Iterator[EmbeddedKafka]:
    with three_brokers("source", "target", partitions=PARTITIONS) as kafka:
        produce(kafka.bootstrap_servers, "source", 30, partitions=PARTITIONS)
        yield kafka


def _all_in_sync(admin: AdminClient) -> bool:
    topics = admin.list_topics(timeout=30).topics
    return all(len(p.isrs) == 3 for topic in topics.values() for p in topic.partitions.values())


def kill(cluster: EmbeddedKafka, node: int) -> Callable[[], None]:
    cluster.kill_node(node)
    return lambda: cluster.restart_node(node)


def hang(cluster: EmbeddedKafka, node: int) -> Callable[[], None]:
    """The connections of the node stay open."""
    cluster.pause_node(node)
    return lambda: cluster.resume_node(node)


@pytest.mark.long
@pytest.mark.parametrize("fail", [kill, hang])
def test_every_node_fails_once(
    cluster: EmbeddedKafka, fail: Callable[[EmbeddedKafka, int], Callable[[], None]]
) -> None:
    bootstrap = cluster.bootstrap_servers
    rows = [(p, f"{p}") for p in range(PARTITIONS)]
    offsets = {TopicPartition("source", p): Committed(10) for p in range(PARTITIONS)}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with ExitStack() as closed:
        driver = closed.enter_context(closing(Transactions(config_of(bootstrap), "x")))
        transaction = driver.begin()
        task = closed.enter_context(closing(TransactionWriter(config_of(bootstrap), transaction)))
        sequences: dict[int, int] = {}

        def write_all() -> None:
            batches = encoded(transaction, "target", rows, next_sequences=sequences)
            task.write("target", batches)
            sequences.update({b.partition: b.next_sequence or 0 for b in batches})

        # Without it, brokers would have to create the topic of the offsets while their controller hangs.
        driver.commit_offsets(transaction, offsets, ConsumerGroupMetadata("g", None, ""))
        for node in (1, 2, 3):
            # One node coordinates the transactional id and one the group, and each leads a partition.
            write_all()
            restore = fail(cluster, node)
            write_all()
            driver.commit_offsets(transaction, offsets, ConsumerGroupMetadata("g", None, ""))
            restore()
            wait_until(lambda: _all_in_sync(admin), "the node has caught up")
        driver.commit(transaction)
    assert_values(bootstrap, "target", {p: [f"{p}"] * 6 for p in range(PARTITIONS)})
    assert committed_offsets(bootstrap, "g", "source") == dict.fromkeys(range(PARTITIONS), 10)
